import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage
import Vocabulary

/// `mayfly keys rotate`: closes the log and begins another one with another origin and key.
///
/// Each step is durable before the next one and can be repeated. The store records the progress (`RotationMark`).
/// 1. Run as a broker without listeners: purge what is due and publish all waiting entries.
/// 2. Record `ledger.closed`, which can't be undone. Publish it, and make the new key beside the old one.
/// 3. In one transaction, delete the old log's head and record the live tokens in the new log.
/// 4. Move the folder with its public key, destroy the old private key, and rename the new keys.
/// 5. Publish the first entries of the new log.
struct LogRotation {
    private let state: StateFolder
    private let next: EntryText
    private let archive: LogArchive
    /// The witnesses of the old log's end. The new log is cosigned when a broker runs and the witnesses know its key.
    private let witnesses: WitnessSettings?
    /// The checkpoints that the old log must continue.
    private let kept: KeptCheckpointSettings
    /// The key that wraps the key file.
    private let wrapping: WrappingKeySource?
    private let loop: EventLoop
    private let lock: FolderLock

    /// What the last broker on this state folder recorded about its start.
    private struct LastStart {
        var node: EntryText
        /// The policy for rooms.
        var policy: Digest
        /// All policies that were in force.
        var policies: [Digest]
        var resolution: UInt32
    }

    /// Locks the state folder. Changes nothing.
    init(
        _ state: StateFolder, origin: String, archive: String, witnesses: WitnessSettings?, kept: KeptCheckpointSettings,
        wrapping: WrappingKeySource?
    ) throws {
        guard !state.database.isServer else {
            throw UsageError("keys rotate is for SQLite. A log in PostgreSQL can't be closed yet")
        }
        let next = try KeysCommand.checked(origin: origin)
        guard try File.status(state.path)?.kind == .folder, try state.database.exists() else {
            throw CommandFailed("no broker has run on \(state.shown), so there is no log to close")
        }
        self.state = state
        self.next = next
        self.archive = try LogArchive(archive, of: state)
        self.witnesses = witnesses
        self.kept = kept
        self.wrapping = wrapping
        lock = try state.lock()
        loop = try EventLoop(name: "rotation")
        try loop.start()
    }

    func run() async throws {
        defer { loop.stop() }
        let start = try await lastStart()
        let time = BrokerTime(persisted: 0)
        do {
            try await withStore(UInt64(start.resolution), time) { store in try await change(store, start, time) }
        } catch Sequencer.Failure.quorumMissed {
            throw CommandFailed(
                "the witnesses' quorum was not reached. Run this again when they answer, or with --witness-failure open")
        }
    }

    /// Reads the last start, which includes the length of the log's windows.
    private func lastStart() async throws -> LastStart {
        try await withStore(1, BrokerTime(persisted: 0)) { store in
            guard let bytes = try await store.mark(RotationMark.startMark),
                case .brokerStarted(let node, _, let policy, let resolution, _) = try? Entry(canonical: bytes.span).op
            else {
                throw CommandFailed(
                    "no broker of this version has run on \(state.shown). Start it once and stop it, then rotate")
            }
            // Versions with only one policy stored no list.
            let list = try await store.mark(RotationMark.policiesMark) ?? Array(policy.hex.utf8)
            let policies = RotationMark.policies(list)
            guard policies.contains(policy) else {
                throw StoreError.damaged("the record of the policies in force can't be read")
            }
            return LastStart(node: node, policy: policy, policies: policies, resolution: resolution)
        }
    }

    private func withStore<Value>(
        _ resolution: UInt64, _ time: BrokerTime, _ body: (any Store) async throws -> Value
    ) async throws -> Value {
        let store = try CommandFailed.naming(state.shownDatabase) {
            try state.database.open(resolution: resolution, timing: nil, now: { time.now })
        }
        do {
            let value = try await body(store)
            await store.shutDown()
            return value
        } catch {
            await store.shutDown()
            throw error
        }
    }

    private func change(_ store: any Store, _ start: LastStart, _ time: BrokerTime) async throws {
        var mark: RotationMark
        if let begun = try await RotationMark.read(store) {
            guard begun.next == next.description, begun.archive == archive.path else {
                throw CommandFailed(
                    "another rotation is not finished. Finish it with --origin \(begun.next) --archive \(begun.archive)")
            }
            mark = begun
        } else if let old = try await isDone(store) {
            return report(old, try SigningKey.load(state.ledgerKey), try await store.counts().tokens)
        } else {
            mark = try await close(store, start, time)
        }
        if mark.stage == .closing {
            try await publishEnd(store, start, time, mark)
            mark.stage = .moving
            try await begin(store, mark)
        }
        Progress.show("moving the log")
        try archive.takeLog(of: mark.old)
        let key = try exchangeKeys()
        // The next rotation reads these policies from the new log's folder, where each start writes them too.
        for policy in start.policies {
            guard let bytes = try LedgerFolder(archive.path).read(TilePath.policy(policy)) else { continue }
            _ = try LedgerFolder(state.ledger).writePolicy(bytes)
        }
        try await sequencer(store, start, time, key).flush()
        try await store.setMark(RotationMark.done.name, RotationMark.done.value)
        report(mark.old, key, try await store.counts().tokens)
    }

    private func report(_ old: VerifierKey, _ key: SigningKey, _ tokens: Int) {
        Terminal.out("closed \(old.name): the log is in \(archive.path) with its ledger.vkey, and its private key is destroyed")
        Terminal.out(
            "began \(next). \(tokens) token\(tokens == 1 ? " is" : "s are") stored now and live on. The log's balance may differ, since seals "
                + "and purges are published later")
        Terminal.out("Auditors need: \(key.verifierKey.description)")
        Terminal.out("Give this key to the witnesses, and put it into every witness policy.")
    }

    /// Closes the old log in the store: publishes all entries but the last one, and records that one.
    ///
    /// The log must not end with overdue purges, however long ago the broker stopped. So this records a start and catches up like one.
    private func close(_ store: any Store, _ start: LastStart, _ time: BrokerTime) async throws -> RotationMark {
        try RotationMark.refuse(state)
        let key = try SigningKey.load(state.ledgerKey)
        try checkOrigin(key.verifierKey.name, try await earlierOrigins(store))
        try archive.check()
        try witnesses?.check(key.verifierKey)
        let keys = try loadKeys(start)
        try await Startup(store: store, keys: keys, time: time).resumeTime()
        let sequencer = try sequencer(store, start, time, key, witnesses, kept.checkpoints(on: loop))
        try await sequencer.recover()

        Progress.show("purging what is due, and publishing what waits")
        let metrics = Metrics()
        let keeper = KeyKeeper(
            loop: loop, keys: keys, store: store, time: time, metrics: metrics, log: Logger { Terminal.log($0, $1) })
        let sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: Logger { Terminal.log($0, $1) })
        let mark = RotationMark(stage: .closing, next: next.description, archive: archive.path, old: key.verifierKey)
        let started = try Entry.Op.programStarted(
            node: start.node, policy: start.policy, resolutionSeconds: start.resolution)
        try await store.start([started], marks: [])
        await keeper.step()
        await keeper.recordAll()
        // A publication may begin a batch, which the next sweep completes. A day may also end meanwhile.
        for _ in 0..<Self.closingTries {
            _ = try await sweeper.sweep()
            try await sequencer.flush()
            if try await store.closeLog([.brokerStopped(node: start.node)], next: next, mark: mark.mark) { return mark }
            try await loop.sleep(200)
        }
        throw CommandFailed("some entries are not published yet, so nothing was closed. Run this again")
    }

    private static let closingTries = 25

    /// Publishes the old log's last entry.
    private func publishEnd(_ store: any Store, _ start: LastStart, _ time: BrokerTime, _ mark: RotationMark) async throws {
        let key = try SigningKey.load(state.ledgerKey)
        guard key.verifierKey == mark.old else {
            throw CommandFailed("\(state.shown(state.ledgerKey)) is not the key of \(mark.old.name)")
        }
        try await sequencer(store, start, time, key, witnesses, kept.checkpoints(on: loop)).flush()
        LedgerFolder(state.ledger).tidy()
    }

    /// Makes the new key and begins the new log in the store.
    private func begin(_ store: any Store, _ mark: RotationMark) async throws {
        if !File.exists(state.nextLedgerKey) { _ = try SigningKey.make(origin: mark.next, at: state.nextLedgerKey) }
        try checkNext(try SigningKey.load(state.nextLedgerKey), at: state.nextLedgerKey)
        let origins = (try await earlierOrigins(store) + [mark.old.name]).joined(separator: "\n")
        let policies = try await store.mark(RotationMark.policiesMark) ?? []
        let marks = [
            mark.mark, StoreMark(RotationMark.originsMark, Array(origins.utf8)), StoreMark(RotationMark.carriedMark, policies),
        ]
        guard let head = try await store.logHead(),
            let end = SignedNote(Array(head.checkpoint.utf8))?.checkpoint(signedBy: mark.old),
            try await store.beginLog(after: end, marks: marks)
        else { throw CommandFailed("the closed log is not fully published. Run this again") }
    }

    /// Destroys the old private key and renames the new keys.
    private func exchangeKeys() throws -> SigningKey {
        if File.exists(state.nextLedgerKey) {
            try checkNext(try SigningKey.load(state.nextLedgerKey), at: state.nextLedgerKey)
            if File.exists(state.ledgerKey) { try File.removeAndErase(state.ledgerKey) }
            try File.rename(state.nextLedgerKey, to: state.ledgerKey)
            try File.syncFolder(state.keys)
        }
        let key = try SigningKey.load(state.ledgerKey)
        try checkNext(key, at: state.ledgerKey)
        try key.verifierKey.write(to: state.verifierKey)
        return key
    }

    private func sequencer(
        _ store: any Store, _ start: LastStart, _ time: BrokerTime, _ key: SigningKey, _ witnesses: WitnessSettings? = nil,
        _ kept: [KeptCheckpoint] = []
    ) throws -> Sequencer {
        let metrics = Metrics()
        let log = Logger { Terminal.log($0, $1) }
        return Sequencer(
            loop: loop, store: store, folder: LedgerFolder(state.ledger), key: key, resolution: UInt64(start.resolution),
            time: time, metrics: metrics, log: log, witnesses: try witnesses?.start(on: loop, time, metrics, log),
            witnessFailure: witnesses?.failureMode ?? .closed, kept: kept, refusals: { [] })
    }

    /// Returns the key of the last closed log if this very rotation is complete: a crash may have come before its report. Otherwise nil.
    private func isDone(_ store: any Store) async throws -> VerifierKey? {
        guard let origin = try await earlierOrigins(store).last, let key = try archive.verifierKey(), key.name == origin,
            try SigningKey.load(state.ledgerKey).verifierKey.name == next.description
        else { return nil }
        return key
    }

    private func loadKeys(_ start: LastStart) throws -> KeyRing {
        // The policies' limits determine how long a generation of keys is needed.
        let longest = try start.policies.map { try policy($0).limits.longestLifeSeconds }.max() ?? 0
        return try state.loadKeys(try wrapping?.get(), longestLifeSeconds: UInt64(longest))
    }

    /// Reads a policy from the log's folder.
    private func policy(_ digest: Digest) throws -> Policy {
        guard let bytes = try LedgerFolder(state.ledger).read(TilePath.policy(digest)), Digest.sha256(bytes.span) == digest else {
            throw CommandFailed(
                "\(state.shown(state.ledger))/\(TilePath.policy(digest)) is missing or damaged: restore the ledger's folder"
            )
        }
        return try Policy(bytes)
    }

    private func earlierOrigins(_ store: any Store) async throws -> [String] {
        let text = try await store.mark(RotationMark.originsMark) ?? []
        return String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init)
    }

    private func checkOrigin(_ current: String, _ earlier: [String]) throws {
        let name = next.description
        guard name != current else { throw CommandFailed("the log is already \(name). Another log needs another origin") }
        guard !earlier.contains(name) else {
            throw CommandFailed("a closed log had the origin \(name). Choose an origin that was never used")
        }
    }

    private func checkNext(_ key: SigningKey, at path: String) throws {
        guard key.verifierKey.name == next.description else {
            throw CommandFailed("\(ShownPath(path)) is the key of \(key.verifierKey.name), not of \(next)")
        }
    }
}

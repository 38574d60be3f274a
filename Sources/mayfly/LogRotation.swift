import Broker
import EventLoop
import Ledger
import Linux
import Sealing
import Storage

/// `mayfly keys rotate`: ends the log and begins another, under another name and key.
///
/// Each step is durable before the next, and can be done again; the store says which come next (`RotationMark`):
/// 1. Run as a broker that serves no one: what is due is purged, everything that waits is published.
/// 2. Record `ledger.closed`: from here on it only goes forward. Publish it, and make the new key beside the old.
/// 3. In one transaction the store forgets the old log's head, and records in the new log what is alive.
/// 4. Move the folder with its public key, destroy the old private key, put the new keys in their places.
/// 5. Publish the new log's beginning.
struct LogRotation {
    let state: StateFolder
    let next: EntryText
    /// An absolute path.
    let archive: String
    /// Who cosign the end of the old log. The beginning of the next is cosigned once a broker runs on it, and witnesses know it.
    let witnesses: WitnessSettings?
    /// What the old log must continue.
    let kept: KeptCheckpointSettings
    /// What the key file lies sealed under.
    let wrapping: WrappingKeySource?
    let loop: EventLoop
    private let lock: FolderLock

    /// What the last broker that ran here told the log of itself.
    struct LastStart {
        var node: EntryText
        /// That for rooms.
        var policy: Ledger.Digest
        /// All that were in force.
        var policies: [Ledger.Digest]
        var resolution: UInt32
    }

    /// Takes the state folder's lock; changes nothing.
    init(
        _ state: StateFolder, origin: String, archive: String, witnesses: WitnessSettings?, kept: KeptCheckpointSettings,
        wrapping: WrappingKeySource?
    ) throws {
        let next = try KeysCommand.checked(origin: origin)
        guard try File.status(state.path)?.kind == .folder, File.exists(state.database) else {
            throw CheckFailed("mayfly: no broker has run on \(state.shown), so there is no log to close")
        }
        self.state = state
        self.next = next
        self.archive = try Self.place(archive)
        self.witnesses = witnesses
        self.kept = kept
        self.wrapping = wrapping
        try state.checkWritable()
        lock = try FolderLock(state.path)
        loop = try EventLoop(name: "rotation")
        try loop.start()
    }

    /// The absolute path of a folder that may not be there yet.
    private static func place(_ path: String) throws -> String {
        var path = path[...]
        while path.count > 1, path.last == "/" { path.removeLast() }
        let name = path.split(separator: "/").last ?? ""
        guard !name.isEmpty, name != ".", name != "..", !path.contains(where: \.isNewline) else {
            throw UsageError("--archive must be a new folder in an existing one")
        }
        let parent = File.folder(of: String(path))
        do {
            let found = try File.resolve(parent)
            return found == "/" ? "/\(name)" : "\(found)/\(name)"
        } catch { throw CheckFailed("mayfly: the archive's parent folder \(ShownPath(parent)) can't be used: \(error)") }
    }

    func run() async throws {
        defer { loop.stop() }
        let start = try await lastStart()
        let time = BrokerTime(persisted: 0)
        do {
            try await withStore(UInt64(start.resolution), time) { store in try await change(store, start, time) }
        } catch Sequencer.Failure.quorumMissed {
            throw CheckFailed(
                "mayfly: the witnesses' quorum was not reached. Run this again when they answer, or with --witness-failure open")
        }
    }

    /// The store's windows are as long as its last broker's; how long that is it says itself.
    private func lastStart() async throws -> LastStart {
        try await withStore(1, BrokerTime(persisted: 0)) { store in
            guard let told = try await store.mark(RotationMark.startMark),
                case .brokerStarted(let node, _, let policy, let resolution, _) = try? Entry(canonical: told.span).op
            else {
                throw CheckFailed(
                    "mayfly: no broker of this version has run on \(state.shown). Start it once and stop it, then rotate")
            }
            // Versions that knew one policy only did not write them down.
            let list = try await store.mark(RotationMark.policiesMark) ?? Array("\(policy)".utf8)
            let policies = RotationMark.policies(list)
            guard policies.contains(policy) else {
                throw StoreError.damaged("the record of the policies in force can't be read")
            }
            return LastStart(node: node, policy: policy, policies: policies, resolution: resolution)
        }
    }

    private func withStore<Value>(
        _ resolution: UInt64, _ time: BrokerTime, _ body: (SQLiteStore) async throws -> Value
    ) async throws -> Value {
        let store: SQLiteStore
        do {
            store = try SQLiteStore(path: state.database, resolution: resolution, timing: nil, now: { time.now })
        } catch { throw CheckFailed("mayfly: \(state.shown(state.database)): \(error)") }
        do {
            let value = try await body(store)
            await store.shutDown()
            return value
        } catch {
            await store.shutDown()
            throw error
        }
    }

    private func change(_ store: SQLiteStore, _ start: LastStart, _ time: BrokerTime) async throws {
        var mark: RotationMark
        if let begun = try await RotationMark.read(store) {
            guard begun.next == next.description, begun.archive == archive else {
                throw CheckFailed(
                    "mayfly: another rotation is not finished. Finish it with --origin \(begun.next) --archive \(begun.archive)")
            }
            mark = begun
        } else if let old = try await isDone(store) {
            return tell(old, try SigningKey.load(state.ledgerKey), try await store.counts().tokens)
        } else {
            mark = try await close(store, start, time)
        }
        if mark.stage == .closing {
            try await publishEnd(store, start, time, mark)
            mark.stage = .moving
            try await begin(store, mark)
        }
        try moveFolder(mark)
        let key = try exchangeKeys()
        // As at each start: what the next closing names must lie in the next folder too.
        for policy in start.policies {
            guard let bytes = try LedgerFolder(archive).read(TilePath.policy(policy)) else { continue }
            _ = try LedgerFolder(state.ledger).writePolicy(bytes)
        }
        try await sequencer(store, start, time, key).flush()
        try await store.setMark(RotationMark.done.name, RotationMark.done.value)
        tell(mark.old, key, try await store.counts().tokens)
    }

    private func tell(_ old: VerifierKey, _ key: SigningKey, _ tokens: Int) {
        Terminal.out("closed \(old.name): the log is in \(archive) with its ledger.vkey, and its private key is destroyed")
        Terminal.out("began \(next): it continues \(tokens) live token\(tokens == 1 ? "" : "s")")
        Terminal.out("Auditors need: \(key.verifierKey.description)")
        Terminal.out("Give this key to the witnesses, and put it into every witness policy.")
    }
}

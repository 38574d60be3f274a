import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage

extension LogRotation {
    /// Ends the old log in the store: everything but its last entry is published, and that is recorded.
    ///
    /// The log must not end with something overdue, however long ago the broker stopped: so this is one more run of it, which says so, and
    /// does what every start does first.
    func close(_ store: SQLiteStore, _ start: LastStart, _ time: BrokerTime) async throws -> RotationMark {
        try RotationMark.refuse(state)
        let key = try SigningKey.load(state.ledgerKey)
        try checkOrigin(key.verifierKey.name, try await earlierOrigins(store))
        try checkPlace()
        try witnesses?.check(key.verifierKey)
        let keys = try loadKeys(start)
        try await KeyKeeper.checkNotStale(keys, store)
        time.resume(after: try await KeyKeeper.knownTime(keys, store))
        let sequencer = try sequencer(store, start, time, key, witnesses, kept.checkpoints(on: loop))
        try await sequencer.recover()

        guard let version = EntryText(Mayfly.version) else {
            throw CheckFailed("mayfly: the version's name is invalid in the log")
        }
        let metrics = Metrics()
        let keeper = KeyKeeper(loop: loop, keys: keys, store: store, time: time, metrics: metrics, log: { Terminal.log($0) })
        let sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: { Terminal.log($0) })
        let mark = RotationMark(stage: .closing, next: next.description, archive: archive, old: key.verifierKey)
        let started = Entry.Op.brokerStarted(
            node: start.node, version: version, policy: start.policy, resolutionSeconds: start.resolution,
            binary: try ProgramDigest.get())
        try await store.start([started], marks: [])
        await keeper.step()
        await keeper.recordAll()
        // A publication may begin a batch, which the next sweep completes; and a day may end meanwhile.
        for _ in 0..<Self.closingTries {
            _ = try await sweeper.sweep()
            try await sequencer.flush()
            if try await store.closeLog([.brokerStopped(node: start.node)], next: next, mark: mark.mark) { return mark }
            try await loop.sleep(200)
        }
        throw CheckFailed("mayfly: some entries are not published yet, so nothing was closed. Run this again")
    }

    private static let closingTries = 25

    /// Publishes the old log's last entry.
    func publishEnd(_ store: SQLiteStore, _ start: LastStart, _ time: BrokerTime, _ mark: RotationMark) async throws {
        let key = try SigningKey.load(state.ledgerKey)
        guard key.verifierKey == mark.old else {
            throw CheckFailed("mayfly: \(state.shown(state.ledgerKey)) is not the key of \(mark.old.name)")
        }
        try await sequencer(store, start, time, key, witnesses, kept.checkpoints(on: loop)).flush()
        LedgerFolder(state.ledger).tidy()
    }

    /// Makes the new key, and has the store begin the new log.
    func begin(_ store: SQLiteStore, _ mark: RotationMark) async throws {
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
        else { throw CheckFailed("mayfly: the closed log is not fully published. Run this again") }
    }

    /// Puts the closed log where the operator wants it, its public key with it.
    ///
    /// An archive that does not exist yet gets the whole folder in one step. One that exists may lie in a folder that this user can't
    /// write, so it gets the folder's contents.
    func moveFolder(_ mark: RotationMark) throws {
        func isClosedLog(_ path: String) throws -> Bool {
            try LedgerFolder(path).checkpoint().flatMap { SignedNote($0)?.checkpoint(signedBy: mark.old) } != nil
        }
        if try isClosedLog(state.ledger) {
            if try File.status(archive, followLinks: false) == nil {
                try writeVerifierKey(mark.old)
                try File.rename(state.ledger, to: archive)
            } else {
                try moveContents(mark.old)
            }
        } else if try !isClosedLog(archive) {
            throw CheckFailed(
                "mayfly: the closed log is neither in \(state.shown(state.ledger)) nor in \(ShownPath(archive)). Put it back, and run this again"
            )
        }
        // Also after a crash that came just behind the move. The folder around the archive changed only if the whole folder moved.
        if !File.exists(state.ledger) { try File.syncFolder(File.folder(of: archive)) }
        try File.syncFolder(state.path)
    }

    /// The public key moves first: it marks the archive as this log's, so that a second run goes on where the first was cut off. The
    /// checkpoint moves last: until then the log is in its old place.
    private func moveContents(_ old: VerifierKey) throws {
        let key = "ledger.vkey"
        func move(_ names: [String]) throws {
            for name in names {
                guard !File.exists("\(archive)/\(name)") else {
                    throw CheckFailed(
                        "mayfly: \(ShownPath(archive))/\(name) is in the way. Move it elsewhere, and run this again")
                }
                try File.rename("\(state.ledger)/\(name)", to: "\(archive)/\(name)")
            }
            try File.syncFolder(archive)
            try File.syncFolder(state.ledger)
        }
        if try archivedKey() != old {
            try checkIsFree()
            try writeVerifierKey(old)
            try move([key])
        }
        try move(try File.list(state.ledger).filter { $0 != TilePath.checkpoint })
        try move([TilePath.checkpoint])
    }

    private func writeVerifierKey(_ key: VerifierKey) throws {
        let text = Array("\(key)\n".utf8)
        try File.replaceDurably("\(state.ledger)/ledger.vkey", text.span, mode: 0o644)
    }

    /// The public key in the archive. Nil if there is none.
    private func archivedKey() throws -> VerifierKey? {
        do {
            return VerifierKey(String(decoding: try File.read("\(archive)/ledger.vkey", limit: 4096), as: UTF8.self))
        } catch {
            if error.isMissing || error.isNoFile { return nil }
            throw error
        }
    }

    /// Destroys the old private key and puts the new keys in the old ones' places.
    func exchangeKeys() throws -> SigningKey {
        if File.exists(state.nextLedgerKey) {
            try checkNext(try SigningKey.load(state.nextLedgerKey), at: state.nextLedgerKey)
            if File.exists(state.ledgerKey) { try File.removeAndErase(state.ledgerKey) }
            try File.rename(state.nextLedgerKey, to: state.ledgerKey)
            try File.syncFolder(state.keys)
        }
        let key = try SigningKey.load(state.ledgerKey)
        try checkNext(key, at: state.ledgerKey)
        let text = Array("\(key.verifierKey)\n".utf8)
        try File.replaceDurably(state.verifierKey, text.span, mode: 0o644)
        return key
    }

    func sequencer(
        _ store: SQLiteStore, _ start: LastStart, _ time: BrokerTime, _ key: SigningKey, _ witnesses: WitnessSettings? = nil,
        _ kept: [KeptCheckpoint] = []
    ) throws -> Sequencer {
        let metrics = Metrics()
        let log: @Sendable (String) -> Void = { Terminal.log($0) }
        return Sequencer(
            loop: loop, store: store, folder: LedgerFolder(state.ledger), key: key, resolution: UInt64(start.resolution),
            time: time, metrics: metrics, log: log, witnesses: try witnesses?.start(on: loop, time, metrics, log),
            witnessFailure: witnesses?.failureMode ?? .closed, kept: kept, refusals: { [] })
    }

    // MARK: Checks

    /// The key of the log that was closed last, if just this change was made already: a crash may have come between its end and the word
    /// of it.
    func isDone(_ store: SQLiteStore) async throws -> VerifierKey? {
        guard let origin = try await earlierOrigins(store).last, let key = try archivedKey(), key.name == origin,
            try SigningKey.load(state.ledgerKey).verifierKey.name == next.description
        else { return nil }
        return key
    }

    private func loadKeys(_ start: LastStart) throws -> KeyRing {
        // Their limits say how long a generation of keys is needed.
        let longest = try start.policies.map { try policy($0).limits.longestLifeSeconds }.max() ?? 0
        let wrapping = try wrapping?.get()
        do {
            return try KeyRing.load(path: state.ratchetKey, wrapping: wrapping, longestLifeSeconds: UInt64(longest))
        } catch { throw CheckFailed("mayfly: \(state.shown(state.ratchetKey)): \(error)") }
    }

    /// A policy that was in force, from the log's folder.
    private func policy(_ digest: Ledger.Digest) throws -> Policy {
        guard let bytes = try LedgerFolder(state.ledger).read(TilePath.policy(digest)), Digest.sha256(bytes.span) == digest else {
            throw CheckFailed(
                "mayfly: \(state.shown(state.ledger))/\(TilePath.policy(digest)) is missing or damaged: restore the ledger's folder"
            )
        }
        return try Policy(bytes)
    }

    private func earlierOrigins(_ store: SQLiteStore) async throws -> [String] {
        let text = try await store.mark(RotationMark.originsMark) ?? []
        return String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init)
    }

    private func checkOrigin(_ current: String, _ earlier: [String]) throws {
        let name = next.description
        guard name != current else { throw CheckFailed("mayfly: the log is already \(name). Another log needs another origin") }
        guard !earlier.contains(name) else {
            throw CheckFailed("mayfly: a closed log had the origin \(name). Choose an origin that was never used")
        }
    }

    private func checkNext(_ key: SigningKey, at path: String) throws {
        guard key.verifierKey.name == next.description else {
            throw CheckFailed("mayfly: \(ShownPath(path)) is the key of \(key.verifierKey.name), not of \(next)")
        }
    }

    /// Nothing, or an empty folder.
    private func checkIsFree() throws {
        guard let status = try File.status(archive, followLinks: false) else { return }
        guard status.kind == .folder, try File.list(archive).isEmpty else {
            throw CheckFailed(
                "mayfly: \(ShownPath(archive)) exists and is not an empty folder. Name an empty or a new one")
        }
    }

    /// Tries the move with an empty folder, so that nothing is closed that could not be moved then.
    private func checkPlace() throws {
        let trial = "\(archive)/ledger.new"
        // A crash may have left it. One that is not empty stays, and is refused as the archive's content.
        try? File.removeFolder(trial)
        try checkIsFree()
        let own = try File.resolve(state.path)
        for folder in ["ledger", "keys"] where archive == "\(own)/\(folder)" || archive.hasPrefix("\(own)/\(folder)/") {
            throw CheckFailed("mayfly: the archive can't be inside \(ShownPath(own))/\(folder)")
        }
        guard try File.status(state.ledger, followLinks: false)?.kind == .folder else {
            throw CheckFailed(
                "mayfly: \(state.shown(state.ledger)) is not a folder. A link can't be moved: replace it with the folder"
            )
        }
        let probe = "\(state.ledger).new"
        guard try !File.exists(probe) || File.list(probe).isEmpty else {
            throw CheckFailed("mayfly: \(ShownPath(probe)) is in the way. Move it elsewhere")
        }
        do {
            guard try !File.isMountPoint(state.ledger) else {
                throw CheckFailed(
                    "mayfly: something is mounted on \(state.shown(state.ledger)), so it can't be moved. Unmount it first")
            }
            try File.makeFolder(probe, mode: 0o755)
            let place = File.exists(archive) ? trial : archive
            try File.rename(probe, to: place)
            try File.removeFolder(place)
        } catch let error as Errno {
            try? File.removeFolder(probe)
            throw CheckFailed(
                error.isOtherFileSystem
                    ? "mayfly: \(ShownPath(archive)) is on another file system than \(state.shown). Name a folder on the same one, and copy it from there"
                    : "mayfly: the log can't be moved to \(ShownPath(archive)): \(error)")
        }
    }
}

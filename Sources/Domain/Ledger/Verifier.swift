import Policy
import Vocabulary

/// Recomputes a log from its entries and checks its totals. Trusts only the key.
///
/// Reads each file once, in order. Memory grows with open pushes and days, not with the log.
public struct Verifier: Sendable {
    /// An older checkpoint: its file's name (for messages) and its bytes.
    public struct OlderCheckpoint: Sendable {
        public var name: String
        public var bytes: [UInt8]

        public init(name: String, bytes: [UInt8]) { (self.name, self.bytes) = (name, bytes) }
    }

    /// A finished verification, which can be continued after the log has grown.
    public struct Result: Sendable {
        public var report: Report
        /// The state from which the next verification continues.
        public var state: [UInt8]
        /// The number of entries that an earlier verification had checked.
        public var resumedAt: UInt64
        /// The checkpoint's bytes.
        public var checkpoint: [UInt8]
    }

    private let source: any LogSource
    private let reader: LogReader
    private let key: VerifierKey
    private let demand: WitnessDemand?
    private let allowsGaps: Bool
    private let isUnique: Bool

    /// - Parameters:
    ///   - demand: the required cosignatures. Nil requires none.
    ///   - allowsGaps: true to accept absences of the broker of any length.
    ///   - unique: true to check that no id repeats, by sorting all ids in a temporary file.
    public init(
        _ source: any LogSource, key: VerifierKey, demand: WitnessDemand? = nil, allowsGaps: Bool = false, unique: Bool = false
    ) {
        (self.source, reader, self.key, self.demand) = (source, LogReader(source), key, demand)
        (self.allowsGaps, isUnique) = (allowsGaps, unique)
    }

    /// Verifies the log under the source's checkpoint, and that it continues each older checkpoint.
    /// - Throws: the first failure.
    public func verify(since older: [OlderCheckpoint] = []) async throws(VerificationFailure) -> Report {
        try await verify(since: older, resuming: nil).report
    }

    /// Continues an earlier verification.
    /// - Parameter state: the earlier verification's. If it is nil, damaged, of another log, or of more entries than an older checkpoint,
    ///   the whole log is verified.
    public func verify(
        since older: [OlderCheckpoint], resuming state: [UInt8]?
    ) async throws(VerificationFailure) -> Result {
        do throws(VerificationFailure) {
            return try await run(since: older, state)
        } catch {
            var failure = error
            if failure.file == nil, let index = failure.index { failure.file = TilePath.entries(index: index / 256) }
            throw failure
        }
    }

    private func run(since older: [OlderCheckpoint], _ state: [UInt8]?) async throws(VerificationFailure) -> Result {
        let note = try await reader.file(TilePath.checkpoint)
        let head = try open(note, name: TilePath.checkpoint)
        // Checked before reading the log, and again when the last entry's date is known.
        if let demand { _ = try demand.check(note, of: key, lastEntryMs: 0) }
        let heads = try older.map { checkpoint throws(VerificationFailure) in try old(checkpoint, upTo: head.size) }
        var run = VerifierRun(
            older: heads, allowsGaps: allowsGaps, unique: isUnique ? try Uniqueness() : nil)
        let resumedAt = state.map { !isUnique && run.resume($0, of: key, upTo: head.size) } == true ? run.tree.size : 0
        try run.tree.compareOlder()
        if resumedAt > 0 { try await checkContinues(older, head) }
        var next: [UInt8] = []
        while run.tree.size < head.size {
            let (index, width) = (run.tree.size / 256, Int(min(head.size - run.tree.size, 256)))
            if run.tree.size == head.size / 256 * 256 { next = run.state(of: key) }
            let tile = try await reader.tile(TilePath.hashes(level: 0, index: index), width: width)
            let (bytes, isLonger) = try await reader.bundle(TilePath.entries(index: index), width: width)
            let path = TilePath.path(TilePath.entries(index: index), width: width)
            var bundle = EntryBundle(bytes)
            while let policy = try run.check(&bundle, bytes, tile: tile, path) { run.policies[policy] = await rules(policy) }
            guard bundle.isAtEnd || isLonger else {
                throw VerificationFailure(.damaged, "has bytes after its last entry", file: path)
            }
            try await compareOldPartials(TilePath.hashes(level: 0, index: index), tile)
            try await compareOldPartials(TilePath.entries(index: index), bytes, width: width)
            for expected in run.tree.takeFull() { try await compare(expected) }
        }
        if head.size % 256 == 0 { next = run.state(of: key) }
        for expected in run.tree.partial { try await compare(expected) }
        guard run.tree.root == head.root else {
            throw VerificationFailure(.tree, "signs a root that differs from the entries' root", file: TilePath.checkpoint)
        }
        var report = try run.finish()
        (report.origin, report.compared) = (head.origin, older.count)
        report.isCompared = heads.contains { $0.size > 0 }
        if let demand {
            report.cosignatures = try demand.check(note, of: key, lastEntryMs: report.toMs ?? 0)
            if demand.requiresWitnesses, head.size > 0 { report.isCompared = true }
        }
        return Result(report: report, state: next, resumedAt: resumedAt, checkpoint: note)
    }

    /// Must run before resuming. Otherwise a rewritten log would be checked against the old log's state.
    private func checkContinues(_ older: [OlderCheckpoint], _ head: Checkpoint) async throws(VerificationFailure) {
        var tiles = TileReader(source, size: head.size)
        for checkpoint in older {
            guard try await tiles.continues(try open(checkpoint.bytes, name: checkpoint.name), root: head.root) else {
                throw VerificationFailure(
                    .rewritten, "signs entries that are not those of this log: history was rewritten", file: checkpoint.name)
            }
        }
    }

    /// Reads the rules from the policy's file. Returns the failure if the file can't be used.
    private func rules(_ policy: Digest) async -> Swift.Result<PublishedRules, VerificationFailure> {
        do throws(VerificationFailure) {
            let path = TilePath.policy(policy)
            let bytes = try await reader.file(path)
            guard Digest.sha256(bytes.span) == policy else {
                throw VerificationFailure(.damaged, "doesn't match the SHA-256 in its name", file: path)
            }
            guard let rules = PublishedRules(bytes) else { throw VerifierRun.damaged(policy) }
            return .success(rules)
        } catch { return .failure(error) }
    }

    private func open(_ note: [UInt8], name: String) throws(VerificationFailure) -> Checkpoint {
        guard let head = SignedNote(note)?.checkpoint(signedBy: key) else {
            throw VerificationFailure(.signature, "is not a checkpoint signed by \(key.name) with this key", file: name)
        }
        return head
    }

    private func old(_ checkpoint: OlderCheckpoint, upTo size: UInt64) throws(VerificationFailure) -> TreeCheck.Older {
        let head = try open(checkpoint.bytes, name: checkpoint.name)
        guard head.size <= size else {
            throw VerificationFailure(
                .rewritten,
                "signs \(head.size) entries where this copy of the log has \(size): it was cut back, or the copy lags",
                file: checkpoint.name)
        }
        return TreeCheck.Older(name: checkpoint.name, size: head.size, root: head.root)
    }

    private func compare(_ expected: TreeCheck.ExpectedTile) async throws(VerificationFailure) {
        let full = TilePath.hashes(level: expected.level, index: expected.index)
        let tile = try await reader.tile(full, width: expected.hashes.count)
        for (number, hash) in expected.hashes.enumerated() where hash != Digest(tile.span, at: number * Digest.count) {
            throw VerificationFailure(
                .tree, "contains a hash, number \(number), that doesn't match the entries",
                file: TilePath.path(full, width: expected.hashes.count))
        }
        try await compareOldPartials(full, tile)
    }

    /// Checks that each partial file left by an earlier checkpoint is a prefix of the full one.
    /// - Parameter entries: how many entries a bundle has. Nil for a tile of hashes.
    private func compareOldPartials(_ full: String, _ bytes: [UInt8], width entries: Int? = nil) async throws(VerificationFailure)
    {
        // A wider one belongs to a publication whose checkpoint isn't visible yet.
        for part in try await reader.partialWidths(full) where part < entries ?? bytes.count / Digest.count {
            let path = TilePath.path(full, width: part)
            let count = entries == nil ? part * Digest.count : EntryBundle.count(of: part, in: bytes)
            // A growing log may delete it at any moment.
            guard let old = try await reader.fileIfThere(path) else { continue }
            guard old == Array(bytes.prefix(count)) else {
                throw VerificationFailure(.tree, "is not a prefix of the present log", file: path)
            }
        }
    }
}

/// Recomputes a whole log from its entries and checks the story that they tell. Trusts nothing but the key.
///
/// Reads each file once and in order, and keeps none. What stays in memory is about 40 bytes for each ref and 30 for each job that the log
/// ever had: that each comes once can't be told otherwise in one pass.
public struct Verifier: Sendable {
    /// A checkpoint kept from earlier: its file's name, for messages, and its bytes.
    public struct OlderCheckpoint: Sendable {
        public var name: String
        public var bytes: [UInt8]

        public init(name: String, bytes: [UInt8]) { (self.name, self.bytes) = (name, bytes) }
    }

    private let reader: LogReader
    private let key: VerifierKey
    private let demand: WitnessDemand?

    public init(_ source: any LogSource, key: VerifierKey, demand: WitnessDemand? = nil) {
        (self.reader, self.key, self.demand) = (LogReader(source), key, demand)
    }

    /// Verifies the log that the source's checkpoint signs, and that it continues each older checkpoint.
    public func verify(since older: [OlderCheckpoint] = []) async throws(VerificationFailure) -> Report {
        do throws(VerificationFailure) {
            return try await run(since: older)
        } catch {
            var failure = error
            if failure.file == nil, let index = failure.index { failure.file = TilePath.entries(index: index / 256) }
            throw failure
        }
    }

    private func run(since older: [OlderCheckpoint]) async throws(VerificationFailure) -> Report {
        let note = try await reader.file(TilePath.checkpoint)
        let head = try open(note, name: TilePath.checkpoint)
        // Before anything is read for it; and once more when the last entry's date is known.
        if let demand { _ = try demand.check(note, of: key, lastEntryMs: 0) }
        var tree = TreeCheck(
            older: try older.map { checkpoint throws(VerificationFailure) in try old(checkpoint, upTo: head.size) })
        try tree.compareOlder()
        var life = LifeCycle()
        var policies: Set<Digest> = []
        while tree.size < head.size {
            let (index, width) = (tree.size / 256, Int(min(head.size - tree.size, 256)))
            let tile = try await reader.tile(TilePath.hashes(level: 0, index: index), width: width)
            let bundle = try await reader.bundle(TilePath.entries(index: index), width: width)
            let path = TilePath.path(TilePath.entries(index: index), width: width)
            let end = try check(bundle.bytes, against: tile, path, &tree, &life, &policies)
            guard end == bundle.bytes.count || bundle.isLonger else {
                throw VerificationFailure(.damaged, "goes on after its last entry", file: path)
            }
            try await compareOldPartials(TilePath.hashes(level: 0, index: index), tile)
            try await compareOldPartials(TilePath.entries(index: index), bundle.bytes, width: width)
            for expected in tree.takeFull() { try await compare(expected) }
        }
        for expected in tree.partial { try await compare(expected) }
        guard tree.root == head.root else {
            throw VerificationFailure(.tree, "signs another root than the entries hash to", file: TilePath.checkpoint)
        }
        for policy in policies { try await check(policy) }
        var report = try life.finish()
        (report.origin, report.compared) = (head.origin, older.count)
        if let demand { report.cosignatures = try demand.check(note, of: key, lastEntryMs: report.toMs ?? 0) }
        return report
    }

    private func open(_ note: [UInt8], name: String) throws(VerificationFailure) -> Checkpoint {
        guard let head = SignedNote(note)?.checkpoint(signedBy: key) else {
            throw VerificationFailure(.signature, "is no checkpoint that \(key.name) has signed with this key", file: name)
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

    /// Checks a bundle's entries against the hashes of their tile, and returns where the last one ends.
    private func check(
        _ bytes: [UInt8], against tile: [UInt8], _ path: String, _ tree: inout TreeCheck, _ life: inout LifeCycle,
        _ policies: inout Set<Digest>
    ) throws(VerificationFailure) -> Int {
        var bundle = EntryBundle(bytes)
        var end = 0
        for offset in stride(from: 0, to: tile.count, by: Digest.count) {
            let index = tree.size
            guard let range = bundle.next() else {
                throw VerificationFailure(.damaged, "ends before this entry does", index: index, file: path)
            }
            end = range.upperBound
            let entry = bytes.span.extracting(range)
            let leaf = Digest.leaf(entry)
            guard leaf == Digest(tile.span, at: offset) else {
                throw VerificationFailure(.tree, "is not the entry that the hash tile holds", index: index, file: path)
            }
            let fields = try fields(of: entry, index)
            if fields.op == .policyLoaded || fields.op == .brokerStarted {
                if let policy = Digest(hex: entry.extracting(fields.policy)) { policies.insert(policy) }
            }
            try life.admit(fields, index: index)
            try tree.append(leaf)
        }
        return end
    }

    private func fields(of entry: Span<UInt8>, _ index: UInt64) throws(VerificationFailure) -> EntryFields {
        do {
            return try EntryFields(entry)
        } catch { throw VerificationFailure(.entry, "is no entry: \(error)", index: index) }
    }

    private func check(_ policy: Digest) async throws(VerificationFailure) {
        let path = TilePath.policy(policy)
        let bytes = try await reader.file(path)
        guard Digest.sha256(bytes.span) == policy else {
            throw VerificationFailure(.damaged, "is not the policy that it is named after", file: path)
        }
    }

    private func compare(_ expected: TreeCheck.ExpectedTile) async throws(VerificationFailure) {
        let full = TilePath.hashes(level: expected.level, index: expected.index)
        let tile = try await reader.tile(full, width: expected.hashes.count)
        for (number, hash) in expected.hashes.enumerated() where hash != Digest(tile.span, at: number * Digest.count) {
            throw VerificationFailure(
                .tree, "holds a hash, number \(number), that the entries do not give",
                file: TilePath.path(full, width: expected.hashes.count))
        }
        try await compareOldPartials(full, tile)
    }

    /// What earlier checkpoints left beside a file: each must be a beginning of it. `width` counts a bundle's entries.
    private func compareOldPartials(_ full: String, _ bytes: [UInt8], width entries: Int? = nil) async throws(VerificationFailure)
    {
        // A wider one belongs to a publication that no checkpoint shows yet.
        for part in try await reader.partialWidths(full) where part < entries ?? bytes.count / Digest.count {
            let path = TilePath.path(full, width: part)
            let count = entries == nil ? part * Digest.count : EntryBundle.count(of: part, in: bytes)
            // A growing log drops them at any moment.
            guard let old = try await reader.fileIfThere(path) else { continue }
            guard old == Array(bytes.prefix(count)) else {
                throw VerificationFailure(.tree, "is not a beginning of what the log now holds", file: path)
            }
        }
    }
}

public import Vocabulary

/// Makes proofs about a log of a given size from its tiles. Reads each tile once.
///
/// The hashes read are as good as the source: check a proof against a signed root before relying on it.
public struct TileReader: Sendable {
    /// The checkpoint's.
    public let size: UInt64
    private let reader: LogReader
    private var tiles: [String: [Digest]] = [:]

    public init(_ source: any LogSource, size: UInt64) { (self.reader, self.size) = (LogReader(source), size) }

    /// - Precondition: `index < size`.
    public mutating func inclusionProof(index: UInt64) async throws(VerificationFailure) -> InclusionProof {
        let ranges = InclusionProof.ranges(index: index, size: size)
        return InclusionProof(index: index, size: size, hashes: try await hashes(of: ranges))
    }

    /// - Precondition: `0 < oldSize <= size`.
    public mutating func consistencyProof(oldSize: UInt64) async throws(VerificationFailure) -> ConsistencyProof {
        let ranges = ConsistencyProof.ranges(oldSize: oldSize, newSize: size)
        return ConsistencyProof(oldSize: oldSize, newSize: size, hashes: try await hashes(of: ranges))
    }

    /// What a witness that has the head of `oldSize` (0: none) wants to see: a proof that was held against `root`, the signed one.
    /// - Precondition: `oldSize <= size`.
    /// - Throws: also when the tiles do not lead to that root.
    public mutating func consistencyProof(
        oldSize: UInt64, leadingTo root: Digest
    ) async throws(VerificationFailure) -> [Digest] {
        guard oldSize > 0, oldSize < size else { return [] }
        let proof = try await consistencyProof(oldSize: oldSize)
        let oldRoot = try await hashes(of: [0..<oldSize])[0]
        guard proof.isValid(oldRoot: oldRoot, newRoot: root) else {
            throw VerificationFailure(.tree, "the tiles don't connect \(oldSize) entries to the signed root of \(size)")
        }
        return proof.hashes
    }

    /// Returns whether the log begins with everything that the head `old` signs.
    /// - Parameter root: the root that the log's own key has signed for `size`.
    /// - Precondition: `old.size <= size`.
    /// - Throws: also if the tiles do not lead to `root`.
    public mutating func continues(_ old: Checkpoint, root: Digest) async throws(VerificationFailure) -> Bool {
        if old.size == 0 { return old.root == .emptyRoot }
        if old.size == size { return old.root == root }
        let hashes = try await consistencyProof(oldSize: old.size, leadingTo: root)
        return ConsistencyProof(oldSize: old.size, newSize: size, hashes: hashes).isValid(oldRoot: old.root, newRoot: root)
    }

    /// The bytes of the entries of one bundle, those from `256 * bundle` on.
    /// - Precondition: `256 * bundle < size`.
    public func entries(bundle index: UInt64) async throws(VerificationFailure) -> [[UInt8]] {
        let full = TilePath.entries(index: index)
        let width = Int(min(size - index * 256, 256))
        let bytes = try await reader.bundle(full, width: width).bytes
        var bundle = EntryBundle(bytes)
        var entries: [[UInt8]] = []
        for _ in 0..<width {
            guard let range = bundle.next() else {
                throw VerificationFailure(.damaged, "ends before its last entry", file: TilePath.path(full, width: width))
            }
            entries.append(Array(bytes[range]))
        }
        return entries
    }

    private mutating func hashes(of ranges: [Range<UInt64>]) async throws(VerificationFailure) -> [Digest] {
        var hashes: [Digest] = []
        for range in ranges {
            var peaks: [Digest] = []
            for subtree in Subtree.covering(range) { peaks.append(try await hash(of: subtree)) }
            hashes.append(TreeEdge.fold(peaks)!)
        }
        return hashes
    }

    private mutating func hash(of subtree: Subtree) async throws(VerificationFailure) -> Digest {
        let (level, rest) = (subtree.level / 8, subtree.level % 8)
        let first = subtree.index << UInt64(rest)
        let width = Int(min((size >> UInt64(8 * level)) - first / 256 * 256, 256))
        let full = TilePath.hashes(level: level, index: first / 256)
        if tiles[full] == nil {
            let bytes = try await reader.tile(full, width: width)
            tiles[full] = (0..<width).map { Digest(bytes.span, at: $0 * Digest.count) }
        }
        return TileLog.hash(of: Subtree(level: rest, index: (first % 256) >> UInt64(rest)), over: tiles[full]!)
    }
}

public import Vocabulary

/// Makes proofs about a log of a given size from its tiles. Reads each tile once.
///
/// The tiles aren't verified: check a proof against a signed root before relying on it.
public struct TileReader: Sendable {
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

    /// Returns the hashes of a consistency proof that was verified against the signed root. Empty if `oldSize` is 0 or `size`.
    /// - Precondition: `oldSize <= size`.
    /// - Throws: `.tree` if the tiles don't lead to `root`.
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

    /// Returns true if the log begins with all entries of the checkpoint `old`.
    /// - Parameter root: the signed root of `size` entries.
    /// - Precondition: `old.size <= size`.
    /// - Throws: `.tree` if the tiles don't lead to `root`.
    public mutating func continues(_ old: Checkpoint, root: Digest) async throws(VerificationFailure) -> Bool {
        if old.size == 0 { return old.root == .emptyRoot }
        if old.size == size { return old.root == root }
        let hashes = try await consistencyProof(oldSize: old.size, leadingTo: root)
        return ConsistencyProof(oldSize: old.size, newSize: size, hashes: hashes).isValid(oldRoot: old.root, newRoot: root)
    }

    /// Returns the entries of the bundle `index`, which starts at the entry `256 * index`. They aren't verified.
    /// - Precondition: `256 * index < size`.
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
            tiles[full] = TileLog.hashes(in: bytes)
        }
        return TileLog.hash(of: Subtree(level: rest, index: (first % 256) >> UInt64(rest)), over: tiles[full]!)
    }
}

/// The tree under a signed checkpoint, read from the log's tiles. Each tile is verified against the root before it is used.
///
/// The tiles at the right edge determine the root. Every other tile's hash is in the tile above it. One full tile of each level stays in
/// memory, so sequential access reads each tile once.
public struct SignedTree {
    public let head: Checkpoint
    private let reader: LogReader
    /// By level, the hashes that don't fill a tile yet.
    private let edge: [[Digest]]
    private var recent: [Int: (index: UInt64, hashes: [Digest])] = [:]

    /// - Throws: `.tree` if the tiles don't lead to the checkpoint's root.
    public init(_ source: any LogSource, head: Checkpoint) async throws(VerificationFailure) {
        let reader = LogReader(source)
        var edge: [[Digest]] = []
        for level in 0..<8 where head.size >> UInt64(8 * level) > 0 {
            let width = TilePath.partialWidth(level: level, size: head.size)
            let path = TilePath.hashes(level: level, index: head.size >> UInt64(8 * level + 8))
            edge.append(width == 0 ? [] : TileLog.hashes(in: try await reader.tile(path, width: width)))
        }
        guard TileLog.root(of: edge) == head.root else {
            throw VerificationFailure(
                .tree, "signs a root that differs from the root of the last tiles", file: TilePath.checkpoint)
        }
        (self.head, self.reader, self.edge) = (head, reader, edge)
    }

    /// The number of bundles of entries.
    public var bundles: UInt64 { head.size / 256 + (head.size % 256 == 0 ? 0 : 1) }

    /// Returns the entries of the bundle `index`, which starts at the entry `256 * index`.
    /// - Precondition: `index < bundles`.
    mutating func entries(bundle index: UInt64) async throws(VerificationFailure) -> [[UInt8]] {
        let leaves = try await tile(level: 0, index: index)
        let full = TilePath.entries(index: index)
        let path = TilePath.path(full, width: leaves.count)
        let (bytes, isLonger) = try await reader.bundle(full, width: leaves.count)
        var bundle = EntryBundle(bytes)
        var entries: [[UInt8]] = []
        for (offset, leaf) in leaves.enumerated() {
            let number = index * 256 + UInt64(offset)
            guard let range = bundle.next() else {
                throw VerificationFailure(.damaged, "ends before this entry does", index: number, file: path)
            }
            guard Digest.leaf(bytes.span.extracting(range)) == leaf else {
                throw VerificationFailure(.tree, "doesn't match its hash in the tile", index: number, file: path)
            }
            entries.append(Array(bytes[range]))
        }
        guard bundle.isAtEnd || isLonger else {
            throw VerificationFailure(.damaged, "has bytes after its last entry", file: path)
        }
        return entries
    }

    /// Returns the entries of a bundle as text.
    /// - Throws: `.entry` if one isn't canonical.
    public mutating func canonicalEntries(bundle index: UInt64) async throws(VerificationFailure) -> [String] {
        var texts: [String] = []
        for (offset, bytes) in try await entries(bundle: index).enumerated() {
            do { _ = try EntryFields(bytes.span) } catch {
                throw VerificationFailure(.entry, "is not a valid entry: \(error)", index: index * 256 + UInt64(offset))
            }
            texts.append(String(decoding: bytes, as: UTF8.self))
        }
        return texts
    }

    private mutating func tile(level: Int, index: UInt64) async throws(VerificationFailure) -> [Digest] {
        if index == head.size >> UInt64(8 * level + 8) { return edge[level] }
        if let tile = recent[level], tile.index == index { return tile.hashes }
        let path = TilePath.hashes(level: level, index: index)
        let hashes = TileLog.hashes(in: try await reader.tile(path, width: TilePath.fullWidth))
        let above = try await tile(level: level + 1, index: index / 256)
        guard TileLog.hash(of: Subtree(level: 8, index: 0), over: hashes) == above[Int(index % 256)] else {
            throw VerificationFailure(.tree, "doesn't match the signed root", file: path)
        }
        recent[level] = (index, hashes)
        return hashes
    }
}

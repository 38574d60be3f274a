import Vocabulary

/// The tree under a signed head, read from the log's tiles. Each tile is held against the root before anything in it is used.
///
/// The tiles at the right edge together give the root; every other tile's hash stands in the tile above it. Of each level one full tile
/// stays in memory, so that reading on in one direction reads each of them once.
public struct SignedTree {
    public let head: Checkpoint
    private let reader: LogReader
    /// By level, the hashes that fill no tile yet.
    private let edge: [[Digest]]
    private var recent: [Int: (index: UInt64, hashes: [Digest])] = [:]

    /// - Throws: `tree` when the source's tiles do not give the head's root.
    public init(_ source: any LogSource, head: Checkpoint) async throws(VerificationFailure) {
        let reader = LogReader(source)
        var edge: [[Digest]] = []
        for level in 0..<8 where head.size >> UInt64(8 * level) > 0 {
            let width = TilePath.partialWidth(level: level, size: head.size)
            let path = TilePath.hashes(level: level, index: head.size >> UInt64(8 * level + 8))
            edge.append(width == 0 ? [] : Self.hashes(in: try await reader.tile(path, width: width)))
        }
        guard TileLog.root(of: edge) == head.root else {
            throw VerificationFailure(
                .tree, "signs a root that differs from the root of the last tiles", file: TilePath.checkpoint)
        }
        (self.head, self.reader, self.edge) = (head, reader, edge)
    }

    /// How many bundles of entries there are.
    public var bundles: UInt64 { head.size / 256 + (head.size % 256 == 0 ? 0 : 1) }

    /// The bytes of a bundle's entries, those from `256 * index` on.
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

    /// The same as text, each of which is an entry in its one spelling.
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
        let hashes = Self.hashes(in: try await reader.tile(path, width: TilePath.fullWidth))
        let above = try await tile(level: level + 1, index: index / 256)
        guard TileLog.hash(of: Subtree(level: 8, index: 0), over: hashes) == above[Int(index % 256)] else {
            throw VerificationFailure(.tree, "doesn't match the signed root", file: path)
        }
        recent[level] = (index, hashes)
        return hashes
    }

    private static func hashes(in tile: [UInt8]) -> [Digest] {
        (0..<tile.count / Digest.count).map { Digest(tile.span, at: $0 * Digest.count) }
    }
}

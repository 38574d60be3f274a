public import Vocabulary

/// The state of a growing log: its size, and the hashes and entries that don't fill a tile yet. It plans files but writes none.
///
/// A plan depends only on the state and the entries. Planning a batch again after a crash returns the same files.
public struct TileLog: Sendable, Hashable {
    public private(set) var size: UInt64 = 0
    /// By level, fewer than 256 hashes each.
    private var levels: [[Digest]] = []
    /// The entries of level 0's hashes, in the format of their bundle file.
    private var bundle: [UInt8] = []

    public init() {}

    public var root: Digest { Self.root(of: levels) }

    /// Returns the root over the hashes of each level that don't fill a tile yet.
    static func root(of levels: [[Digest]]) -> Digest {
        var root: Digest?
        for hashes in levels {
            let peaks = Subtree.covering(0..<UInt64(hashes.count)).map { hash(of: $0, over: hashes) }
            root = TreeEdge.fold(peaks + (root.map { [$0] } ?? []))
        }
        return root ?? .emptyRoot
    }

    /// Plans the files that add `entries`, each at most 65,535 bytes long. The plan has the new state in `log`.
    public func append(_ entries: [[UInt8]]) -> PublicationPlan {
        var log = self
        var files: [LogFile] = []
        for entry in entries {
            EntryBundle.append(entry, to: &log.bundle)
            log.append(.leaf(entry.span), level: 0, &files)
            log.size += 1
        }
        log.appendPartials(since: size, &files)
        return PublicationPlan(oldSize: size, newSize: log.size, root: log.root, files: files, log: log)
    }

    /// The files that hold the state of a log of `size` entries.
    public static func statePaths(size: UInt64) -> [String] {
        var paths: [String] = []
        for level in 0..<8 {
            let width = TilePath.partialWidth(level: level, size: size)
            guard width > 0 else { continue }
            paths.append(Self.statePath(level: level, size: size, width))
            if level == 0 { paths.append(TilePath.path(TilePath.entries(index: size >> 8), width: width)) }
        }
        return paths
    }

    public enum RestoreFailure: Error, Sendable, Equatable {
        case missing(path: String)
        /// Doesn't match its hashes, or has the wrong length.
        case damaged(path: String)
    }

    /// Restores the state of a log of `size` entries from the files of `statePaths`. The caller must compare `root` with the checkpoint's.
    public init(size: UInt64, files: [String: [UInt8]]) throws(RestoreFailure) {
        self.size = size
        for level in 0..<8 where size >> UInt64(8 * level) > 0 {
            let width = TilePath.partialWidth(level: level, size: size)
            levels.append([])
            guard width > 0 else { continue }
            let path = Self.statePath(level: level, size: size, width)
            guard let tile = files[path] else { throw .missing(path: path) }
            guard tile.count == width * Digest.count else { throw .damaged(path: path) }
            levels[level] = Self.hashes(in: tile)
        }
        guard let leaves = levels.first, !leaves.isEmpty else { return }
        let path = TilePath.path(TilePath.entries(index: size >> 8), width: leaves.count)
        guard let bytes = files[path] else { throw .missing(path: path) }
        var entries = EntryBundle(bytes)
        for leaf in leaves {
            guard let range = entries.next(), Digest.leaf(bytes.span.extracting(range)) == leaf else {
                throw .damaged(path: path)
            }
        }
        guard entries.isAtEnd else { throw .damaged(path: path) }
        bundle = bytes
    }

    private mutating func append(_ hash: Digest, level: Int, _ files: inout [LogFile]) {
        if level == levels.count {
            levels.append([])
            levels[level].reserveCapacity(TilePath.fullWidth)
        }
        levels[level].append(hash)
        guard levels[level].count == TilePath.fullWidth else { return }
        let index = size >> UInt64(8 * level + 8)
        files.append(LogFile(path: TilePath.hashes(level: level, index: index), bytes: Self.tile(levels[level])))
        if level == 0 {
            files.append(LogFile(path: TilePath.entries(index: index), bytes: bundle))
            bundle.removeAll(keepingCapacity: true)
        }
        let above = Self.hash(of: Subtree(level: 8, index: 0), over: levels[level])
        levels[level].removeAll(keepingCapacity: true)
        append(above, level: level + 1, &files)
    }

    /// Appends the partial tiles and bundle of the new size. Those of the old size exist already.
    private func appendPartials(since old: UInt64, _ files: inout [LogFile]) {
        for (level, hashes) in levels.enumerated() where !hashes.isEmpty {
            guard old >> UInt64(8 * level) != size >> UInt64(8 * level) else { continue }
            files.append(LogFile(path: Self.statePath(level: level, size: size, hashes.count), bytes: Self.tile(hashes)))
            guard level == 0 else { continue }
            let path = TilePath.path(TilePath.entries(index: size >> 8), width: hashes.count)
            files.append(LogFile(path: path, bytes: bundle))
        }
    }

    private static func statePath(level: Int, size: UInt64, _ width: Int) -> String {
        TilePath.path(TilePath.hashes(level: level, index: size >> UInt64(8 * level + 8)), width: width)
    }

    private static func tile(_ hashes: [Digest]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(hashes.count * Digest.count)
        for hash in hashes { bytes.append(hash) }
        return bytes
    }

    static func hashes(in tile: [UInt8]) -> [Digest] {
        (0..<tile.count / Digest.count).map { Digest(tile.span, at: $0 * Digest.count) }
    }

    /// Returns the root of a subtree of the tree with the leaves `hashes`.
    static func hash(of subtree: Subtree, over hashes: [Digest]) -> Digest {
        let start = Int(subtree.index) << subtree.level
        var row = Array(hashes[start..<start + 1 << subtree.level])
        while row.count > 1 {
            for pair in 0..<row.count / 2 { row[pair] = .node(row[2 * pair], row[2 * pair + 1]) }
            row.removeLast(row.count / 2)
        }
        return row[0]
    }
}

/// A file of the log: its path below the log's folder, and its bytes, which never change.
public struct LogFile: Sendable, Hashable {
    public var path: String
    public var bytes: [UInt8]

    public init(path: String, bytes: [UInt8]) { (self.path, self.bytes) = (path, bytes) }
}

/// The files of one publication. All must be written before the checkpoint of `newSize` and `root` is shown.
public struct PublicationPlan: Sendable {
    public let oldSize: UInt64
    public let newSize: UInt64
    public let root: Digest
    /// Tiles and bundles, full and partial.
    public let files: [LogFile]
    /// The log after the publication.
    public let log: TileLog
}

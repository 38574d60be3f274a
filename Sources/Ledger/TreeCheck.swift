import Vocabulary

/// Grows the tree again from its leaves, and gives out what each hash tile above level 0 must hold.
struct TreeCheck {
    struct ExpectedTile {
        var level: Int
        var index: UInt64
        var hashes: [Digest]
    }

    /// A head from earlier that the tree must have had.
    struct Older {
        var name: String
        var size: UInt64
        var root: Digest
    }

    private(set) var size: UInt64 = 0
    /// All full tiles of level 0, and the tile that is being filled: each hash is made once.
    private var edge = TreeEdge()
    private var tile = TreeEdge()
    /// Above level 0, the hashes of the tile being filled; `levels[0]` is level 1.
    private var levels: [[Digest]] = []
    private var full: [ExpectedTile] = []
    private var older: [Older]

    init(older: [Older]) { self.older = older.sorted { $0.size > $1.size } }

    var root: Digest { edge.root(with: tile) }

    mutating func append(_ leaf: Digest) throws(VerificationFailure) {
        tile.append(leaf: leaf)
        size += 1
        if tile.size == 256 {
            let hash = tile.root
            edge.append(subtree: hash, level: 8)
            tile = TreeEdge()
            append(hash, level: 1)
        }
        try compareOlder()
    }

    /// Compares the present root with the older heads of the same size.
    mutating func compareOlder() throws(VerificationFailure) {
        while let head = older.last, head.size == size {
            guard head.root == root else {
                throw VerificationFailure(
                    .rewritten, "the first \(size) entries don't match this checkpoint: history was rewritten",
                    file: head.name)
            }
            older.removeLast()
        }
    }

    /// True if every older head that is not compared yet has at least this size.
    var isBeforeOlder: Bool { older.last.map { $0.size >= size } ?? true }

    /// The tiles above level 0 that have become full since the last call.
    mutating func takeFull() -> [ExpectedTile] {
        defer { full.removeAll() }
        return full
    }

    /// The partial tiles above level 0.
    var partial: [ExpectedTile] {
        levels.enumerated().filter { !$1.isEmpty }.map { below, hashes in
            ExpectedTile(level: below + 1, index: size >> UInt64(8 * below + 16), hashes: hashes)
        }
    }

    private mutating func append(_ hash: Digest, level: Int) {
        if levels.count < level { levels.append([]) }
        levels[level - 1].append(hash)
        guard levels[level - 1].count == TilePath.fullWidth else { return }
        let hashes = levels[level - 1]
        levels[level - 1].removeAll(keepingCapacity: true)
        full.append(ExpectedTile(level: level, index: (size - 1) >> UInt64(8 * level + 8), hashes: hashes))
        append(TileLog.hash(of: Subtree(level: 8, index: 0), over: hashes), level: level + 1)
    }

    /// Writes or reads everything that the next leaf changes.
    /// - Precondition: the size is a multiple of a tile's width.
    mutating func code(_ coder: inout StateCoder) {
        coder.code(&size)
        edge.code(&coder)
        coder.code(&levels, empty: []) { $1.code(&$0) }
        if size % UInt64(TilePath.fullWidth) != 0 || edge.size != size { coder.isDamaged = true }
    }
}

import Policy
import Sodium
import Vocabulary

/// A verification in progress: the tree of the entries and the check of their totals.
struct VerifierRun {
    var tree: TreeCheck
    private var life: Conservation
    private let unique: Uniqueness?
    /// The rules of each policy that the log has named, or why its file is unusable.
    var policies: [Digest: Result<PublishedRules, VerificationFailure>] = [:]

    init(older: [TreeCheck.Older], allowsGaps: Bool, unique: Uniqueness?) {
        (tree, life, self.unique) = (TreeCheck(older: older), Conservation(allowsGaps: allowsGaps), unique)
    }

    /// Checks entries against the hashes of their tile until the tile ends or a policy is missing in `policies`.
    /// - Returns: the missing policy. Nil if the whole tile is done.
    mutating func check(
        _ bundle: inout EntryBundle, _ bytes: [UInt8], tile: [UInt8], _ path: String
    ) throws(VerificationFailure) -> Digest? {
        let start = tree.size % UInt64(TilePath.fullWidth)
        for offset in stride(from: Int(start) * Digest.count, to: tile.count, by: Digest.count) {
            let index = tree.size
            guard let range = bundle.next() else {
                throw VerificationFailure(.damaged, "ends before this entry does", index: index, file: path)
            }
            let entry = bytes.span.extracting(range)
            let leaf = Digest.leaf(entry)
            guard leaf == Digest(tile.span, at: offset) else {
                throw VerificationFailure(.tree, "doesn't match its hash in the tile", index: index, file: path)
            }
            try life.checkOpen(index)
            let fields = try fields(of: entry, index)
            let policy = fields.policy.isEmpty ? nil : Digest(hex: entry.extracting(fields.policy))
            if let policy, policies[policy] == nil {
                bundle.goBack(to: range)
                return policy
            }
            try life.place(fields, index)
            try life.apply(
                fields, entry, try policy.map { policy throws(VerificationFailure) in try rules(policy, fields.op) }, index)
            try unique?.add(fields)
            try tree.append(leaf)
        }
        return nil
    }

    private func rules(_ policy: Digest, _ op: OpName) throws(VerificationFailure) -> PublishedRules {
        let rules = try policies[policy]!.get()
        guard op != .brokerStarted || rules.timing != nil else { throw Self.damaged(policy) }
        return rules
    }

    static func damaged(_ policy: Digest) -> VerificationFailure {
        VerificationFailure(.damaged, "is not a readable policy", file: TilePath.policy(policy))
    }

    private func fields(of entry: Span<UInt8>, _ index: UInt64) throws(VerificationFailure) -> EntryFields {
        do {
            return try EntryFields(entry)
        } catch { throw VerificationFailure(.entry, "is not a valid entry: \(error)", index: index) }
    }

    mutating func finish() throws(VerificationFailure) -> Report {
        var report = try life.finish()
        if let unique {
            try unique.check()
            report.isUnique = true
        }
        return report
    }
}

extension VerifierRun {
    private static let stateHeader = Array("mayfly verifier state v2\n".utf8)

    /// Returns the state from which `resume` continues.
    /// - Precondition: the size is a multiple of the tile width.
    func state(of key: VerifierKey) -> [UInt8] {
        var (copy, coder) = (self, StateCoder())
        copy.code(&coder)
        let bytes = Self.header(key, life.allowsGaps) + coder.bytes
        return bytes + SHA256.hash(bytes.span)
    }

    /// Continues from a saved state of up to `size` entries.
    /// - Returns: false if the state is damaged, of another log or made under another `allowsGaps`. Nothing is changed then.
    mutating func resume(_ state: [UInt8], of key: VerifierKey, upTo size: UInt64) -> Bool {
        let header = Self.header(key, life.allowsGaps)
        let (body, digest) = (Array(state.dropLast(Digest.count)), Array(state.suffix(Digest.count)))
        guard body.starts(with: header), SHA256.hash(body.span) == digest else { return false }
        var (copy, coder) = (self, StateCoder(reading: Array(body.dropFirst(header.count))))
        copy.code(&coder)
        guard !coder.isDamaged, coder.isAtEnd, copy.tree.size <= size, copy.tree.isBeforeOlder else { return false }
        self = copy
        return true
    }

    private mutating func code(_ coder: inout StateCoder) {
        tree.code(&coder)
        life.code(&coder)
    }

    private static func header(_ key: VerifierKey, _ allowsGaps: Bool) -> [UInt8] {
        stateHeader + Array("\(key)\n\(allowsGaps ? "gaps allowed" : "")\n".utf8)
    }
}

/// Rebuilds the tree from its leaves and computes the expected tiles above level 0.
struct TreeCheck {
    struct ExpectedTile {
        var level: Int
        var index: UInt64
        var hashes: [Digest]
    }

    /// An older checkpoint that the log must continue.
    struct Older {
        var name: String
        var size: UInt64
        var root: Digest
    }

    private(set) var size: UInt64 = 0
    /// The full tiles of level 0, and the tile being filled. Together they compute each hash only once.
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

    /// Compares the current root with the older checkpoints of the same size.
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

    /// True if no older checkpoint that still has to be compared is smaller than the tree.
    var isBeforeOlder: Bool { older.last.map { $0.size >= size } ?? true }

    /// Returns the tiles above level 0 that became full since the last call.
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

    /// - Precondition: the size is a multiple of the tile width.
    mutating func code(_ coder: inout StateCoder) {
        coder.code(&size)
        edge.code(&coder)
        coder.code(&levels, empty: []) { $1.code(&$0) }
        if size % UInt64(TilePath.fullWidth) != 0 || edge.size != size { coder.isDamaged = true }
    }
}

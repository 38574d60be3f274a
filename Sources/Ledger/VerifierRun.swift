import Policy
import Sodium
import Vocabulary

/// A verification under way: the tree of the entries, and the check of their totals.
struct VerifierRun {
    private(set) var tree: TreeCheck
    private(set) var life: Conservation
    private let unique: Uniqueness?
    /// Policies that the log has named: what they allow, or what is wrong with their files.
    private var policies: [Digest: Result<PublishedRules, VerificationFailure>] = [:]

    init(older: [TreeCheck.Older], allowsGaps: Bool, unique: Uniqueness?) {
        (tree, life, self.unique) = (TreeCheck(older: older), Conservation(allowsGaps: allowsGaps), unique)
    }

    mutating func compareOlder() throws(VerificationFailure) { try tree.compareOlder() }

    mutating func takeFullTiles() -> [TreeCheck.ExpectedTile] { tree.takeFull() }

    mutating func setRules(_ rules: Result<PublishedRules, VerificationFailure>, of policy: Digest) {
        policies[policy] = rules
    }

    /// Checks entries against the hashes of their tile, until the tile ends or a policy is needed.
    /// - Returns: the policy whose rules are needed. Nil if the whole tile is done.
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

    /// The state with which `resume` continues.
    /// - Precondition: the size is a multiple of a tile's width.
    func state(of key: VerifierKey) -> [UInt8] {
        var (copy, coder) = (self, StateCoder())
        copy.code(&coder)
        let bytes = Self.header(key, life.allowsGaps) + coder.bytes
        return bytes + SHA256.hash(bytes.span)
    }

    /// Goes on from a kept state of up to `size` entries. Returns false, and changes nothing, if it is damaged, of another log or of other
    /// rules.
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

import Policy
import Sealing
import Vocabulary

@testable import Ledger

/// Follows a log at each of its publications, and waits for the entries that acknowledged operations must cause.
struct LogFollower {
    /// Entries that the log must have in the end, by id.
    struct Expectation {
        let what: String
        /// Broker time by which it must be published, unix ms.
        let due: UInt64
    }

    /// The ends of pushes by status and reason.
    private(set) var outcomes: [String: Int] = [:]
    private(set) var delivered = 0
    private(set) var opened = 0
    /// Pushes that the log has opened and not ended.
    var pending: Int { open.count }
    /// The start of the last window, unix ms.
    private(set) var lastAt: UInt64 = 0
    private(set) var size: UInt64 = 0
    /// Ids of seals and purges that are waited for.
    private(set) var expected: [EntryID: Expectation] = [:]
    /// Pushes of all logs without an outcome.
    private var open: Set<JobID> = []
    private var unfollowed = 0
    private let folder: LedgerFolder
    private var key: VerifierKey
    private var life = Conservation(allowsGaps: true)
    private var tree = TreeCheck(older: [])
    private var rules: [Digest: PublishedRules] = [:]

    init(_ folder: LedgerFolder, _ key: VerifierKey) { (self.folder, self.key) = (folder, key) }

    /// Another log begins in the same folder. What is waited for comes there.
    mutating func begin(_ key: VerifierKey) {
        self.key = key
        (size, unfollowed) = (0, 0)
        (life, tree, rules) = (Conservation(allowsGaps: true), TreeCheck(older: []), [:])
    }

    mutating func expect(_ id: EntryID, _ what: String, due: UInt64) { expected[id] = Expectation(what: what, due: due) }
    mutating func forget(_ id: EntryID) { expected[id] = nil }

    /// Returns what is not in the log although it was due before `now`.
    func missing(before now: UInt64) -> Expectation? { expected.values.first { $0.due < now } }

    /// The entries published since the last call.
    struct News: Sendable {
        var heads: [Checkpoint] = []
        var entries: [[UInt8]] = []
        let folder: LedgerFolder
        let notes: Int
    }

    /// Reads what was published since the last call.
    /// - Parameter archive: the log's folder if it was moved.
    func read(_ kept: KeptCheckpoints, in archive: LedgerFolder? = nil) async throws -> News? {
        if kept.count == unfollowed { return nil }
        let notes = kept.after(unfollowed)
        var news = News(folder: archive ?? folder, notes: notes.count)
        for note in notes {
            guard let head = SignedNote(note)?.checkpoint(signedBy: key) else {
                throw LogCheck.Fault.unverified("a foreign checkpoint")
            }
            guard head.size >= news.heads.last?.size ?? size else {
                throw LogCheck.Fault.unverified("a checkpoint of \(head.size) entries after one of more")
            }
            news.heads.append(head)
        }
        guard let last = news.heads.last, last.size > size else { return news }
        let reader = TileReader(FolderSource(news.folder.path), size: last.size)
        for bundle in size / 256...(last.size - 1) / 256 {
            news.entries += try await reader.entries(bundle: bundle).dropFirst(bundle == size / 256 ? Int(size % 256) : 0)
        }
        return news
    }

    /// Checks the log at each new checkpoint.
    mutating func take(_ news: News) throws {
        unfollowed += news.notes
        var entries = news.entries[...]
        for head in news.heads {
            while size < head.size { try add(entries.removeFirst(), news.folder) }
            guard tree.root == head.root else {
                throw LogCheck.Fault.unverifiedAt(size: size, "the root is not that of the entries")
            }
            var ended = life
            do { _ = try ended.finish() } catch { throw LogCheck.Fault.unverifiedAt(size: size, "\(error)") }
        }
    }

    private mutating func add(_ bytes: [UInt8], _ folder: LedgerFolder) throws {
        let fields: EntryFields
        do {
            fields = try EntryFields(bytes.span)
            try life.checkOpen(size)
            try life.place(fields, size)
            try life.apply(fields, bytes.span, try policy(fields, bytes, folder), size)
            try tree.append(Digest.leaf(bytes.span))
            _ = tree.takeFull()
        } catch { throw LogCheck.Fault.unverifiedAt(size: size + 1, "\(error)") }
        size += 1
        lastAt = fields.atMs
        switch fields.op {
        case .tokenSealed, .tokenPurged: expected[fields.id] = nil
        case .tokenOpened:
            opened += 1
            open.insert(fields.job)
        case .pushDelivered, .pushFailed:
            guard open.remove(fields.job) != nil else { throw LogCheck.Fault.twice("an outcome of job \(fields.job)") }
            if fields.op == .pushDelivered { delivered += 1 }
            let entry = try Entry(canonical: bytes.span)
            if case .pushFailed(_, let status, let reason) = entry.op {
                outcomes["\(status) \(reason.rawValue)", default: 0] += 1
            }
        default: break
        }
    }

    private mutating func policy(_ fields: EntryFields, _ bytes: [UInt8], _ folder: LedgerFolder) throws -> PublishedRules? {
        guard !fields.policy.isEmpty, let name = Digest(hex: bytes.span.extracting(fields.policy)) else { return nil }
        if let known = rules[name] { return known }
        let read = try folder.read(TilePath.policy(name)).flatMap { PublishedRules($0) }
        rules[name] = read
        return read
    }
}

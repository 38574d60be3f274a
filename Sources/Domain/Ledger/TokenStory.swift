public import Vocabulary

/// All entries about one token, for the holder of its ref. The log doesn't contain the ref.
public struct TokenStory: Sendable, Equatable, CustomStringConvertible {
    /// One entry about the token.
    public struct Event: Sendable, Equatable {
        public var index: UInt64
        public var entry: Entry
    }

    /// Normally one, since a renewal has a new ref. More only if the log repeats an id or a broker reused a ref.
    public private(set) var seals: [Event] = []
    /// Openings, each with its outcome if the log has it.
    public private(set) var pushes: [(opening: Event, outcome: Event?)] = []
    public private(set) var purges: [Event] = []
    /// The time of the log's last entry. Pushes of the last minutes may not be in the log yet.
    public var end: String { Timestamp.text(endMs) }
    private var endMs: UInt64 = 0
    /// The head of the searched log.
    public let head: Checkpoint

    public static func == (left: TokenStory, right: TokenStory) -> Bool {
        left.seals == right.seals && left.purges == right.purges && left.head == right.head
            && left.pushes.map(\.opening) == right.pushes.map(\.opening)
            && left.pushes.map(\.outcome) == right.pushes.map(\.outcome)
    }

    /// Reads the whole log once and verifies every tile against the signed root.
    /// - Throws: `.missing` if the log has no entry about the token.
    public static func find(
        in source: any LogSource, key: VerifierKey, ref: Ref
    ) async throws(VerificationFailure) -> TokenStory {
        let head = try await LogProof.checkpoint(of: source, key).head
        var tree = try await SignedTree(source, head: head)
        return try await find(in: &tree, ref)
    }

    static func find(in tree: inout SignedTree, _ ref: Ref) async throws(VerificationFailure) -> TokenStory {
        var search = Search(ref: ref, story: TokenStory(head: tree.head))
        for bundle in 0..<tree.bundles {
            for (offset, bytes) in try await tree.entries(bundle: bundle).enumerated() {
                let index = bundle * 256 + UInt64(offset)
                do throws(EntryError) {
                    let fields = try EntryFields(bytes.span)
                    search.story.endMs = fields.atMs
                    if search.isAbout(fields) { search.add(try Entry(canonical: bytes.span), at: index) }
                } catch { throw VerificationFailure(.entry, "is not a valid entry: \(error)", index: index) }
            }
        }
        guard search.story.entryToProve != nil else {
            throw VerificationFailure(
                .missing,
                "none of the log's \(tree.head.size) entries is about it: it waits for the next batch, belongs to another log, or never existed"
            )
        }
        return search.story
    }

    private init(head: Checkpoint) { self.head = head }

    /// The latest purge or, without one, the latest opening or seal. Outcomes don't identify a token.
    public var entryToProve: Event? { purges.last ?? pushes.last?.opening ?? seals.last }

    /// One line per event, in the order seal, pushes, purge. The log's order differs, since batches publish seals after pushes.
    public var description: String {
        var lines: [String] = []
        if seals.isEmpty { lines.append("was sealed, which waits for its batch or is in an earlier log") }
        for event in seals {
            guard case .tokenSealed(_, let untilMs) = event.entry.op else { continue }
            lines.append(
                "was sealed some time before \(event.at), to be purged by \(Timestamp.text(untilMs)) (entry \(event.index))")
        }
        for (opening, outcome) in pushes {
            guard case .tokenOpened(_, _, let template) = opening.entry.op else { continue }
            let end =
                switch outcome?.entry.op {
                case .pushDelivered(_, let status)?:
                    "the push service accepted it at \(outcome!.at) with status \(status) (entry \(outcome!.index))"
                case .pushFailed(_, let status, let reason)?:
                    "\(reason.outcome(status: status)), at \(outcome!.at) (entry \(outcome!.index))"
                default: "its outcome is not in the log yet"
                }
            lines.append("was opened at \(opening.at) for one push, \(template) (entry \(opening.index)); \(end)")
        }
        for event in purges {
            guard case .tokenPurged(_, let cause) = event.entry.op else { continue }
            let why =
                if case .expired = cause { "because it had expired" } else { cause == .policy ? "by policy" : "early (ended)" }
            lines.append("was purged before \(event.at), \(why) (entry \(event.index))")
        }
        if purges.count < max(1, seals.count) {
            lines.append("has no purge in the log yet: it lives, or its purge waits for its batch")
        }
        return lines.map { "the token \($0)" }.joined(separator: "\n")
    }
}

extension TokenStory.Event {
    fileprivate var at: String { Timestamp.text(entry.atMs) }
}

extension TokenStory {
    /// A pass over a log. Computes the token's ids for each bucket that the log has named so far.
    private struct Search {
        let ref: Ref
        var story: TokenStory
        private var sealedIDs: [UInt64: EntryID] = [:]
        private var purgedIDs: Set<EntryID> = []
        private var jobs: [JobID: Int] = [:]

        init(ref: Ref, story: TokenStory) { (self.ref, self.story) = (ref, story) }

        mutating func isAbout(_ entry: EntryFields) -> Bool {
            if entry.hasUntil, sealedIDs[entry.untilMs] == nil {
                sealedIDs[entry.untilMs] = ref.sealedID(untilMs: entry.untilMs)
                purgedIDs.insert(ref.purgeID(untilMs: entry.untilMs))
            }
            return switch entry.op {
            case .tokenSealed: sealedIDs[entry.untilMs] == entry.id
            case .tokenOpened: ref.openedID(entry.job) == entry.id
            case .pushDelivered, .pushFailed: jobs[entry.job] != nil
            case .tokenPurged: purgedIDs.contains(entry.id)
            default: false
            }
        }

        mutating func add(_ entry: Entry, at index: UInt64) {
            let event = Event(index: index, entry: entry)
            switch entry.op {
            case .tokenSealed: story.seals.append(event)
            case .tokenPurged: story.purges.append(event)
            case .tokenOpened(_, let job, _):
                jobs[job] = story.pushes.count
                story.pushes.append((event, nil))
            case .pushDelivered(let job, _), .pushFailed(let job, _, _):
                if let push = jobs.removeValue(forKey: job) { story.pushes[push].outcome = event }
            default: break
            }
        }
    }
}

extension Entry {
    /// Returns true if the entry's id belongs to the token with this ref. Outcomes don't identify a token.
    public func isAbout(_ ref: Ref) -> Bool {
        switch op {
        case .tokenSealed(let id, let untilMs): return id == ref.sealedID(untilMs: untilMs)
        case .tokenOpened(let id, let job, _): return id == ref.openedID(job)
        case .tokenPurged(let id, .expired(let untilMs)): return id == ref.purgeID(untilMs: untilMs)
        case .tokenPurged(let id, _):
            // The entry doesn't name the day. Try days of the usual length first, then shorter ones, which only test policies have.
            let second = atMs / 1_000
            for (day, longest) in [(86_400, 33 * 86_400), (3_600, 33 * 86_400), (60, 8 * 86_400), (1, 8 * 86_400)]
                as [(UInt64, UInt64)]
            {
                let first = second / day * day
                for until in stride(from: first - min(first, 2 * day), to: second + longest, by: Int(day))
                where id == ref.purgeID(untilMs: until * 1_000) {
                    return true
                }
            }
            return false
        default: return false
        }
    }
}

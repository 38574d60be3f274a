import Linux
public import Policy
public import Sealing
public import Storage
import Vocabulary

/// Finds out what the operator of a broker could disclose at this moment. It has the operator's files (database, write-ahead log, key file)
/// and tries to open everything.
///
/// Findings count the secrets that open. They never contain one.
public struct Drill {
    /// The result for one kind of data.
    public struct Finding: Sendable, Equatable {
        public enum Subject: String, Sendable, CaseIterable {
            case roomTokens = "room_tokens"
            case queuedTokens = "queued_tokens"
            case audienceTokens = "audience_tokens"
            case roomIDs = "room_ids"
            case joinCodes = "join_codes"
            case shortCodes = "short_join_codes"
            case acceptAnswers = "accept_answers"
            case members
            case pairs
            case ends = "ends_of_rooms"
            case knocks = "last_knocks"
            case addresses
            case users
            case approvals
            case names = "activity_names"
            case sessions
            case seen = "named_events"
            case entries = "waiting_entries"
            case sockets = "open_sockets"
            case room
            case creatorToken = "creator_token"
            case joinerToken = "joiner_token"
            case refs
            case devices
            case activities = "live_activities"
            case phones
            case monitors = "printer_devices"
            case run
        }

        public let subject: Subject
        /// How many there are. Nil if the files don't show it.
        public let held: Int?
        /// How many of them can be disclosed in the clear.
        public let opens: Int
        /// The reason for this number, in one line.
        public let because: String
        /// When the data can no longer be opened if a broker runs, unix ms.
        public let until: UInt64?

        public init(_ subject: Subject, held: Int?, opens: Int, _ because: String, until: UInt64? = nil) {
            self.subject = subject
            self.held = held
            self.opens = opens
            self.because = because
            self.until = until
        }
    }

    let keys: KeyRing
    let store: StoreSnapshot
    private let limits: Limits
    let now: UInt64
    private let shortageBox = ShortageBox()

    private final class ShortageBox { var shortage: SlotShortage? }

    /// The shortage that prevented an attempt. If it is set, the findings prove nothing.
    public var shortage: SlotShortage? { shortageBox.shortage }

    /// Returns nil if it does not open, or if it could not be tried.
    func attempt<Value>(_ open: () throws -> Value) -> Value? {
        do { return try open() } catch {
            switch error {
            case let shortage as SlotShortage, SealingError.outOf(let shortage), BrokerError.overloaded(let shortage):
                shortageBox.shortage = shortage
            default: break
            }
            return nil
        }
    }

    /// - Parameter now: unix ms.
    public init(keys: KeyRing, store: StoreSnapshot, limits: Limits, now: UInt64) {
        self.keys = keys
        self.store = store
        self.limits = limits
        self.now = max(now, keys.earliestNowMs)
    }

    /// Tries all data without further knowledge.
    public func everything() throws(StoreError) -> [Finding] {
        let holdings = try store.holdings()
        let jobs = try store.read { try $0.jobs() }
        let opened = jobs.filter { open($0) != nil }
        let accounts = try accounts(holdings)
        return [
            Finding(
                .roomTokens, held: holdings.tokens, opens: 0, "each needs the id of its room",
                until: holdings.latestExpiry.map(Self.keysGone)),
            Finding(
                .queuedTokens, held: jobs.count, opens: opened.count, "open by themselves",
                until: opened.map(\.deadline).max().map(Self.keysGone)),
            accounts.tokens,
            Finding(.roomIDs, held: holdings.pendingCodes, opens: 0, "each needs its join code"),
            Finding(
                .joinCodes, held: holdings.pendingCodes + holdings.usedCodes, opens: 0, "keyed hashes: can be tried"),
            Finding(.shortCodes, held: holdings.shortCodes, opens: 0, "each can be guessed, with room and token"),
            Finding(.acceptAnswers, held: holdings.retries, opens: 0, "each needs code and client id, for 2 min"),
            Finding(.members, held: holdings.rooms + holdings.acceptedRooms, opens: 0, "hashes that need the room's id"),
            Finding(.pairs, held: holdings.pairs, opens: holdings.pairs, "each room's row names its tokens"),
            Finding(.ends, held: holdings.rooms, opens: holdings.rooms, "to the millisecond"),
            Finding(.knocks, held: holdings.knockedRooms, opens: holdings.knockedRooms, "rooms with the last one's time"),
            Finding(.addresses, held: 0, opens: 0, "never stored, never logged"),
        ] + accounts.others + [
            Finding(
                .entries, held: holdings.waitingEntries, opens: holdings.waitingEntries,
                "public soon; seals have no order or time")
        ]
    }

    /// Tries to find a token that someone names.
    public func token(_ token: DeviceName) throws(StoreError) -> [Finding] {
        let jobs = try store.read { try $0.jobs() }
        var matches: [JobRecord] = []
        for job in jobs where open(job)?.address.device == token { matches.append(job) }
        let holdings = try store.holdings()
        return [
            Finding(
                .roomTokens, held: holdings.tokens, opens: 0, "this one can't be recognised"),
            Finding(
                .queuedTokens, held: jobs.count, opens: matches.count,
                matches.isEmpty ? "none is this one" : "its row",
                until: matches.map(\.deadline).max().map(Self.keysGone)),
            try audienceToken(token, of: holdings),
        ]
    }

    /// Tries to open a room with its id.
    public func room(_ room: RoomID) throws(StoreError) -> [Finding] {
        guard let record = try store.read({ try $0.room(keys.roomIndex(room)) }) else {
            return [Finding(.room, held: 0, opens: 0, "none; one that ended looks the same")]
        }
        var (tokens, refs) = (0, 0)
        var findings = [
            Finding(
                .room, held: 1, opens: 1, record.joiner == nil ? "awaits its joiner" : "has both sides", until: record.ends)
        ]
        for (slot, subject) in [(UInt8(1), Finding.Subject.creatorToken), (2, .joinerToken)] {
            guard let name = record[slot]?.token, let token = try store.read({ try $0.token(name, expires: record.expires) })
            else {
                findings.append(Finding(subject, held: 0, opens: 0, "this side has none"))
                continue
            }
            tokens += 1
            let opened = attempt { try keys.openToken(token.sealed.span, context: token.context, room: room) }
            let ref = attempt { try keys.openRef(token.ref.span, context: token.context, room: room) }
            if ref != nil { refs += 1 }
            let opens = opened != nil
            findings.append(
                Finding(
                    subject, held: 1, opens: opens ? 1 : 0,
                    opens ? "opens with the id" : "its key is gone, or its row was edited",
                    until: opens ? Self.keysGone(token.expires) : nil))
        }
        findings.append(Finding(.refs, held: tokens, opens: refs, "each finds its token's life in the log"))
        findings.append(
            Finding(
                .members, held: record.joiner == nil ? 1 : 2, opens: 0, "client ids can be tried",
                until: Self.keysGone(record.expires)))
        let knocked = [record.creator.knocked, record.joiner?.knocked ?? 0].filter { $0 > 0 }.count
        findings.append(Finding(.knocks, held: knocked, opens: knocked, "when a side was last knocked at"))
        return findings
    }

    /// Tries to open a room with its join code.
    public func code(_ code: [UInt8]) throws(StoreError) -> [Finding] {
        let indexes =
            attempt {
                try keys.codeIndexes(code.span, nowMs: now, retentionMs: limits.codeRetentionMs)
            } ?? []
        guard let found = try store.read({ try $0.joinable(indexes, now: 0) }) else {
            return [Finding(.room, held: 0, opens: 0, "none; one that ended looks the same")]
        }
        switch found.code {
        case .pending(let pending):
            guard
                let id = attempt({
                    try keys.openPending(
                        pending.pending.span, joinID: code.span, expiryMs: pending.expires, generation: pending.generation,
                        codeIndex: pending.code)
                })
            else { return [Finding(.roomIDs, held: 1, opens: 0, "its key is gone, or its row was edited")] }
            let opened = Finding(
                .roomIDs, held: 1, opens: 1, "the code opens it", until: Self.keysGone(pending.expires))
            return [opened] + (try room(id))
        case .used(let used):
            return [
                Finding(
                    .roomIDs, held: used.retry == nil ? 0 : 1, opens: 0,
                    used.retry == nil ? "used: it opens nothing any more" : "needs the joiner's client id as well",
                    until: used.retry == nil ? nil : Self.keysGone(used.retryUntil)),
                Finding(.ends, held: 1, opens: 1, "the room's", until: used.expires),
            ]
        }
    }

    /// The log's last signed head.
    public func head() throws(StoreError) -> LogHead? { try store.logHead() }

    /// Measures how many join codes one core of this machine can try in a second.
    public func codesTriedPerSecond() -> Int {
        let start = Clock.monotonicNs
        var tries = 0
        while Clock.monotonicNs - start < 50_000_000 {
            for _ in 0..<200 {
                tries += 1
                _ = try? keys.codeIndexes(Array(String(tries).utf8).span, nowMs: now, retentionMs: 0)
            }
        }
        return Int(Double(tries) * 1e9 / Double(Clock.monotonicNs - start))
    }

    /// When data that expires at `time` can no longer be opened, unix ms. The ratchet deletes an epoch's key two epochs later.
    static func keysGone(_ time: UInt64) -> UInt64 { Epoch(Epoch(atMs: time).number + 2).startMs }

    private func open(_ job: JobRecord) -> JobContent? {
        attempt { try keys.openJob(job.sealed.span, context: job.context) }
    }
}

import Ledger
import Linux
import Policy
import Postgres
import Shares
import Vocabulary

/// A connection to PostgreSQL, used by one thread. `PostgresDatabase+*.swift` have its part of `Store`.
///
/// A write is one transaction at READ COMMITTED. Alone it takes about two round trips: locks and the first read go out together, and so do the
/// writes, the entries and COMMIT. Each further operation of a shared transaction adds at least one.
final class PostgresDatabase: StoreEngine {
    let journal: PostgresJournal
    private var connection: PostgresConnection?
    /// The host of the connection, of those in the URI.
    private var host: Int?
    /// True for a connection that only sends messages. A crash of the server may lose them, so commits needn't be durable.
    private let sendsMessages: Bool
    /// The node that the session knows as the owner of new jobs.
    private var sessionNode: String?
    private var isListening = false
    /// Distinguishes the locks of several deployments in one database.
    private(set) var salt: Int64 = 0
    /// What the answers to the statements sent since the last `receive` mean.
    private var pending: [Meaning] = []
    private var open: OpenTransaction?
    /// True while several operations share a transaction.
    private var isTogether = false
    /// True while `write` runs: then the first statement begins a transaction.
    private var isWriting = false
    /// True while this records that the node was absent.
    private var isResuming = false
    /// True while this renews the node's term. It renews even at a server that has lost commits; otherwise other nodes would end the term.
    private var isRenewing = false

    /// The server's incarnation, for this connection. Nil without tables.
    private var incarnation: String?

    /// A transaction's number, and the server's incarnation that gave it.
    private struct Identity {
        let number: String
        let incarnation: String
    }

    private enum Meaning { case nothing, clock, schedule, lock, answer }

    private struct OpenTransaction {
        let deadline: UInt64
        /// The agreed time, unix ms. See `AgreedClock`. Nil until the server has answered.
        var clock: UInt64?
        /// The last boundary at which a batch could be frozen, unix seconds.
        var boundary: UInt64 = 0
        /// No entry can get this window, or an earlier one, any more. Known while the schedule is locked.
        var closedUpTo: UInt64 = 0
        /// The largest head seen before this transaction. A smaller one means lost commits.
        let head: UInt64
        /// The advisory locks that it has asked for.
        var locks: [Int64] = []
        /// True after its first operation. Later ones only try their locks: two transactions that hold locks and wait for more
        /// could wait for each other.
        var isShared = false
        /// True while it is unknown whether the last locks were free.
        var isLocking = false
        /// True if the present operation may have changed something.
        var hasWritten = false
        let node: PostgresNode?
        let leaseTerm: UInt64?
        /// The latest lease seen before this transaction.
        let latestLease: UInt64
        /// The last committed renewal before this transaction. If the database has an earlier one, commits are lost.
        let renewal: UInt64
        /// True if the database has a smaller log, or earlier terms, than before.
        var hasLostCommits = false
        var window: UInt64?
        /// The latest window with a committed entry, unix seconds.
        var latest: UInt64 = 0
        var identity: Identity?
        var entries: UInt64 = 0
        /// A count that this transaction made.
        var backlog: Backlog?
        /// The rows that may need a new partition: their statements, and the values of their first columns.
        var inserted: [(sql: StaticString, value: Int64)] = []
        /// False if this machine's clock doesn't confirm the database's.
        var isConfirmed = true
        /// True if it may seal, open or store something new. Then both clocks must agree.
        var isAdmitted = false
        /// Why it has no window.
        var clockFault: StoreError?
        /// An error that `moment` could not throw.
        var failure: (any Error)?
    }

    /// The longest transaction, and the longest wait for one answer. The server's own limits are in `settings`.
    private static let longestTransactionMs: UInt64 = 30_000
    var transactionMs = longestTransactionMs
    private static let longestAnswerMs: UInt64 = 10_000
    private static let longestConnectMs: UInt64 = 3_000
    private static let options = [
        ("application_name", "mayfly"), ("target_session_attrs", "read-write"), ("connect_timeout", "3"),
        ("tcp_user_timeout", "10000"),
        ("keepalives_idle", "10"), ("keepalives_interval", "5"), ("keepalives_count", "3"), ("client_encoding", "UTF8"),
    ]
    private static let settings: [StaticString] = [
        "SET statement_timeout = 9000", "SET lock_timeout = 8000", "SET idle_in_transaction_session_timeout = 10000",
        "SET default_transaction_isolation = 'read committed'", "SET jit = off",
        // Live pages are in memory, so reads are cheap. With the default costs the server would plan each execution anew, which takes five times as
        // long as the statement. It still does so for statements on many partitions.
        "SET random_page_cost = 0.1", "SET seq_page_cost = 0.1",
    ]

    init(_ journal: PostgresJournal, sendsMessages: Bool = false) {
        (self.journal, self.sendsMessages) = (journal, sendsMessages)
    }

    var state: any LedgerState { journal }
    var timing: LedgerTiming { journal.timing }

    // MARK: The connection

    /// Connects unless this is connected.
    func connect() throws {
        // If another thread has left this host, reads here may be old.
        if let connection, connection.isUsable, host == nil || host == journal.primary, !connection.hasEnded() {
            return try nameSession(connection)
        }
        connection = nil
        let (made, host) = try journal.connect(Self.options, deadlineMs: Self.longestConnectMs)
        for setting in Self.settings { try made.send(setting) }
        if sendsMessages { try made.send("SET synchronous_commit = off") }
        try made.send("SELECT to_regclass('schedule')::oid::bigint")
        guard let facts = try made.receive(deadlineMs: Self.longestAnswerMs).last, facts.next() else {
            throw StoreError.unavailable("the server doesn't answer")
        }
        // Half of the locks' name is a signed integer.
        salt = facts.int(0) & 0x7fff_ffff
        incarnation = nil
        if !facts.isNull(0) {
            try made.send("INSERT INTO incarnation (one, name) VALUES (1, gen_random_uuid()) ON CONFLICT DO NOTHING")
            try made.send("SELECT name::text FROM incarnation")
            if let own = try made.receive(deadlineMs: Self.longestAnswerMs).last, own.next() { incarnation = own.text(0) }
        }
        journal.forgetStamp()
        if !facts.isNull(0) { try checkHead(made) }
        // Only now: a session without these checks must not be used.
        (connection, self.host, sessionNode, isListening) = (made, host, nil, false)
        try nameSession(made)
    }

    /// A failover always means a new connection. So no read is answered by a server that has lost commits.
    private func checkHead(_ connection: PostgresConnection) throws {
        let head = journal.head
        try connection.send("SELECT coalesce((SELECT size FROM log), 0)")
        guard let answer = try connection.receive(deadlineMs: Self.longestAnswerMs).last, answer.next() else { return }
        if answer.time(0) < head { journal.noteLoss() }
    }

    private func nameSession(_ connection: PostgresConnection) throws {
        guard let name = journal.node?.name, name != sessionNode else { return }
        try connection.send("SELECT set_config('mayfly.node', $1, false)", Parameters([.text(name)]))
        _ = try connection.receive(deadlineMs: Self.longestAnswerMs)
        sessionNode = name
    }

    func disconnect() {
        connection = nil
        pending = []
        open = nil
    }

    private func live() throws -> PostgresConnection {
        guard let connection, connection.isUsable else { throw PostgresError.lost("not connected") }
        return connection
    }

    /// Runs statements that belong to no operation, e.g. one that can't run in a transaction.
    func runAlone(_ statements: [String], deadlineMs: UInt64 = longestAnswerMs) throws {
        for sql in statements {
            try live().send(text: sql)
            pending.append(.nothing)
        }
        try receive(deadlineMs: deadlineMs)
    }

    func serverVersion() throws -> Int {
        try connect()
        return try live().serverVersion
    }

    // MARK: Messages

    private var channel: String { "mayfly_\(salt)" }

    /// - Returns: true if the session is new, so that messages may have been missed.
    func listen() throws -> Bool {
        try connect()
        if isListening { return false }
        try runAlone(["LISTEN \(channel)"])
        isListening = true
        return true
    }

    func notifications(deadlineMs: UInt64) throws -> [String] { try live().notifications(deadlineMs: deadlineMs) }

    func notify(_ payloads: [String]) throws {
        try read {
            for payload in payloads {
                try live().send("SELECT pg_notify($1, $2)", Parameters([.text(channel), .text(payload)]))
                pending.append(.nothing)
            }
            try receive()
        }
    }

    // MARK: Statements

    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws {
        try query(sql, each: [values], body)
    }

    func query(_ sql: StaticString, each lists: [[SQLValue]], _ body: (any Row) throws -> Void) throws {
        for rows in try answers(sql, lists) {
            while rows.next() { try body(rows) }
        }
    }

    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int { try answers(sql, [values])[0].changed }

    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws {
        try beginIfNeeded()
        try noteWrite()
        let isInsert = sql.description.hasPrefix("INSERT INTO ")
        if isInsert, case .int(let value)? = values.first { open?.inserted.append((sql, value)) }
        // An INSERT adds its row or fails.
        try send(sql, values, as: .nothing, expecting: isInsert ? nil : count)
    }

    private func answers(_ sql: StaticString, _ lists: [[SQLValue]]) throws -> [QueryResult] {
        if isWriting {
            try beginIfNeeded()
            // `DELETE ... RETURNING` is a query, too.
            if !sql.description.hasPrefix("SELECT ") { try noteWrite() }
        }
        for values in lists { try send(sql, values, as: .answer) }
        let results = try receive()
        guard results.count == lists.count else { throw PostgresError.lost("an answer is missing") }
        return results
    }

    private func send(
        _ sql: StaticString, _ values: [SQLValue] = [], as meaning: Meaning, expecting count: Int? = nil
    ) throws {
        if let failure = open?.failure { throw failure }
        try live().send(sql, Parameters(values), expecting: count)
        pending.append(meaning)
    }

    /// Sends everything, and notes what the answers say.
    /// - Returns: the answers to queries.
    @discardableResult
    private func receive(deadlineMs: UInt64? = nil) throws -> [QueryResult] {
        let meanings = pending
        pending = []
        var answers: [QueryResult] = []
        let results: [QueryResult]
        do {
            results = try live().receive(deadlineMs: try deadlineMs ?? remaining())
        } catch PostgresError.silent {
            if let host { journal.avoid(host) }
            throw PostgresError.silent
        }
        var areLocksFree = true
        for (result, meaning) in zip(results, meanings) {
            switch meaning {
            case .nothing: break
            case .lock: areLocksFree = areLocksFree && result.next() && result.int(0) == 0
            case .answer: answers.append(result)
            case .clock: if result.next() { open?.clock = UInt64(clamping: result.int(0)) }
            case .schedule:
                if result.next() { note(result) } else { open?.failure = StoreError.damaged("a table has lost its only row") }
            }
        }
        open?.isLocking = false
        if !areLocksFree { throw LockTaken() }
        return answers
    }

    private func note(_ schedule: QueryResult) {
        journal.note(Backlog(count: schedule.time(1), stamp: schedule.time(2)))
        guard let read = open?.clock else { return }
        noteLosses(schedule)
        let (closed, latest, boundary): (UInt64, UInt64, UInt64)
        do throws(StoreError) {
            (closed, latest, boundary) = (try schedule.logTime(0), try schedule.logTime(5), try schedule.logTime(3))
        } catch {
            open?.failure = error
            return
        }
        let comparison: AgreedClock.Comparison
        do throws(StoreError) { comparison = try journal.agreed(on: read, latest: latest) } catch {
            open?.clockFault = error
            open?.isConfirmed = false
            return
        }
        let clock = comparison.clock
        open?.clock = clock
        open?.isConfirmed = comparison.isConfirmed
        // The log's order follows from this: no entry gets a window before a committed one, whatever the clock does.
        open?.window = max(clock / 1_000 / journal.resolution * journal.resolution, latest, closed + journal.resolution)
        open?.latest = latest
        open?.boundary = boundary
        open?.identity = incarnation.map { Identity(number: schedule.text(4), incarnation: $0) }
    }

    /// A smaller log, an earlier term, or another holder of this node's lease shows that a failover has lost commits. A normal takeover never gets
    /// here: it ends this node's term, and the server refuses the statement first.
    private func noteLosses(_ schedule: QueryResult) {
        guard let transaction = open else { return }
        let (size, term, lease) = (schedule.time(6), schedule.time(7), schedule.time(8))
        var isLost = size < transaction.head || term < transaction.node?.term ?? 0 || lease < transaction.latestLease
        if let own = transaction.leaseTerm {
            isLost = isLost || lease != own || schedule.isNull(9) || schedule.text(9) != transaction.node?.name
        }
        if isLost {
            journal.noteLoss()
        } else if let node = transaction.node, term == node.term, schedule.time(10) < transaction.renewal {
            // The published log is intact, so the nodes continue.
            journal.noteSmallLoss()
        }
        journal.note(head: size)
        journal.note(lease: lease)
        open?.hasLostCommits = journal.fault == .lostCommits
    }

    private func remaining() throws -> UInt64 {
        guard let open else { return Self.longestAnswerMs }
        let now = Clock.monotonicMs
        guard now < open.deadline else {
            disconnect()
            throw PostgresError.lost("the transaction took too long")
        }
        return min(Self.longestAnswerMs, open.deadline - now)
    }

    /// Queues a statement without parameters that is used once.
    func queue(text sql: String) throws {
        try beginIfNeeded()
        try live().send(text: sql)
        pending.append(.nothing)
    }

    /// Returns the number that a statement used once answers with.
    func count(text sql: String) throws -> Int64 {
        if isWriting { try beginIfNeeded() }
        try live().send(text: sql)
        pending.append(.answer)
        guard let answer = try receive().last, answer.next() else { return 0 }
        return answer.int(0)
    }

    /// Returns a table's only row.
    func only<Value>(_ sql: StaticString, _ values: SQLValue..., read: (any Row) throws -> Value) throws -> Value {
        var found: Value?
        try query(sql, values) { found = try read($0) }
        guard let value = found else { throw StoreError.damaged("a table has lost its only row") }
        return value
    }

    // MARK: An operation

    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) throws {
        let numbers = Set(keys().map { $0.number(salt: salt) }).sorted()
        try beginIfNeeded(locking: numbers)
    }

    /// Waits for the locks, in one order for all transactions. If the transaction is shared, a lock that isn't free ends the operation.
    func lock(_ numbers: [Int64]) throws {
        if numbers.isEmpty { return }
        open?.locks += numbers
        var parameters = Parameters()
        parameters.add(numbers)
        if open?.isShared == true {
            try live().send(
                "SELECT count(*) FILTER (WHERE NOT pg_try_advisory_xact_lock(key)) FROM unnest($1::bigint[]) AS key", parameters)
            pending.append(.lock)
            open?.isLocking = true
        } else {
            try live().send("SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key", parameters)
            pending.append(.nothing)
        }
    }

    /// An operation of a shared transaction has found a lock taken.
    private struct LockTaken: Error {}

    /// Waits until it is known whether the last locks were free. Reads don't call it: they throw when their own answers arrive.
    private func settleLocks() throws { if open?.isLocking == true { try receive() } }

    /// Call it before a statement that changes something.
    private func noteWrite() throws {
        try settleLocks()
        open?.hasWritten = true
    }

    /// Waits for a lock. If the transaction has not begun, it takes this lock before its writer's lock, so that no closing waits for it.
    func lockFirst(_ key: LockKey) throws { try beginIfNeeded(after: [key.number(salt: salt)]) }

    private func beginIfNeeded(after first: [Int64] = [], locking numbers: [Int64] = []) throws {
        if open == nil {
            open = OpenTransaction(
                deadline: Clock.monotonicMs + transactionMs, head: journal.head, node: journal.node, leaseTerm: journal.leaseTerm,
                latestLease: journal.latestLease, renewal: journal.renewal)
            try send("BEGIN", as: .nothing)
            try lock(first)
            try lockAsWriter(with: numbers)
            try readSchedule()
        } else {
            try lock(first + numbers)
        }
    }

    /// Takes a writer's lock, reads the clock, and takes other locks.
    ///
    /// The writer's lock is taken before the schedule is read. `waitForWriters` waits for whoever has an older one.
    private func lockAsWriter(with numbers: [Int64]) throws {
        open?.locks += numbers
        var parameters = Parameters([.int(salt), .time(journal.stamp % Self.lockNames), databaseClock])
        parameters.add(numbers)
        try live().send(
            """
            SELECT coalesce($3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint),
            (SELECT count(pg_advisory_xact_lock(key)) FROM unnest($4::bigint[]) AS key)
            FROM (SELECT pg_advisory_xact_lock_shared($1::bigint::int, $2::bigint::int) OFFSET 0) AS locked
            """, parameters)
        pending.append(.clock)
    }

    var databaseClock: SQLValue { journal.clocks.database.map { .time($0()) } ?? .null }

    /// A writer's lock is named by the newest `stamp` that its node has read.
    private static let lockNames: UInt64 = 1 << 31

    /// Waits for all writers that may not have seen the last committed schedule. Call `countBacklog` in that commit: it names the locks.
    ///
    /// It looks at the locks and takes none: a waiting exclusive request would keep all writers out that don't know the new name.
    func waitForWriters() throws {
        let deadline = Clock.monotonicMs + Self.longestAnswerMs
        let older = try read {
            try rows(
                """
                SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = $1
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND objid::bigint <> (SELECT stamp % $2 FROM schedule)
                """, .int(salt), .time(Self.lockNames)
            ) { $0.text(0) }
        }
        if older.isEmpty { return }
        var wait: UInt64 = 1
        while try read({
            try exists(
                """
                SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = $1
                AND virtualtransaction = ANY (string_to_array($2, chr(10)))
                """, .int(salt), .text(older.joined(separator: "\n")))
        }) {
            guard Clock.monotonicMs < deadline else {
                throw StoreError.unavailable(foreignHolder() ?? "a transaction that began earlier doesn't end")
            }
            // This only sleeps.
            _ = Poll.wait(-1, .read, until: Clock.monotonicMs + wait)
            wait = min(wait * 2, 50)
        }
    }

    /// Reads the schedule. If another node has ended this node's term, a cast makes the server refuse the transaction. This client would learn it too
    /// late, because its COMMIT may be on the way already.
    private func readSchedule() throws {
        let node = journal.node
        try send(
            """
            SELECT closed_up_to, backlog, stamp, coalesce(looked, 0), pg_current_xact_id()::text,
            greatest((SELECT max(window_start) FROM entry), (SELECT max(window_start) FROM batch), log.window_start, 0),
            coalesce(log.size, 0), coalesce(member.term, 0), lease.term, lease.holder,
            coalesce(member.held_until, 0),
            CASE WHEN coalesce(member.term, 0) <= $2 THEN 0 ELSE ('the term of this node has ended ' || stamp)::bigint END
            FROM schedule JOIN lease USING (one) LEFT JOIN log USING (one) LEFT JOIN member ON member.name = $1 WHERE one = 1
            """, [node.map { .text($0.name) } ?? .null, .time(node?.term ?? 0)], as: .schedule)
    }

    /// Returns the transaction's window.
    /// - Throws: `.wrongClock` if the right time is unknown; `.lostCommits`; `Absence`, which `write` handles.
    func window() throws -> UInt64 {
        try beginIfNeeded()
        if open?.clock == nil { try receive() }
        if let failure = open?.failure { throw failure }
        if let fault = open?.clockFault { throw fault }
        guard let window = open?.window, let clock = open?.clock else { throw StoreError.unavailable("an answer is missing") }
        if open?.hasLostCommits == true { throw StoreError.lostCommits }
        try checkAbsence(clock)
        return window
    }

    private func checkAbsence(_ clock: UInt64) throws {
        if !isResuming, journal.isAbsence(until: clock) { throw Absence(clock: clock) }
    }

    /// This node had no success for a minute of agreed time. It must record that before anything else.
    private struct Absence: Error { let clock: UInt64 }

    /// Returns the transaction's agreed time, unix ms, or that of the log's latest window or of the last processed boundary if that is later. A token
    /// that expires earlier belongs to a bucket that may be closed. Outside of transactions it returns broker time.
    var moment: UInt64 {
        guard open != nil else { return journal.now() }
        do {
            _ = try window()
            return max(clock, (open?.latest ?? 0) * 1_000, (open?.boundary ?? 0) * 1_000)
        } catch {
            open?.failure = error
            return journal.now()
        }
    }

    /// The transaction's agreed time, unix ms. 0 until the server has answered.
    var clock: UInt64 { open?.clock ?? 0 }

    /// Known while the schedule is locked.
    var closedUpTo: UInt64 {
        get { open?.closedUpTo ?? 0 }
        set { open?.closedUpTo = newValue }
    }

    func admit(_ urgency: Urgency) throws(StoreError) {
        if journal.isFull(urgency) { throw .ledgerBehind }
        open?.isAdmitted = true
    }

    /// Call it with a count that this transaction made. Others learn of it when it is durable.
    func noteBacklog(_ backlog: Backlog) { open?.backlog = backlog }

    /// Counts an entry towards the limit of those that wait for publication.
    func countEntry() { open?.entries += 1 }

    // MARK: Transactions

    /// Runs operations in one transaction until it is durable. Each may run several times.
    ///
    /// - Returns: the outcomes of the first operations. If some are missing, the next operation found a lock taken: run it and those after it again.
    /// - Throws: `LockTimeout`. A `PostgresError` that is no refusal: all have failed. After any other error nothing is kept, and they must run one
    ///   by one.
    func write<Value>(together operations: [(PostgresDatabase) throws -> Value]) throws -> [Result<Value, any Error>] {
        isTogether = true
        defer { isTogether = false }
        return try write {
            var outcomes: [Result<Value, any Error>] = []
            for operation in operations {
                open?.isShared = !outcomes.isEmpty
                open?.hasWritten = false
                do {
                    let value = try operation(self)
                    try settleLocks()
                    outcomes.append(.success(value))
                } catch let error as LockTaken {
                    if open?.hasWritten == true { throw error }
                    break
                } catch let error as StoreError where open?.hasWritten != true && open?.failure == nil {
                    // It has refused itself, and the others go on.
                    do { try settleLocks() } catch is LockTaken {}
                    outcomes.append(.failure(error))
                }
            }
            return outcomes
        }
    }

    /// The first operation of a shared transaction has waited for a lock in vain. Nothing is kept of the transaction.
    struct LockTimeout: Error {
        /// Says that no broker's session holds the lock. Nil if it may soon be free.
        let failure: StoreError?
    }

    /// Runs a transaction until it is durable. `body` may run several times. Nothing is kept of a run that failed, except after `.unknownCommit`.
    func write<Value>(isSignOfLife: Bool, _ body: () throws -> Value) throws -> Value {
        var triesLeft = Self.mostTries
        while true {
            triesLeft -= 1
            do {
                if let value = try attempt(isSignOfLife: isSignOfLife, body) { return value }
                // It has made a partition, so it can't fail like this forever.
                triesLeft += 1
            } catch let absence as Absence {
                rollBack()
                guard triesLeft > 0 else { throw StoreError.unavailable("this node's absence could not be recorded") }
                try recordAbsence(until: absence.clock)
            } catch {
                let known = error as? PostgresError
                let locks = open?.locks ?? []
                // All partitions exist. The server's process has missed one that was attached while it looked for the first time, and won't look
                // again. A new session does.
                let isStale = known?.isOutOfRange == true && triesLeft < Self.mostTries - 1
                if known?.endsSession == true || isStale { disconnect() } else { rollBack() }
                if known?.isLockTimeout == true {
                    let failure = foreignHolder(of: locks).map { StoreError.unavailable($0) }
                    if isTogether { throw LockTimeout(failure: failure) }
                    // A broker's session releases it soon, so retry then.
                    if let failure { throw failure }
                }
                // Another connection may have made the missing partition.
                let isTransient = known?.endsSession == true || known?.isConflict == true || known?.isOutOfRange == true
                // An operation that the server refuses must not make the others run again and again.
                guard isTransient || known?.isWrongCount == true, triesLeft > 0, !isTogether || known?.isRefusal == false else {
                    throw error
                }
            }
        }
    }

    private static let mostTries = 4

    func renewing<Value>(_ body: () throws -> Value) throws -> Value {
        isRenewing = true
        defer { isRenewing = false }
        return try write(isSignOfLife: false, body)
    }

    /// Records that this node was absent. Other connections wait meanwhile, so that no entry precedes it.
    func recordAbsence(until clock: UInt64) throws {
        try journal.resume(at: clock) {
            isResuming = true
            defer { isResuming = false }
            try write { try record(journal.resumption, []) }
        }
    }

    /// - Returns: nil if partitions were missing and this has made one.
    private func attempt<Value>(isSignOfLife: Bool, _ body: () throws -> Value) throws -> Value? {
        try connect()
        isWriting = true
        defer { isWriting = false }
        do {
            let value = try body()
            let clock = open?.clock
            if isSignOfLife, let clock { try checkAbsence(clock) }
            try commit()
            if isSignOfLife, let clock { journal.noteAlive(at: clock, isResuming: isResuming) }
            return value
        } catch let error as PostgresError where error.isOutOfRange {
            let inserted = open?.inserted ?? []
            rollBack()
            isWriting = false
            guard try makePartitions(for: inserted) else { throw error }
            return nil
        }
    }

    private func commit() throws {
        guard let open else { return }
        if let failure = open.failure { throw failure }
        // Without an answer so far, the schedule is only read with the commit.
        let hasLostCommits = open.clock == nil ? journal.fault == .lostCommits : open.hasLostCommits
        if hasLostCommits, !isRenewing { throw StoreError.lostCommits }
        // Purges and outcomes never wait: they get the last agreed time.
        if open.isAdmitted, !open.isConfirmed { throw StoreError.wrongClock }
        try send("COMMIT", as: .nothing)
        do {
            try receive()
        } catch let error as PostgresError where error.endsSession {
            isWriting = false
            guard try isCommitted(open.identity) else { throw error }
        }
        journal.noteRecorded(open.entries)
        if let backlog = open.backlog { journal.note(backlog) }
        self.open = nil
    }

    private func rollBack() {
        pending = []
        guard open != nil else { return }
        open = nil
        guard let connection, connection.isUsable else { return disconnect() }
        do {
            try connection.send("ROLLBACK")
            _ = try connection.receive(deadlineMs: Self.longestAnswerMs)
        } catch { disconnect() }
    }

    /// Asks the server about a transaction whose COMMIT was sent and not answered.
    /// - Throws: `.unknownCommit` if the server can't know: after a crash or a failover it gives the number to another transaction.
    private func isCommitted(_ identity: Identity?) throws -> Bool {
        disconnect()
        let deadline = Clock.monotonicMs + Self.longestAnswerMs
        while let identity, Clock.monotonicMs < deadline {
            do {
                try connect()
                let isSame = try exists("SELECT 1 FROM incarnation WHERE name::text = $1", .text(identity.incarnation))
                guard isSame else { break }
                switch try first("SELECT pg_xact_status($1::text::xid8)", .text(identity.number), read: { $0.text(0) }) {
                case "committed":
                    // It may not have reached the standby server yet. This write waits for it.
                    try live().send("SELECT pg_logical_emit_message(true, 'mayfly', '')")
                    _ = try live().receive(deadlineMs: Self.longestAnswerMs)
                    return true
                case "aborted": return false
                default: break
                }
            } catch {
                // Whatever fails here, the commit may be durable.
                disconnect()
            }
            // This only sleeps.
            _ = Poll.wait(-1, .read, until: Clock.monotonicMs + 100)
        }
        journal.noteUnknownCommit()
        throw PostgresError.unknownCommit
    }

    /// Reads outside of a transaction. Connects again once if the connection was lost.
    func read<Value>(_ body: () throws -> Value) throws -> Value {
        for isLast in [false, true] {
            do {
                try connect()
                return try body()
            } catch let error as PostgresError where error.endsSession && !isLast {
                disconnect()
            } catch {
                pending = []
                throw error
            }
        }
        throw StoreError.unavailable("the server doesn't answer")
    }
}

extension QueryResult: Row {}

extension Parameters {
    fileprivate init(_ values: [SQLValue]) {
        self.init()
        for value in values {
            switch value {
            case .int(let value): add(value)
            case .blob(let value): add(value.span)
            case .id(let value): value.withBytes { add($0) }
            case .digest(let value): value.withBytes { add($0) }
            case .text(let value): add(value)
            case .null: addNull()
            }
        }
    }
}

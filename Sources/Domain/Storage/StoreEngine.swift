import Ledger
import Policy
import Shares
import Vocabulary

/// The ledger's state in memory. A store's threads share it.
protocol LedgerState: AnyObject, Sendable {
    /// True from a broker's start to its stop. Only then batches are frozen.
    var hasStarted: Bool { get set }
    /// The number of waiting entries, without purges, at which operations are refused.
    var limit: Int { get }
    /// The waiting entries that count towards the limit. See `Books.limited`.
    var limited: Int { get }
    /// Called when a head of this size is durable. A smaller head later means lost commits.
    func note(head: UInt64)
    /// Called when a new log has begun.
    func forgetHead()
}

/// The parts that each engine has of its own. The rules in `StoreEngine+*.swift` use them and hold for both engines.
protocol StoreEngine: RowReader, Database {
    /// The timing in force.
    var timing: LedgerTiming { get }
    var state: any LedgerState { get }

    // MARK: Transactions

    /// Runs a transaction until it is durable. An engine with a single writer has begun it already.
    func write<Value>(isSignOfLife: Bool, _ body: () throws -> Value) throws -> Value
    /// Reads what is durable.
    func read<Value>(_ body: () throws -> Value) throws -> Value
    /// Ends what `beginReading` began.
    func endReading()
    /// Waits for a lock before any other of this transaction.
    func lockFirst(_ key: LockKey) throws
    /// The most rooms that a transaction of a sweep may lock. Nil if no other writer can change them meanwhile.
    var mostLocked: Int? { get }

    // MARK: A sweep

    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult
    func nextExpiry(jobSlack: UInt64) throws -> UInt64?
    func counts() throws -> StoreCounts
    /// Returns the number of entries that are not known to be published. Entries of open batches don't count.
    func waitingEntries() throws -> Int
    /// Returns jobs due at `due` that no other node may still finish.
    func overdueJobs(_ due: UInt64, limit: Int) throws -> [(deadline: UInt64, job: JobID)]
    /// Purges the tokens that expired first, at most `limit`.
    /// - Returns: the expiry of each.
    func purgeTokens(expiredBy now: UInt64, limit: Int) throws -> [UInt64]
    /// Purges the registrations that expired first, at most `limit`. `deleteOthers` deletes their indexes.
    /// - Returns: the expiry of each.
    func purgeRegistrations(expiredBy now: UInt64, limit: Int) throws -> [UInt64]
    /// Deletes the rooms up to this one, in the order of expiry and key.
    /// - Returns: the code of each, if it has one.
    func deleteRooms(upTo expires: UInt64, _ room: Digest) throws -> [Digest?]

    // MARK: Windows

    /// Returns the window of an entry that is recorded now, unix seconds.
    func window() throws -> UInt64
    /// Returns the window for entries of rank 0. They restart the order within a window, so the latest window accepts them even if part of it is
    /// in the log. Otherwise each restart would move the log's time ahead of the clock.
    func startWindow() throws -> UInt64
    /// Opens a window again for the entries of the next log.
    func reopen(_ window: UInt64) throws
    /// Adds an entry to a window. Only for the other `append`, which checks and completes it.
    func append(_ op: Entry.Op, window: UInt64) throws
    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws
    /// Adds a seal, or a purge with its cause, to the batch that it belongs to.
    /// - Parameter expires: the token's expiry, unix ms.
    func addToBatch(_ id: EntryID, _ cause: PurgeCause?, expires: UInt64, isLong: Bool) throws
    /// Closes the windows before `window`.
    /// - Returns: the entries of closed windows. Nil if the caller must read them with `entries`, which doesn't block the writer.
    func close(before window: UInt64, limit: Int) throws -> [ClosedEntry]?
    /// Returns the entries of the windows before `window` and of their batches, in the log's order, at most `limit`.
    func entries(before window: UInt64, limit: Int) throws -> [ClosedEntry]

    // MARK: Batches

    /// Reads the schedule and keeps it from others until the transaction ends.
    func lockSchedule() throws -> Schedule
    func save(_ schedule: Schedule) throws
    /// Returns true if a batch may have to be frozen or completed.
    func isBatchDue() throws -> Bool
    /// Returns the boundary of the frozen batch that waits for purges, if any.
    func incompleteBatch() throws -> UInt64?
    /// Returns true if so many seals wait for the boundary.
    func hasSeals(_ count: Int, before boundary: UInt64) throws -> Bool
    /// Returns the window of a batch that is completed now.
    func batchWindow() throws -> UInt64
    /// Freezes the batch of a boundary. Later seals join the next one.
    func freeze(at boundary: UInt64, isMidnight: Bool) throws
    /// Waits for writers that may not have seen the last freeze.
    func waitForWriters() throws
    func noteComplete(_ boundary: UInt64, window: UInt64) throws
    /// Returns the entries of a batch and rank that are not in the log, sorted by id, at most `limit`.
    func waiting(_ batch: CompleteBatch, rank: UInt8, limit: Int) throws -> [ClosedEntry]

    // MARK: The folder

    /// Keeps entries that are in the log and not in the folder yet.
    func cover(_ entries: [ClosedEntry], from size: UInt64) throws
    /// Called at the end of a commit of the head.
    /// - Parameter inWindows: how many of the entries belonged to windows.
    func noteCommitted(_ entries: [ClosedEntry], inWindows: Int) throws
    /// Returns true if the folder is known to have everything under the head.
    func isFolderCurrent() throws -> Bool
    /// Returns the entries under the head that a folder of `size` entries may lack, perhaps with some before them, and the index of the first.
    func unpublished(after size: UInt64) throws -> (first: UInt64, entries: [[UInt8]])
    func published(upTo size: UInt64) throws
}

extension LedgerState {
    /// A longer time without success is an absence, milliseconds. The sweeper succeeds at least twice as often.
    static var longestSilence: UInt64 { 60_000 }

    /// Returns true if the backlog has reached the part of its limit that is open to operations of this urgency.
    func isFull(_ urgency: Urgency) -> Bool { limited * 1_000 >= limit * urgency.backlogThousandths }
}

/// Where the ledger's batches and buckets are. Times are unix seconds.
struct Schedule: Sendable, Equatable {
    /// The latest boundary that was processed. Nil before the log's first entry.
    var lastBoundary: UInt64?
    /// The window of the latest complete batch.
    var lastBatch: UInt64 = 0
    /// The end of the latest closed bucket, or the start of the log's first day. Nil before the log's first entry.
    var closedBucket: UInt64?
}

extension Schedule {
    /// - Parameter row: the three columns.
    /// - Throws: `.damaged` for a time after the year 9999.
    init(_ row: any Row) throws(StoreError) {
        lastBoundary = row.isNull(0) ? nil : try row.logTime(0)
        lastBatch = try row.logTime(1)
        closedBucket = row.isNull(2) ? nil : try row.logTime(2)
    }
}

extension StoreEngine {
    var transaction: Transaction { Transaction(self) }

    func write<Value>(_ body: () throws -> Value) throws -> Value { try write(isSignOfLife: true, body) }

    @discardableResult
    func change(_ sql: StaticString, _ values: SQLValue...) throws -> Int { try change(sql, values) }

    func queue(_ sql: StaticString, _ values: SQLValue..., expecting count: Int? = 1) throws {
        try queue(sql, expecting: count, values)
    }

    func record(_ entry: NewEntry) throws {
        switch entry {
        case .event(let op): try record([op], [])
        case .sealed(let id, let expires, let isLong): try addToBatch(id, nil, expires: expires, isLong: isLong)
        case .purged(let id, let cause, let expires, let isLong):
            let cause = expires <= moment ? .expired(untilMs: timing.untilMs(expiryMs: expires)) : cause
            try addToBatch(id, cause, expires: expires, isLong: isLong)
        }
    }

    /// Returns the latest window with an entry, in unix seconds, or 0 if there is none.
    func latestWindow() throws -> UInt64 {
        try first(
            """
            SELECT coalesce((SELECT max(window_start) FROM log), 0), coalesce((SELECT max(window_start) FROM entry), 0),
            coalesce((SELECT max(window_start) FROM batch), 0)
            """
        ) { row in max(try row.logTime(0), try row.logTime(1), try row.logTime(2)) } ?? 0
    }

    // MARK: Timing

    /// Returns the recorded timing, or nil before the log's first entry.
    /// - Throws: `.otherTiming` if it differs from `timing`.
    func recordedTiming(expecting timing: LedgerTiming?) throws -> LedgerTiming? {
        guard let recorded = try mark(timingMark).flatMap({ LedgerTiming(mark: $0) }) else { return nil }
        if let timing, timing != recorded { throw StoreError.otherTiming(recorded: recorded.text, given: timing.text) }
        return recorded
    }

    func record(_ timing: LedgerTiming) throws { try setMark(timingMark, timing.mark) }

    private var timingMark: String { "ledger_timing" }
}

extension LedgerTiming {
    /// Returns the last boundary up to a time, both in unix seconds.
    func boundary(upTo time: UInt64) -> UInt64 { time / hourSeconds * hourSeconds }

    /// Returns the boundary at which the batch of an entry from `time` ends, both in unix seconds.
    func boundary(after time: UInt64, isLong: Bool) -> UInt64 {
        let span = isLong ? daySeconds : hourSeconds
        return (time / span + 1) * span
    }

    /// Batches frozen after this count towards no limit, unix seconds.
    func hourBefore(_ time: UInt64) -> UInt64 { time - min(time, hourSeconds) }

    fileprivate var mark: [UInt8] {
        [hourSeconds, daySeconds, UInt64(batchSeals)].flatMap { [UInt8](bigEndian: $0) }
    }

    fileprivate init?(mark: [UInt8]) {
        guard mark.count == 24 else { return nil }
        let numbers = stride(from: 0, to: 24, by: 8).map { mark[$0..<$0 + 8].reduce(0) { $0 << 8 | UInt64($1) } }
        self.init(hourSeconds: numbers[0], daySeconds: numbers[1], batchSeals: Int(numbers[2]))
    }

    fileprivate var text: String { "hourSeconds \(hourSeconds), daySeconds \(daySeconds), batchSeals \(batchSeals)" }
}

extension PurgeCause {
    /// The code in a waiting entry.
    var column: Int64 {
        switch self {
        case .ended: 0
        case .expired: 1
        case .policy: 2
        }
    }

    /// - Parameter until: unix seconds.
    init?(column: Int64, until: UInt64) {
        switch column {
        case 0: self = .ended
        case 1: self = .expired(untilMs: until * 1_000)
        case 2: self = .policy
        default: return nil
        }
    }
}

import Ledger
import Policy
import Vocabulary

// Entries that wait for their window or their batch.
//
// A transaction's window is that of the database's clock, but never before a committed entry's or before one that is closed. To close windows, the
// sequencer first commits their end, then waits for all writers that may not have read it.
//
// A waiting seal or purge has its batch's boundary in place of a number: the end of its hour, or of its day for a long token. The batch frozen at
// a boundary has all rows up to it, so writers needn't know which batch is open.
extension PostgresDatabase {
    func record(_ entry: NewEntry) throws {
        switch entry {
        case .event(let op):
            countEntry()
            try append(op, window: try window())
        case .sealed(let id, let expires, let isLong):
            try insertWaiting(
                batch: boundary(after: moment, isLong: isLong), rank: 3, id: id, until: timing.untilMs(expiryMs: expires),
                cause: nil)
        case .purged(let id, let cause, let expires, let isLong):
            let (until, moment) = (timing.untilMs(expiryMs: expires), moment)
            // A late purge belongs to the batch that waits for all that expired before its boundary.
            try insertWaiting(
                batch: boundary(after: min(moment, expires), isLong: isLong), rank: 4, id: id, until: until,
                cause: expires <= moment ? .expired(untilMs: until) : cause)
        }
    }

    /// Adds a seal or a purge to a batch.
    /// - Parameter until: unix ms.
    private func insertWaiting(batch: Int64, rank: UInt8, id: EntryID, until: UInt64, cause: PurgeCause?) throws {
        try queue(
            "INSERT INTO waiting (batch, rank, id, until, cause) VALUES ($1, $2, $3, $4, $5)", .int(batch), .number(rank),
            .id(id), .time(until / 1_000), cause.map { .int($0.column) } ?? .null)
    }

    /// - Parameter time: unix milliseconds.
    private func boundary(after time: UInt64, isLong: Bool) -> Int64 {
        let span = isLong ? timing.daySeconds : timing.hourSeconds
        return Int64(clamping: (time / 1_000 / span + 1) * span)
    }

    /// Adds an entry to a window.
    func append(_ op: Entry.Op, window: UInt64) throws {
        guard op.rank != 3, op.rank != 4 else { throw StoreError.unavailable("an entry of a batch was recorded by itself") }
        let bytes = Entry(atMs: window * 1_000, op).encoded
        if op.sortKey.isEmpty {
            try queue(
                "INSERT INTO entry (window_start, rank, key, bytes) VALUES ($1, $2, int8send(nextval('entry_number')), $3)",
                .time(window), .number(op.rank), .blob(bytes))
        } else {
            try queue(
                "INSERT INTO entry (window_start, rank, key, bytes) VALUES ($1, $2, $3, $4)", .time(window), .number(op.rank),
                .blob(op.sortKey), .blob(bytes))
        }
    }

    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        var window = try window()
        if window > clockWindow, events.allSatisfy({ $0.rank == 0 }) {
            var schedule = try lockSchedule()
            window = try openAgain(&schedule)
            try save(schedule)
        }
        for event in events {
            countEntry()
            try append(filledIn(event), window: window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    func start(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        var schedule = try lockSchedule()
        let window = try openAgain(&schedule)
        try begin(&schedule, window)
        try save(schedule)
        for event in events { try append(filledIn(event), window: window) }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    /// Fills in `swept` of `keys.ratcheted`.
    private func filledIn(_ event: Entry.Op) throws -> Entry.Op {
        guard case .keysRatcheted(let epoch, _) = event else { return event }
        return .keysRatcheted(epoch: epoch, swept: try sweptEpoch(at: moment))
    }

    /// Returns the window for entries of rank 0. The latest window may get some even if part of it is in the log, since they sort first there.
    /// Otherwise each stop and start would move the log's time ahead of the clock.
    private func openAgain(_ schedule: inout Schedule) throws -> UInt64 {
        let latest = try latestWindow()
        guard clockWindow <= schedule.closedUpTo, latest <= schedule.closedUpTo else { return try nextWindow(schedule) }
        schedule.closedUpTo = max(clockWindow, latest) - journal.resolution
        return max(clockWindow, latest)
    }

    /// Notes where a log begins, at its first entry. It has no buckets of earlier days.
    private func begin(_ schedule: inout Schedule, _ window: UInt64) throws {
        guard schedule.closedBucket == nil else { return }
        schedule.closedBucket = window / timing.daySeconds * timing.daySeconds
        schedule.lastBoundary = max(schedule.lastBoundary ?? 0, window / timing.hourSeconds * timing.hourSeconds)
        try record(timing)
    }

    /// The start of the window of the database's clock.
    private var clockWindow: UInt64 { clock / 1_000 / journal.resolution * journal.resolution }

    // MARK: The schedule

    /// The ledger's state, in one row. Times are unix seconds. See `Books`.
    struct Schedule {
        var lastBoundary: UInt64?
        var lastBatch: UInt64
        var closedBucket: UInt64?
        /// No entry can get this window, or an earlier one, any more.
        var closedUpTo: UInt64
    }

    /// Reads the schedule and keeps it from others until the transaction ends.
    func lockSchedule() throws -> Schedule {
        try lockFirst(.schedule)
        _ = try window()
        return try only("SELECT looked, last_batch, closed, closed_up_to FROM schedule FOR UPDATE") {
            Schedule(lastBoundary: $0.timeOrNil(0), lastBatch: $0.time(1), closedBucket: $0.timeOrNil(2), closedUpTo: $0.time(3))
        }
    }

    func save(_ schedule: Schedule) throws {
        try queue(
            "UPDATE schedule SET looked = $1, last_batch = $2, closed = $3, closed_up_to = $4",
            schedule.lastBoundary.map { .time($0) } ?? .null, .time(schedule.lastBatch),
            schedule.closedBucket.map { .time($0) } ?? .null, .time(schedule.closedUpTo))
    }

    /// Freezes and completes batches, and closes the windows before `end` that are over or have entries.
    /// - Returns: the entries of closed windows, at most `limit`.
    func closedEntries(before end: UInt64, limit: Int) throws -> [ClosedEntry] {
        try settle()
        let last = try write(isSignOfLife: false) {
            var schedule = try lockSchedule()
            let latest = max(try latestWindow(), clockWindow - min(clockWindow, journal.resolution))
            schedule.closedUpTo = max(
                schedule.closedUpTo, min((end - min(end, 1)) / journal.resolution * journal.resolution, latest))
            try save(schedule)
            try countBacklog()
            return schedule.closedUpTo
        }
        try waitForWriters()
        return try write(isSignOfLife: false) {
            // The start of another node may have opened the last window again.
            let before = min(end, min(try lockSchedule().closedUpTo, last) + journal.resolution)
            return try closedEntries(before: before, batches: try completeBatches(before: before), limit: limit)
        }
    }

    /// Counts the entries that are not known to be published and are limited. See `Books.limited`.
    func countBacklog() throws {
        let count = try only(
            """
            UPDATE schedule SET stamp = stamp + 1, backlog = (SELECT count(*) FROM entry)
            + (SELECT coalesce(sum(limited), 0)::bigint FROM unpublished WHERE first + count > (SELECT published FROM log))
            + (SELECT count(*) FROM waiting WHERE rank = 3 AND batch <= (SELECT max(moment) FROM batch WHERE moment <= $1))
            RETURNING backlog, stamp
            """, .time(moment / 1_000 - min(moment / 1_000, timing.hourSeconds)), read: Self.backlog)
        noteBacklog(count)
    }

    /// Returns the latest count, and its number.
    func backlog() throws -> Backlog { try only("SELECT backlog, stamp FROM schedule", read: Self.backlog) }

    private static func backlog(_ row: any Row) -> Backlog { Backlog(count: row.time(0), stamp: row.time(1)) }

    /// Freezes and completes batches that are due, even while nothing can be published. Must be called twice a minute.
    func settle() throws {
        let now = journal.now() / 1_000
        let isDue = try read {
            try exists(
                "SELECT 1 FROM schedule WHERE looked < $1 OR EXISTS (SELECT 1 FROM batch WHERE window_start IS NULL)",
                .time(now / timing.hourSeconds * timing.hourSeconds))
        }
        guard isDue, journal.hasStarted else { return }
        let frozen = try write {
            var schedule = try lockSchedule()
            let frozen = try freeze(&schedule)
            try save(schedule)
            try countBacklog()
            return frozen
        }
        guard let frozen else { return }
        try waitForWriters()
        try write {
            var schedule = try lockSchedule()
            try complete(frozen, &schedule)
        }
    }

    /// Freezes a batch if a boundary has passed. Writers that have not read this boundary may still add to the batch.
    /// - Returns: the boundary of the batch that is to be completed, once these writers have ended.
    private func freeze(_ schedule: inout Schedule) throws -> UInt64? {
        guard journal.hasStarted else { return nil }
        if let batch = try incompleteBatch() { return batch }
        let moment = self.moment / 1_000 / timing.hourSeconds * timing.hourSeconds
        let last = schedule.lastBoundary ?? moment
        guard moment > last, try nextWindow(schedule) > schedule.lastBatch else { return nil }
        schedule.lastBoundary = moment
        let isMidnight = moment / timing.daySeconds > last / timing.daySeconds
        guard try isMidnight || hasSeals(timing.batchSeals, before: moment) else { return nil }
        try queue("INSERT INTO batch (moment) VALUES ($1)", .time(moment))
        return moment
    }

    private func nextWindow(_ schedule: Schedule) throws -> UInt64 {
        max(clockWindow, try latestWindow(), schedule.closedUpTo + journal.resolution)
    }

    private func incompleteBatch() throws -> UInt64? { try earliest("SELECT min(moment) FROM batch WHERE window_start IS NULL") }

    private func hasSeals(_ count: Int, before moment: UInt64) throws -> Bool {
        let frozen = try earliest("SELECT max(moment) FROM batch") ?? 0
        return try rows(
            "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE rank = 3 AND batch > $1 AND batch <= $2 LIMIT $3) AS seals",
            .time(frozen), .time(moment), .number(count)
        ) { Int($0.int(0)) }[0] >= count
    }

    /// Assigns a window to a frozen batch if everything that expired before its moment is purged. Does nothing if another node has done so.
    private func complete(_ moment: UInt64, _ schedule: inout Schedule) throws {
        guard try incompleteBatch() == moment else { return }
        let isSwept = try rows(
            "SELECT NOT EXISTS (SELECT 1 FROM token WHERE expires < $1) AND NOT EXISTS (SELECT 1 FROM registration WHERE expires < $1)",
            .time(moment * 1_000)
        ) { $0.int(0) != 0 }[0]
        guard isSwept else { return }
        let window = try nextWindow(schedule)
        // Two batches can't share a window.
        guard window > schedule.lastBatch else { return }
        try queue("UPDATE batch SET window_start = $1 WHERE moment = $2", .time(window), .time(moment))
        schedule.lastBatch = window
        try save(schedule)
    }

    /// Returns the complete batches whose window is before `end`, by window.
    private func completeBatches(before end: UInt64) throws -> [CompleteBatch] {
        var batches = try rows(
            "SELECT window_start, moment FROM batch WHERE window_start < $1 ORDER BY window_start", .time(end)
        ) { CompleteBatch(window: $0.time(0), moment: $0.time(1), numbers: []) }
        var last: UInt64 = 0
        for index in batches.indices {
            let moment = batches[index].moment
            // Step by step, since there are few boundaries and many rows.
            while let next = try earliest(
                "SELECT min(batch) FROM waiting WHERE batch > $1 AND batch <= $2", .time(last), .time(moment))
            {
                batches[index].numbers.append(Int64(next))
                last = next
            }
            last = moment
        }
        return batches
    }

    func waiting(_ batch: CompleteBatch, rank: UInt8, limit: Int) throws -> [ClosedEntry] {
        var found: [(id: EntryID, entry: ClosedEntry)] = []
        for number in batch.numbers { found += try waiting(batch, number, rank: rank, limit: limit) }
        if batch.numbers.count > 1 { found.sort { $0.id < $1.id } }
        return found.map(\.entry)
    }

    private func waiting(
        _ batch: CompleteBatch, _ number: Int64, rank: UInt8, limit: Int
    ) throws -> [(id: EntryID, entry: ClosedEntry)] {
        try rows(
            "SELECT id, until, cause FROM waiting WHERE batch = $1 AND rank = $2 ORDER BY id LIMIT $3", .int(number),
            .number(rank),
            .number(limit)
        ) { row in
            let (id, until) = (try row.id(0) as EntryID, row.time(1))
            let cause = row.isNull(2) ? nil : PurgeCause(column: row.int(2), until: until)
            guard row.isNull(2) || cause != nil else { throw StoreError.damaged("a waiting purge has an unknown cause") }
            return (id, ClosedEntry(of: batch, number, rank: rank, id: id, until: until, cause: cause))
        }
    }

    func removeFromBatch(_ entries: ArraySlice<ClosedEntry>) throws {
        var removed: [Int64: (count: Int, last: EntryID)] = [:]
        var rank: UInt8 = 3
        for entry in entries {
            guard case .batch(let number, let entryRank, let id, _, _, _) = entry.source else { continue }
            removed[number] = (removed[number, default: (0, id)].count + 1, id)
            rank = entryRank
        }
        for (number, (count, last)) in removed {
            try queue(
                "DELETE FROM waiting WHERE batch = $1 AND rank = $2 AND id <= $3", .int(number), .number(rank), .id(last),
                expecting: count)
        }
    }

    // MARK: The log

    /// Replaces the head and deletes the rows that it covers. The schedule's lock makes this a compare-and-swap.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        var schedule = try lockSchedule()
        guard try (logHead()?.size ?? 0) == size else { return false }
        guard try isFolderCurrent() else { throw StoreError.unavailable("the previous head is not published") }
        let rank = try entries.last?.source.rank ?? lastRank()
        _ = try remove(entries)
        if let closed = try updateBuckets(with: entries) {
            schedule.closedBucket = closed
            try save(schedule)
        }
        _ = try addUnpublished(entries, from: size)
        try setHead(head, rank: rank)
        try countBacklog()
        return true
    }

    func published(upTo size: UInt64) throws {
        _ = try lockSchedule()
        guard let head = try logHead(), size >= head.size else { return }
        try queue("UPDATE log SET published = $1", .time(size))
        // Another node needs the entries that its folder lacks, unless it has not been heard of for so long that it has stopped. One that does not
        // serve yet may wait for ever. It gets the log's end only, and copies the rest from the node that leads.
        let silent = try reports().filter { $0.silentMs > PostgresStore.longestSilenceMs }.map(\.name)
        try queue(
            """
            DELETE FROM unpublished WHERE first + count <= (SELECT least(min(ledger_size) FILTER (WHERE held_until > 1),
            greatest(coalesce(min(ledger_size), $1), $1 - $3)) FROM member
            WHERE name <> ALL (string_to_array($2, chr(10))) AND name <> (SELECT coalesce(holder, '') FROM lease))
            """, .time(size), .text(silent.joined(separator: "\n")), .number(Self.keptForWaiting), expecting: nil)
        try countBacklog()
    }

    /// How many of the last entries are kept for nodes that don't serve yet. A window of a busy deployment has about as many.
    private static var keptForWaiting: Int { 65_536 }

    /// Returns true if log and folder have all entries except those of open batches, which may go into the next log.
    private func isAllPublished() throws -> Bool {
        try !exists("SELECT 1 FROM entry LIMIT 1") && !exists("SELECT 1 FROM batch WHERE window_start IS NOT NULL")
            && isFolderCurrent()
    }

    /// Returns true if this node's folder has everything under the head.
    private func isFolderCurrent() throws -> Bool { try !exists("SELECT 1 FROM log WHERE published < size") }

    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) throws -> Bool {
        let schedule = try lockSchedule()
        guard try logHead() != nil, try isAllPublished() else { return false }
        // A past bucket closes with its midnight batch, whose entries can't go into the next log.
        let (window, day) = (try window(), timing.daySeconds)
        guard let closed = schedule.closedBucket, closed >= window / day * day else { return false }
        for event in events { try append(event, window: window) }
        for (until, bucket) in try buckets() { try append(bucket.closed(until: until), window: window) }
        try append(.ledgerClosed(next: next), window: window)
        try setMark(mark.name, mark.value)
        return true
    }

    func beginLog(after end: Checkpoint, marks: [StoreMark]) throws -> Bool {
        var schedule = try lockSchedule()
        guard let head = try logHead(), head.size == end.size, try isAllPublished() else { return false }
        guard let origin = EntryText(end.origin) else { throw StoreError.damaged("the origin of the log that ended") }
        let buckets = try buckets().map { ($0.until, $0.bucket.live) }.filter { $0.1 > 0 }
        let jobs = try rows("SELECT count(*) FROM job") { UInt64(clamping: $0.int(0)) }[0]
        try queue("DELETE FROM log")
        try queue("DELETE FROM unpublished", expecting: nil)
        try queue(
            "UPDATE bucket SET carried = sealed + carried - expired - ended, sealed = 0, expired = 0, ended = 0", expecting: nil)
        try queue("DELETE FROM bucket WHERE carried <= 0", expecting: nil)
        schedule.closedBucket = nil
        // The window of the last entry is open again: the next log's first entries belong to it.
        schedule.closedUpTo = min(schedule.closedUpTo, head.window - min(head.window, journal.resolution))
        try begin(&schedule, head.window)
        try save(schedule)
        try append(.ledgerOpened(previous: origin, size: end.size, root: end.root, jobs: jobs), window: head.window)
        for (until, live) in buckets { try append(.bucketCarried(untilMs: until * 1_000, live: live), window: head.window) }
        for mark in marks { try setMark(mark.name, mark.value) }
        return true
    }
}

extension Bucket {
    fileprivate var live: UInt64 { sealed + carried - min(sealed + carried, expired + ended) }
}

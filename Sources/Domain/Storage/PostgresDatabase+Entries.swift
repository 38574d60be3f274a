import Ledger
import Policy
import Postgres
import Vocabulary

// Entries that wait for their window or their batch.
//
// A transaction's window follows the agreed clock. It is never before that of a committed entry, and always after the last closed one. To close
// windows, the sequencer first commits their end, then waits for all writers that may not have read it.
//
// `batch` of a waiting row is the end of its hour, or of its day for a long token. The batch frozen at a boundary has all rows up to it, so
// writers needn't know which batch is open. An index would cost them more than the row, so a boundary's partition has none until its batch is
// complete.
extension PostgresDatabase {
    func addToBatch(_ id: EntryID, _ cause: PurgeCause?, expires: UInt64, isLong: Bool) throws {
        // A purge after the expiry counts at the expiry: the batch of that boundary waits for it.
        let time = cause == nil ? moment : min(moment, expires)
        try queue(
            "INSERT INTO waiting (batch, rank, id, until, cause) VALUES ($1, $2, $3, $4, $5)",
            .time(timing.boundary(after: time / 1_000, isLong: isLong)), .int(cause == nil ? 3 : 4), .id(id),
            .time(timing.untilMs(expiryMs: expires) / 1_000), cause.map { .int($0.column) } ?? .null)
    }

    /// Adds an entry to a window.
    func append(_ op: Entry.Op, window: UInt64) throws {
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
        // While the clock is behind the log, these may reopen the latest window. See `startWindow`.
        if window > clockWindow, events.allSatisfy({ $0.rank == 0 }) {
            let schedule = try lockSchedule()
            window = try startWindow()
            try save(schedule)
        }
        for _ in events { countEntry() }
        try append(events, marks, window: window)
    }

    func startWindow() throws -> UInt64 {
        let latest = try latestWindow()
        guard clockWindow <= closedUpTo, latest <= closedUpTo else { return try batchWindow() }
        closedUpTo = max(clockWindow, latest) - journal.resolution
        return max(clockWindow, latest)
    }

    func reopen(_ window: UInt64) { closedUpTo = min(closedUpTo, window - min(window, journal.resolution)) }

    /// The start of the window of the agreed clock.
    private var clockWindow: UInt64 { clock / 1_000 / journal.resolution * journal.resolution }

    // MARK: The schedule

    func lockSchedule() throws -> Schedule {
        try lockFirst(.schedule)
        _ = try window()
        return try only("SELECT looked, last_batch, closed, closed_up_to FROM schedule FOR UPDATE") {
            closedUpTo = $0.time(3)
            return try Schedule($0)
        }
    }

    func save(_ schedule: Schedule) throws {
        try queue(
            "UPDATE schedule SET looked = $1, last_batch = $2, closed = $3, closed_up_to = $4", .time(schedule.lastBoundary),
            .time(schedule.lastBatch), .time(schedule.closedBucket), .time(closedUpTo))
    }

    /// Closes the windows before `end` that are over or have entries.
    func close(before end: UInt64, limit: Int) throws -> [ClosedEntry]? {
        try settleBatches()
        let last = try write(isSignOfLife: false) {
            let schedule = try lockSchedule()
            let latest = max(try latestWindow(), clockWindow - min(clockWindow, journal.resolution))
            closedUpTo = max(closedUpTo, min((end - min(end, 1)) / journal.resolution * journal.resolution, latest))
            try save(schedule)
            try countBacklog()
            return closedUpTo
        }
        try waitForWriters()
        while true {
            try indexBatches()
            let found: [ClosedEntry]? = try write(isSignOfLife: false) {
                _ = try lockSchedule()
                // The start of another node may have opened the last window again.
                let before = min(end, min(closedUpTo, last) + journal.resolution)
                guard let batches = try completeBatches(before: before) else { return nil }
                return try closedEntries(before: before, batches: batches, limit: limit)
            }
            if let found { return found }
        }
    }

    func entries(before end: UInt64, limit: Int) throws -> [ClosedEntry] { try close(before: end, limit: limit) ?? [] }

    /// Counts the unpublished entries that count towards the limit. See `Books.limited`.
    func countBacklog() throws {
        let count = try only(
            """
            UPDATE schedule SET stamp = stamp + 1, backlog = (SELECT count(*) FROM entry)
            + (SELECT coalesce(sum(limited), 0)::bigint FROM unpublished WHERE first + count > (SELECT published FROM log))
            + (SELECT count(*) FROM unsequenced WHERE rank = 3 AND batch <= (SELECT max(moment) FROM batch WHERE moment <= $1))
            RETURNING backlog, stamp
            """, .time(timing.hourBefore(moment / 1_000)), read: Self.backlog)
        noteBacklog(count)
    }

    /// Returns the latest count, and its number.
    func backlog() throws -> Backlog { try only("SELECT backlog, stamp FROM schedule", read: Self.backlog) }

    private static func backlog(_ row: any Row) -> Backlog { Backlog(count: row.time(0), stamp: row.time(1)) }

    func isBatchDue() throws -> Bool {
        let boundary = timing.boundary(upTo: journal.now() / 1_000)
        return try read {
            try exists(
                "SELECT 1 FROM schedule WHERE looked < $1 OR EXISTS (SELECT 1 FROM batch WHERE window_start IS NULL)",
                .time(boundary))
        }
    }

    func batchWindow() throws -> UInt64 { max(clockWindow, try latestWindow(), closedUpTo + journal.resolution) }

    func freeze(at boundary: UInt64, isMidnight: Bool) throws {
        try queue("INSERT INTO batch (moment) VALUES ($1)", .time(boundary))
        try countBacklog()
    }

    func noteComplete(_ boundary: UInt64, window: UInt64) {}

    func incompleteBatch() throws -> UInt64? { try earliest("SELECT min(moment) FROM batch WHERE window_start IS NULL") }

    func hasSeals(_ count: Int, before moment: UInt64) throws -> Bool {
        let frozen = try earliest("SELECT greatest(sequenced, (SELECT max(moment) FROM batch)) FROM schedule") ?? 0
        return try self.count(
            "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE rank = 3 AND batch > $1 AND batch <= $2 LIMIT $3) AS seals",
            .time(frozen), .time(moment), .number(count)) >= count
    }

    /// Indexes the partitions of complete batches. So each publication continues after the last id of the one before, and no id is in twice.
    func indexBatches() throws {
        let missing = try read {
            let moment = try earliest("SELECT max(moment) FROM batch WHERE window_start IS NOT NULL")
            return try moment.map { last in try waitingBatches().filter { !$0.isIndexed && $0.number <= last } } ?? []
        }
        for (number, _) in missing {
            do {
                try connect()
                // A million entries take about a second. Nobody writes to them. A node that led before may still build the index. `IF NOT EXISTS`
                // doesn't see that, so wait for that node's lock first.
                try runAlone(
                    [
                        "BEGIN", "SET LOCAL statement_timeout = 0", "SET LOCAL lock_timeout = 0",
                        "LOCK TABLE waiting_\(number) IN SHARE ROW EXCLUSIVE MODE",
                        "CREATE UNIQUE INDEX IF NOT EXISTS waiting_\(number)_id ON waiting_\(number) (rank, id)", "COMMIT",
                    ], deadlineMs: 600_000)
            } catch let error as PostgresError {
                disconnect()
                if error.isDuplicate { throw Self.duplicate }
                // The node that leads now has dropped it, so its entries are in the log.
                if !error.isNoTable { throw error }
            }
        }
    }

    private static var duplicate: StoreError { .damaged("ledger entries that wait for their batch: an id occurs twice") }

    /// Returns the complete batches whose window is before `end`, by window. Returns nil if one of them needs an index.
    private func completeBatches(before end: UInt64) throws -> [CompleteBatch]? {
        var batches = try rows(
            "SELECT window_start, moment, rank, id FROM batch WHERE window_start < $1 ORDER BY window_start", .time(end)
        ) { CompleteBatch(window: $0.time(0), moment: $0.time(1), numbers: [], last: try $0.last(2)) }
        var rest = try batches.isEmpty ? [] : waitingBatches()[...]
        for index in batches.indices {
            let own = rest.prefix { $0.number <= batches[index].moment }
            guard own.allSatisfy(\.isIndexed) else { return nil }
            batches[index].numbers = own.map(\.number)
            rest = rest.dropFirst(own.count)
        }
        return batches
    }

    func waiting(_ batch: CompleteBatch, rank: UInt8, limit: Int) throws -> [ClosedEntry] {
        if let last = batch.last, last.rank > rank { return [] }
        let last = batch.last.flatMap { $0.rank == rank ? $0.id : nil }
        var found: [WaitingRow] = []
        for number in batch.numbers {
            // With `limit` ids found, larger ones are not needed.
            let end = found.count < limit ? nil : found.last?.id
            found += try waiting(number, rank: rank, after: last, upTo: end, limit: limit)
            found.sort { $0.id < $1.id }
            // This comes before the cut. Otherwise the last id of a part could occur again in the next part.
            guard zip(found, found.dropFirst()).allSatisfy({ $0.id != $1.id }) else { throw Self.duplicate }
            found.removeLast(max(0, found.count - limit))
        }
        return found.map {
            ClosedEntry(of: batch, $0.number, rank: rank, id: $0.id, until: $0.until, cause: $0.cause)
        }
    }

    private typealias WaitingRow = (id: EntryID, number: Int64, until: UInt64, cause: PurgeCause?)

    private func waiting(
        _ number: Int64, rank: UInt8, after last: EntryID?, upTo end: EntryID?, limit: Int
    ) throws -> [WaitingRow] {
        try rows(
            "SELECT id, until, cause FROM waiting WHERE batch = $1 AND rank = $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5",
            .int(number), .number(rank), last.map { .id($0) } ?? .blob([]), .id(end ?? EntryID(high: .max, low: .max)),
            .number(limit)
        ) { row in
            let until = row.time(1)
            let cause = row.isNull(2) ? nil : PurgeCause(column: row.int(2), until: until)
            guard row.isNull(2) || cause != nil else { throw StoreError.damaged("a waiting purge has an unknown cause") }
            return (try row.id(0), number, until, cause)
        }
    }

    // MARK: The log

    func cover(_ entries: [ClosedEntry], from size: UInt64) throws {
        try addUnpublished(entries, from: size)
        for entry in entries where entry.endsBatch {
            try queue("UPDATE schedule SET sequenced = moment FROM batch WHERE window_start = $1", .time(entry.window))
        }
    }

    func noteCommitted(_ entries: [ClosedEntry], inWindows: Int) throws { try countBacklog() }

    func unpublished(after size: UInt64) throws -> (first: UInt64, entries: [[UInt8]]) {
        let parts = try rows("SELECT first, bytes FROM unpublished WHERE first + count > $1 ORDER BY first", .time(size)) {
            (first: $0.time(0), entries: try unpacked($0.blob(1)))
        }
        return (try parts.first?.first ?? logHead()?.size ?? 0, parts.flatMap(\.entries))
    }

    func published(upTo size: UInt64) throws {
        try write {
            _ = try lockSchedule()
            guard let head = try logHead(), size >= head.size else { return }
            try queue("UPDATE log SET published = $1", .time(size))
            // Keep the entries that another node's folder lacks, unless that node has been silent for so long that it has stopped. A node that
            // doesn't serve yet may wait forever, so for it only the log's end is kept. It copies the rest from the leader.
            let reports = try reports()
            let silent = reports.filter { $0.silentMs > PostgresStore.longestSilenceMs }.map(\.name)
            let waiting = reports.filter(\.isWaiting).map(\.name)
            try queue(
                """
                DELETE FROM unpublished WHERE first + count <= (SELECT least(
                min(ledger_size) FILTER (WHERE held_until > 1 AND name <> ALL (string_to_array($4, chr(10)))),
                greatest(coalesce(min(ledger_size), $1), $1 - $3)) FROM member
                WHERE name <> ALL (string_to_array($2, chr(10))) AND name <> (SELECT coalesce(holder, '') FROM lease))
                """, .time(size), .text(silent.joined(separator: "\n")), .number(journal.keptForWaiting),
                .text(waiting.joined(separator: "\n")), expecting: nil)
            try countBacklog()
        }
    }

    func isFolderCurrent() throws -> Bool { try !exists("SELECT 1 FROM log WHERE published < size") }
}

import Ledger
import Policy
import SQLite
import Vocabulary

// Entries that wait for their window. They are recorded in the operation's transaction and stored in the log's order.
extension SQLiteDatabase {
    var state: any LedgerState { journal }

    func window() -> UInt64 { journal.window(rank: 0) }
    func startWindow() -> UInt64 { journal.window(rank: 0) }
    func reopen(_ window: UInt64) { journal.books.isCut = false }

    /// - Precondition: no entry has a later window.
    func append(_ op: Entry.Op, window: UInt64) throws {
        journal.books.inWindows += 1
        journal.books.recorded += 1
        let key = op.sortKey.isEmpty ? [UInt8](bigEndian: journal.books.recorded) : op.sortKey
        try change(
            "INSERT INTO entry (window_start, rank, key, bytes) VALUES ($1, $2, $3, $4)", .time(window), .number(op.rank),
            .blob(key), .blob(Entry(atMs: window * 1_000, op).encoded))
    }

    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        try append(events, marks, window: journal.window(rank: events.first?.rank ?? 0))
    }

    /// Records what must precede this transaction's entries: `resumption` after an absence, and due batches.
    func recordOverdue() throws {
        guard journal.hasStarted else { return }
        if !resumption.isEmpty, journal.wasAbsent {
            try record(resumption, [])
            hasResumed = true
        }
        try settleBatches()
    }

    func close(before window: UInt64, limit: Int) throws -> [ClosedEntry]? {
        // Nobody can add to a closed window. The writer reads an open window itself, so nobody adds to it meanwhile.
        journal.close(before: window) ? try entries(before: window, limit: limit) : nil
    }

    func entries(before window: UInt64, limit: Int) throws -> [ClosedEntry] {
        try read { try closedEntries(before: window, batches: try completeBatches(before: window), limit: limit) }
    }

    /// Restores the journal's books from the database. Reads all waiting entries.
    func resumeJournal() throws {
        var books = Books()
        let latest = try latestWindow()
        (books.closedUpTo, books.latest) = (latest, latest)
        if let head = try logHead() { books.isCut = head.size > 0 && head.window == latest }
        books.recorded =
            try rows("SELECT max(key) FROM entry WHERE rank IN (0, 6)") { $0.blob(0).reduce(0) { $0 << 8 | UInt64($1) } }[0]
        books.inWindows = try count("SELECT count(*) FROM entry")
        books.covered = try rows("SELECT coalesce(sum(count), 0), coalesce(sum(limited), 0) FROM unpublished") {
            Books.Covered(count: $0.number(0), limited: $0.number(1))
        }[0]
        try each("SELECT looked, last_batch, closed FROM schedule") { row in
            books.schedule = try Schedule(row)
        }
        try resumeBatches(&books)
        journal.books = books
    }

    func lockSchedule() -> Schedule { journal.books.schedule }

    func save(_ schedule: Schedule) throws {
        journal.books.schedule = schedule
        try change(
            """
            INSERT INTO schedule (one, looked, last_batch, closed) VALUES (1, $1, $2, $3) ON CONFLICT (one)
            DO UPDATE SET looked = excluded.looked, last_batch = excluded.last_batch, closed = excluded.closed
            """, .time(schedule.lastBoundary), .time(schedule.lastBatch), .time(schedule.closedBucket))
    }

    func waitingEntries() throws -> Int {
        let others = try count("SELECT (SELECT count(*) FROM entry) + (SELECT coalesce(sum(count), 0) FROM unpublished)")
        let batches = try waitingCounts()
        return try rows("SELECT number FROM batch WHERE moment IS NOT NULL") { batches[$0.int(0)]?.count ?? 0 }.reduce(others, +)
    }

    /// Adopts the recorded timing, or `timing` before the log's first entry records one.
    /// - Throws: `.otherTiming` if both exist and differ.
    func adopt(_ timing: LedgerTiming?) throws {
        journal.timing = try recordedTiming(expecting: timing) ?? timing ?? journal.timing
    }
}

// Seals and purges that wait for their batch. The journal's books count them.
extension SQLiteDatabase {
    /// Adds a purge to the frozen batch if that waits for it. Everything else goes to the open batch.
    func addToBatch(_ id: EntryID, _ cause: PurgeCause?, expires: UInt64, isLong: Bool) {
        let rank: UInt8 = cause == nil ? 3 : 4
        var books = journal.books
        let frozen = cause == nil ? nil : books.addToFrozenBatch(expires: expires, isLong: isLong)
        let number = frozen ?? books.addToOpenBatch(rank: rank, isLong: isLong)
        journal.books = books
        addWaiting(batch: number, rank: rank, id: id, until: timing.untilMs(expiryMs: expires), cause: cause)
    }

    func isBatchDue() -> Bool { journal.isBatchDue }
    func incompleteBatch() -> UInt64? { journal.books.incomplete?.moment }
    func hasSeals(_ count: Int, before boundary: UInt64) -> Bool { journal.books.short.seals >= count }
    func batchWindow() -> UInt64 { journal.batchWindow }
    func waitForWriters() {}

    func freeze(at moment: UInt64, isMidnight: Bool) throws {
        var books = journal.books
        var next = max(books.short.number, books.long.number)
        func replace(_ batch: inout Batch, isLong: Bool) throws -> Batch {
            defer { batch = Batch(number: next) }
            next += 1
            try queue("UPDATE batch SET moment = $1 WHERE number = $2", .time(moment), .int(batch.number))
            try change("INSERT INTO batch (number, is_long) VALUES ($1, $2)", .int(next), .bool(isLong))
            return batch
        }
        let short = try replace(&books.short, isLong: false)
        let long = isMidnight ? try replace(&books.long, isLong: true) : nil
        books.frozen.append(FrozenBatch(moment: moment, short: short, long: long))
        journal.books = books
    }

    func noteComplete(_ boundary: UInt64, window: UInt64) {
        var books = journal.books
        books.frozen[books.frozen.count - 1].window = window
        journal.books = books
        _ = journal.window(rank: 3)
    }

    /// Returns the complete batches whose window is before `window`, by window.
    private func completeBatches(before window: UInt64) throws -> [CompleteBatch] {
        var batches: [CompleteBatch] = []
        try each(
            "SELECT number, moment, window_start, rank, id FROM batch WHERE window_start < $1 ORDER BY window_start, number",
            .time(window)
        ) { row in
            if batches.last?.window == row.time(2) {
                batches[batches.count - 1].numbers.append(row.int(0))
            } else {
                batches.append(
                    CompleteBatch(window: row.time(2), moment: row.time(1), numbers: [row.int(0)], last: try row.last(3)))
            }
        }
        return batches
    }

    func noteCommitted(_ entries: [ClosedEntry], inWindows: Int) throws {
        var books = journal.books
        books.inWindows -= inWindows
        for entry in entries {
            if case .batch(let number, let rank, _, _, _, _) = entry.source { books.removeFromBatch(number, rank: rank) }
            if entry.endsBatch {
                for batch in books.frozen where batch.window == entry.window {
                    try endRuns(of: batch.short.number)
                    if let long = batch.long { try endRuns(of: long.number) }
                }
                books.frozen.removeAll { $0.window == entry.window }
            }
        }
        journal.books = books
    }

    func isFolderCurrent() throws -> Bool { try !exists("SELECT 1 FROM unpublished LIMIT 1") }

    /// Reads the batches and counts their entries. Raises an alarm if a run is damaged.
    /// - Throws: `.damaged` if a batch lacks its row, or if two of one kind are open or have one moment. Their entries could not be published.
    private func resumeBatches(_ books: inout Books) throws {
        var counts = try waitingCounts()
        var (short, long): (Batch?, Batch?)
        try each("SELECT number, is_long, moment, window_start, rank FROM batch ORDER BY moment, is_long") { row in
            // Only a batch that is in the log up to an entry has its rank.
            guard !row.isNull(2) || row.isNull(4) else { throw StoreError.damagedBatch }
            let batch = counts.removeValue(forKey: row.int(0)) ?? Batch(number: row.int(0))
            switch (row.isNull(2), row.bool(1)) {
            case (true, false):
                guard short == nil else { throw StoreError.damagedBatch }
                short = batch
            case (true, true):
                guard long == nil else { throw StoreError.damagedBatch }
                long = batch
            case (false, false):
                guard books.frozen.last?.moment != row.time(2) else { throw StoreError.damagedBatch }
                books.frozen.append(
                    FrozenBatch(moment: row.time(2), window: row.timeOrNil(3), short: batch))
            case (false, true):
                guard let frozen = books.frozen.last, frozen.moment == row.time(2), frozen.long == nil else {
                    throw StoreError.damagedBatch
                }
                books.frozen[books.frozen.count - 1].long = batch
            }
        }
        for number in try unpublishedBatches() { counts[number] = nil }
        guard let short, let long, counts.isEmpty else { throw StoreError.damagedBatch }
        (books.short, books.long) = (short, long)
        try checkRuns()
    }
}

extension Books {
    /// Counts an entry in the open batch of its kind.
    /// - Returns: the batch's number.
    fileprivate mutating func addToOpenBatch(rank: UInt8, isLong: Bool) -> Int64 {
        if isLong {
            long.add(rank: rank)
            return long.number
        }
        short.add(rank: rank)
        return short.number
    }

    /// Counts a purge in the frozen batch that waits for it.
    /// - Returns: the batch's number. Nil if no batch waits for this purge.
    fileprivate mutating func addToFrozenBatch(expires: UInt64, isLong: Bool) -> Int64? {
        guard let batch = incomplete, expires < batch.moment * 1_000 else { return nil }
        let last = frozen.count - 1
        if isLong {
            frozen[last].long?.add(rank: 4)
            return batch.long?.number
        }
        frozen[last].short.add(rank: 4)
        return batch.short.number
    }
}

import Ledger
import Policy
import SQLite
import Vocabulary

// Entries that wait for their window. They are recorded in the operation's transaction and stored in the log's order.
extension SQLiteDatabase {
    /// Adds an entry to the current window.
    func record(_ op: Entry.Op) throws {
        guard op.rank < 3 else { throw StoreError.unavailable("an entry of a batch was recorded by itself") }
        var op = op
        if case .keysRatcheted(let epoch, _) = op { op = .keysRatcheted(epoch: epoch, swept: try sweptEpoch(at: journal.moment)) }
        try append(op, window: journal.window(rank: op.rank))
    }

    /// Adds an entry to a window.
    /// - Precondition: no entry has a later window.
    func append(_ op: Entry.Op, window: UInt64) throws {
        var books = journal.books
        books.inWindows += 1
        books.recorded += 1
        let isFirst = books.closedBucket == nil
        if isFirst {
            // The log begins here. It has no buckets of earlier days.
            let timing = journal.timing
            books.closedBucket = window / timing.daySeconds * timing.daySeconds
            books.lastBoundary = max(books.lastBoundary ?? 0, window / timing.hourSeconds * timing.hourSeconds)
        }
        journal.books = books
        if isFirst {
            try saveSchedule()
            try record(journal.timing)
        }
        let key = op.sortKey.isEmpty ? [UInt8](bigEndian: books.recorded) : op.sortKey
        try run(
            "INSERT INTO entry (window_start, rank, key, bytes) VALUES ($1, $2, $3, $4)", .time(window), .number(op.rank),
            .blob(key),
            .blob(Entry(atMs: window * 1_000, op).encoded))
    }

    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        for event in events { try record(event) }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    /// Records what must precede this transaction's entries: `resumption` after an absence, and due batches.
    func recordOverdue() throws {
        guard journal.hasStarted else { return }
        if !resumption.isEmpty, journal.wasAbsent {
            for event in resumption { try record(event) }
            hasResumed = true
        }
        try settleBatches()
    }

    /// Restores the journal's books from the database. Reads all waiting entries.
    func resumeJournal() throws {
        var books = Books()
        let latest = try latestWindow()
        (books.closedUpTo, books.latest) = (latest, latest)
        if let head = try logHead() { books.isCut = head.size > 0 && head.window == latest }
        books.recorded =
            try rows("SELECT max(key) FROM entry WHERE rank IN (0, 6)") { $0.blob(0).reduce(0) { $0 << 8 | UInt64($1) } }[0]
        books.inWindows = try rows("SELECT count(*) FROM entry") { Int($0.int(0)) }[0]
        books.covered = try rows("SELECT coalesce(sum(count), 0), coalesce(sum(limited), 0) FROM unpublished") {
            Books.Covered(count: Int($0.int(0)), limited: Int($0.int(1)))
        }[0]
        try each("SELECT looked, last_batch, closed FROM schedule") { row in
            books.lastBoundary = row.timeOrNil(0)
            books.lastBatch = row.time(1)
            books.closedBucket = row.timeOrNil(2)
        }
        try resumeBatches(&books)
        journal.books = books
    }

    func saveSchedule() throws {
        let books = journal.books
        try run(
            """
            INSERT INTO schedule (one, looked, last_batch, closed) VALUES (1, $1, $2, $3) ON CONFLICT (one)
            DO UPDATE SET looked = excluded.looked, last_batch = excluded.last_batch, closed = excluded.closed
            """,
            books.lastBoundary.map { .time($0) } ?? .null, .time(books.lastBatch),
            books.closedBucket.map { .time($0) } ?? .null)
    }

    /// Returns the number of entries that are not known to be published. Entries of open batches don't count.
    func waitingEntries() throws -> Int {
        let others = try rows(
            """
            SELECT (SELECT count(*) FROM entry) + (SELECT coalesce(sum(count), 0) FROM unpublished)
            """
        ) { Int($0.int(0)) }[0]
        let batches = try waitingCounts()
        return try rows("SELECT number FROM batch WHERE moment IS NOT NULL") { batches[$0.int(0)]?.count ?? 0 }.reduce(others, +)
    }

    // MARK: Timing

    /// Adopts the recorded timing, or `timing` before the log's first entry records one.
    /// - Throws: `.otherTiming` if both exist and differ.
    func adopt(_ timing: LedgerTiming?) throws {
        journal.timing = try recordedTiming(expecting: timing) ?? timing ?? journal.timing
    }
}

// Seals and purges wait for their batch.
extension SQLiteDatabase {
    /// Adds a token's sealing to the open batch.
    func addSealed(_ id: EntryID, expires: UInt64, isLong: Bool) {
        let number = journal.addToOpenBatch(rank: 3, isLong: isLong)
        addWaiting(batch: number, rank: 3, id: id, until: journal.timing.untilMs(expiryMs: expires), cause: nil)
    }

    /// Adds a token's purge to the frozen batch if that waits for it, otherwise to the open batch. The purge of an expired token is recorded as
    /// expired.
    func addPurged(_ id: EntryID, _ cause: PurgeCause, expires: UInt64, isLong: Bool) {
        let number =
            journal.addToFrozenBatch(expires: expires, isLong: isLong) ?? journal.addToOpenBatch(rank: 4, isLong: isLong)
        let until = journal.timing.untilMs(expiryMs: expires)
        let cause = expires <= journal.moment ? .expired(untilMs: until) : cause
        addWaiting(batch: number, rank: 4, id: id, until: until, cause: cause)
    }

    /// Completes the frozen batch if it has all its purges. Freezes the next batch if a boundary has passed.
    func settleBatches() throws {
        guard journal.hasStarted else { return }
        if let batch = journal.books.incomplete { guard try complete(batch) else { return } }
        guard let (moment, isMidnight) = journal.boundary else { return }
        if isMidnight || journal.books.short.seals >= journal.timing.batchSeals { try freeze(at: moment, isMidnight: isMidnight) }
        journal.books.lastBoundary = moment
        if let batch = journal.books.incomplete { _ = try complete(batch) }
        try saveSchedule()
    }

    private func freeze(at moment: UInt64, isMidnight: Bool) throws {
        var books = journal.books
        var next = max(books.short.number, books.long.number)
        func replace(_ batch: inout Batch, isLong: Bool) throws -> Batch {
            defer { batch = Batch(number: next) }
            next += 1
            try run("UPDATE batch SET moment = $1 WHERE number = $2", .time(moment), .int(batch.number))
            try run("INSERT INTO batch (number, is_long) VALUES ($1, $2)", .int(next), .bool(isLong))
            return batch
        }
        let short = try replace(&books.short, isLong: false)
        let long = isMidnight ? try replace(&books.long, isLong: true) : nil
        books.frozen.append(FrozenBatch(moment: moment, short: short, long: long))
        journal.books = books
    }

    /// Assigns a window to a frozen batch if everything that expired before its moment is purged. Returns false otherwise.
    private func complete(_ batch: FrozenBatch) throws -> Bool {
        let isSwept = try rows(
            "SELECT EXISTS (SELECT 1 FROM token WHERE expires < $1) OR EXISTS (SELECT 1 FROM registration WHERE expires < $1)",
            .time(batch.moment * 1_000)
        ) { $0.int(0) == 0 }[0]
        guard isSwept else { return false }
        let window = journal.window(rank: 3)
        try run("UPDATE batch SET window_start = $1 WHERE moment = $2", .time(window), .time(batch.moment))
        var books = journal.books
        books.frozen[books.frozen.count - 1].window = window
        books.lastBatch = window
        journal.books = books
        try saveSchedule()
        return true
    }

    /// Reads the batches and counts their entries.
    private func resumeBatches(_ books: inout Books) throws {
        let batches = try waitingCounts()
        try each("SELECT number, is_long, moment, window_start FROM batch ORDER BY moment, is_long") { row in
            let batch = batches[row.int(0)] ?? Batch(number: row.int(0))
            switch (row.isNull(2), row.int(1) != 0) {
            case (true, false): books.short = batch
            case (true, true): books.long = batch
            case (false, false):
                books.frozen.append(
                    FrozenBatch(moment: row.time(2), window: row.timeOrNil(3), short: batch))
            case (false, true): books.frozen[books.frozen.count - 1].long = batch
            }
        }
    }
}

extension Journal {
    /// Counts an entry in the open batch of its kind.
    /// - Returns: the batch's number.
    fileprivate func addToOpenBatch(rank: UInt8, isLong: Bool) -> Int64 {
        var books = books
        defer { self.books = books }
        if isLong {
            books.long.add(rank: rank)
            return books.long.number
        }
        books.short.add(rank: rank)
        return books.short.number
    }

    /// Counts a purge in the frozen batch that waits for it.
    /// - Returns: the batch's number. Nil if no batch waits for this purge.
    fileprivate func addToFrozenBatch(expires: UInt64, isLong: Bool) -> Int64? {
        var books = books
        guard let batch = books.incomplete, expires < batch.moment * 1_000 else { return nil }
        let last = books.frozen.count - 1
        defer { self.books = books }
        if isLong {
            books.frozen[last].long?.add(rank: 4)
            return batch.long?.number
        }
        books.frozen[last].short.add(rank: 4)
        return batch.short.number
    }
}

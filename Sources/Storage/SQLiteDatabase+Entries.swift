import Ledger
import Policy
import SQLite
import Vocabulary

// Entries that wait for their window: recorded in the operation's transaction, and kept in the log's order until they are in the log.
extension SQLiteDatabase {
    /// Adds one entry to the current window.
    func record(_ op: Entry.Op) throws {
        guard op.rank < 3 else { throw StoreError.unavailable("an entry of a batch was recorded by itself") }
        var op = op
        if case .keysRatcheted(let epoch, _) = op { op = .keysRatcheted(epoch: epoch, swept: try sweptEpoch()) }
        try append(op, window: journal.window(rank: op.rank))
    }

    /// Adds an entry to a window that is not earlier than any other's.
    func append(_ op: Entry.Op, window: UInt64) throws {
        var books = journal.books
        books.inWindows += 1
        books.recorded += 1
        let isFirst = books.closed == nil
        if isFirst {
            // Where the log begins. Buckets of earlier days don't exist in it.
            let timing = journal.timing
            books.closed = window / timing.daySeconds * timing.daySeconds
            books.looked = max(books.looked ?? 0, window / timing.hourSeconds * timing.hourSeconds)
        }
        journal.books = books
        if isFirst {
            try saveSchedule()
            try setMark(Self.timingMark, journal.timing.mark)
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

    /// Everything that was due before this epoch is purged.
    private func sweptEpoch() throws -> UInt64 {
        let earliest = [
            try transaction.earliest("SELECT min(expires) FROM token"),
            try transaction.earliest("SELECT min(expires) FROM registration"),
        ].compactMap(\.self).min()
        return min(journal.moment, earliest ?? .max) / Self.epochMs
    }

    private static let epochMs: UInt64 = 300_000

    /// Records what must precede this transaction's entries. After an absence, that is another `broker.started`.
    func recordOverdue() throws {
        guard journal.hasStarted else { return }
        if !resumption.isEmpty, journal.wasAbsent {
            for event in resumption { try record(event) }
            hasResumed = true
        }
        try settleBatches()
    }

    /// The latest window that holds an entry, unix seconds; 0 for none.
    func latestWindow() throws -> UInt64 {
        max(
            try logHead()?.window ?? 0, try rows("SELECT max(window_start) FROM entry") { $0.time(0) }[0],
            try rows("SELECT max(window_start) FROM batch") { $0.time(0) }[0])
    }

    /// Takes up the writer's copy from the database. Reads all that waits.
    func resumeJournal() throws {
        var books = Books()
        let latest = try latestWindow()
        (books.given, books.latest) = (latest, latest)
        if let head = try logHead() { books.isCut = head.size > 0 && head.window == latest }
        books.recorded =
            try rows("SELECT max(key) FROM entry WHERE rank IN (0, 6)") { $0.blob(0).reduce(0) { $0 << 8 | UInt64($1) } }[0]
        books.inWindows = try rows("SELECT count(*) FROM entry") { Int($0.int(0)) }[0]
        books.covered = try rows("SELECT coalesce(sum(count), 0), coalesce(sum(limited), 0) FROM unpublished") {
            Books.Covered(count: Int($0.int(0)), limited: Int($0.int(1)))
        }[0]
        try each("SELECT looked, last_batch, closed FROM schedule") { row in
            books.looked = row.isNull(0) ? nil : row.time(0)
            books.lastBatch = row.time(1)
            books.closed = row.isNull(2) ? nil : row.time(2)
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
            books.looked.map { .time($0) } ?? .null, .time(books.lastBatch), books.closed.map { .time($0) } ?? .null)
    }

    /// How many entries are not known to be published. What waits for its batch is not counted.
    func waitingEntries() throws -> Int {
        try rows(
            """
            SELECT (SELECT count(*) FROM entry) + (SELECT coalesce(sum(count), 0) FROM unpublished)
            + (SELECT count(*) FROM waiting WHERE batch IN (SELECT number FROM batch WHERE moment IS NOT NULL))
            """
        ) { Int($0.int(0)) }[0]
    }

    // MARK: Timing

    private static let timingMark = "ledger_timing"

    /// Holds the state folder to the timing of its log's first entry. A start that fails earlier fixes nothing.
    /// - Parameter timing: nil for the one that it has.
    func adopt(_ timing: LedgerTiming?) throws {
        if let mark = try mark(Self.timingMark), let kept = LedgerTiming(mark: mark) {
            if let timing, timing != kept { throw StoreError.otherTiming(recorded: kept.text, given: timing.text) }
            journal.timing = kept
        } else if let timing {
            journal.timing = timing
        }
    }
}

extension LedgerTiming {
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

import Ledger
import SQLite

// Entries that wait: recorded with what they tell of, kept in the order in which they came, until they are in the log.
extension Tables {
    /// What a ledger that is behind still takes. Purges and outcomes are never refused.
    enum LedgerUse: Int {
        /// New tokens stop first: each of them brings more entries later.
        case creation = 700
        case knock = 850
    }

    func refuseWhenLedgerIsBehind(_ use: LedgerUse) throws {
        if journal.isFull(use.rawValue) { throw StoreError.ledgerBehind }
    }

    /// Adds one entry to the current window, inside the operation's transaction.
    func record(_ op: Entry.Op) throws {
        let place = journal.next(isPurge: op.isPurge)
        try append(op, window: place.window, sequence: place.sequence)
    }

    /// Adds one to an earlier window, which must be the latest that has any.
    func record(_ op: Entry.Op, window: UInt64) throws {
        try append(op, window: window, sequence: journal.next(isPurge: op.isPurge).sequence)
    }

    private func append(_ op: Entry.Op, window: UInt64, sequence: UInt64) throws {
        let entry = Entry(atMs: window * 1_000, op)
        if let full = unwritten.append(entry, window: window, sequence: sequence) { try write(full) }
    }

    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        for event in events { try record(event) }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    /// Puts the transaction's entries into rows, before it is committed.
    func writeEntries() throws {
        for row in unwritten.takeAll() { try write(row) }
    }

    private func write(_ row: UnwrittenEntries.Row) throws {
        if row.entries.count == 0 { return }
        try run(
            "INSERT INTO entry (window, sequence, bytes) VALUES (?, ?, ?)", .time(row.window), .time(row.first),
            .blob(row.entries.bytes))
    }

    /// What the log has to hold before this transaction's own entries. After an absence it says anew that the broker goes on,
    /// before it says what was late.
    func keepPromises() throws {
        guard journal.hasStarted else { return }
        if let resumption, journal.wasAbsent { try record(resumption) }
        try purgeOverdue()
    }

    /// The latest window that holds an entry, unix seconds; 0 for none.
    func latestWindow() throws -> UInt64 {
        max(try logHead()?.window ?? 0, try rows("SELECT max(window) FROM entry") { $0.time(0) }[0])
    }

    /// Takes up windows, order and backlog where the last run left them.
    func resumeJournal() throws {
        let last = max(try logProgress().through, try lastSequence(before: .max) ?? 0)
        var backlog = Journal.Backlog(sequence: last)
        let head = try logProgress()
        try eachWaiting { key, entry in
            backlog.waiting += 1
            if entry.isPurge { return }
            backlog.limited += 1
            if head.covers(key) { backlog.covered += 1 }
        }
        journal.resume(given: try latestWindow(), backlog: backlog)
    }

    /// How many entries are not known to be published.
    func waitingEntries() throws -> Int {
        var count = 0
        try eachWaiting { _, _ in count += 1 }
        return count
    }

    private func eachWaiting(_ body: (EntryKey, PackedEntries.Place) throws -> Void) throws {
        let progress = try folderProgress()
        try each("SELECT window, sequence, bytes FROM entry WHERE sequence > ?", .time(progress.run.after)) { row in
            var key = EntryKey(window: row.time(0), id: nil, sequence: row.time(1))
            try row.withBlob(2) { bytes in
                try PackedEntries.read(bytes) { entry in
                    key.id = entry.ref
                    if !progress.covers(key) { try body(key, entry) }
                    key.sequence += 1
                }
            }
        }
    }

    /// The number of the last entry of the windows before `window`.
    func lastSequence(before window: UInt64) throws -> UInt64? {
        var last: UInt64?
        try each(
            "SELECT sequence, bytes FROM entry WHERE window < ? ORDER BY window DESC, sequence DESC LIMIT 1", .time(window)
        ) { row in
            var next = row.time(0)
            try row.withBlob(1) { try PackedEntries.read($0) { _ in next += 1 } }
            last = next - 1
        }
        return last
    }

    /// Whether nothing waits, be it for the log or for the folder.
    func isAllPublished() throws -> Bool {
        let progress = try folderProgress()
        return try unwritten.rows.isEmpty && progress.last == nil && progress.size == logProgress().size
            && (lastSequence(before: .max) ?? 0) <= progress.run.after
    }

    /// Forgets entries that are published, with all that were closed with them; about as many as a busy second brings.
    /// - Returns: whether some are left.
    func forgetEntries() throws -> Bool {
        let done = try folderProgress().run.after
        var last: (window: UInt64, sequence: UInt64)?
        var (length, isMore) = (0, false)
        try each(
            """
            SELECT window, sequence, length(bytes) FROM entry WHERE window <= ? AND sequence <= ? ORDER BY window, sequence LIMIT 1024
            """, .time(try logHead()?.window ?? 0), .time(done)
        ) { row in
            isMore = length >= Self.forgottenBytes
            if isMore { return }
            length += Int(row.int(2))
            last = (row.time(0), row.time(1))
        }
        guard let last else { return false }
        let count = try run("DELETE FROM entry WHERE (window, sequence) <= (?, ?)", .time(last.window), .time(last.sequence))
        return isMore || count == 1024
    }

    private static let forgottenBytes = 262_144
}

/// Where an entry stands in the log's order.
struct EntryKey: Comparable {
    var window: UInt64
    var id: OpaqueID?
    var sequence: UInt64

    static func < (left: EntryKey, right: EntryKey) -> Bool {
        if left.window != right.window { return left.window < right.window }
        switch (left.id, right.id) {
        case (nil, .some): return true
        case (.some, nil): return false
        case (let mine?, let other?) where mine != other: return mine < other
        default: return left.sequence < right.sequence
        }
    }
}

/// How far the log has come in what waits.
struct LogProgress {
    /// Entries in the log.
    var size: UInt64 = 0
    /// What is being put into the log; everything up to `after` is in it.
    var run = ClosedRun(after: 0, through: 0)
    /// The last of the run that is in the log; nil when there is none.
    var last: EntryKey?

    var through: UInt64 { run.through }

    func covers(_ key: EntryKey) -> Bool {
        if key.sequence <= run.after { return true }
        guard let last, key.sequence <= run.through else { return false }
        return key <= last
    }

    /// After these as well.
    func advanced(by entries: [ClosedEntry]) -> LogProgress {
        guard let entry = entries.last else { return self }
        let size = size + UInt64(entries.count)
        if entry.isLastOfRun {
            return LogProgress(size: size, run: ClosedRun(after: entry.run.through, through: entry.run.through))
        }
        return LogProgress(size: size, run: entry.run, last: entry.key)
    }
}

extension ClosedEntry {
    var key: EntryKey { EntryKey(window: window, id: id, sequence: sequence) }
}

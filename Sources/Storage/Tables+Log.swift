import Ledger
import SQLite

extension Tables {
    /// Every operation but a purge is refused while more entries wait than the journal takes.
    func refuseWhenLedgerIsBehind() throws {
        if journal.isFull { throw StoreError.ledgerBehind }
    }

    /// Adds one entry to the current window, inside the operation's transaction.
    func record(_ op: Entry.Op) throws {
        let place = journal.next()
        let entry = Entry(atMs: place.window * 1_000, op)
        try run(
            "INSERT INTO entry (window, ref, sequence, bytes) VALUES (?, ?, ?, ?)",
            .time(place.window), .blob(entry.sortKey), .time(place.sequence), .blob(entry.encoded))
    }

    /// After an absence the log says anew that the broker goes on, before it says what was late.
    func noteResumption() throws {
        if let resumption, journal.wasAbsent { try record(resumption) }
    }

    /// Takes up windows, order and backlog where the last run left them.
    func resumeJournal() throws {
        let given = try logHead()?.window ?? 0
        let last = try rows("SELECT max(sequence) FROM entry") { $0.time(0) }[0]
        journal.resume(given: given, sequence: last, waiting: try waitingEntries())
    }

    private func waitingEntries() throws -> Int {
        try rows("SELECT (SELECT count(*) FROM entry) + (SELECT count(*) FROM sequenced)") { Int($0.int(0)) }[0]
    }

    func closedEntries(before window: UInt64, limit: Int) throws -> [ClosedEntry] {
        journal.give(before: window)
        return try rows(
            "SELECT window, ref, sequence, bytes FROM entry WHERE window < ? ORDER BY window, ref, sequence LIMIT ?",
            .time(window), .number(limit)
        ) { ClosedEntry(window: $0.time(0), ref: $0.blob(1), sequence: $0.time(2), bytes: $0.blob(3)) }
    }

    func logHead() throws -> LogHead? {
        try rows("SELECT size, checkpoint, window FROM log") {
            LogHead(size: $0.time(0), checkpoint: $0.text(1), window: $0.time(2))
        }.first
    }

    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        if let current = try logHead() {
            guard current.size == size else { return false }
            try run(
                "UPDATE log SET size = ?, checkpoint = ?, window = ? WHERE one = 1 AND size = ?",
                .time(head.size), .text(head.checkpoint), .time(head.window), .time(size))
        } else {
            guard size == 0 else { return false }
            try run(
                "INSERT INTO log (one, size, checkpoint, window) VALUES (1, ?, ?, ?)",
                .time(head.size), .text(head.checkpoint), .time(head.window))
        }
        for (offset, entry) in entries.enumerated() {
            let moved = try run(
                "DELETE FROM entry WHERE window = ? AND ref = ? AND sequence = ?",
                .time(entry.window), .blob(entry.ref), .time(entry.sequence))
            guard moved == 1 else { throw StoreError.damaged("a ledger entry was sequenced twice") }
            try run(
                "INSERT INTO sequenced (position, bytes) VALUES (?, ?)", .time(size + UInt64(offset)), .blob(entry.bytes))
        }
        return true
    }

    func unpublished() throws -> (first: UInt64, entries: [[UInt8]]) {
        let found = try rows("SELECT position, bytes FROM sequenced ORDER BY position") { ($0.time(0), $0.blob(1)) }
        return (found.first?.0 ?? 0, found.map(\.1))
    }

    func published(upTo size: UInt64) throws {
        try run("DELETE FROM sequenced WHERE position < ?", .time(size))
        journal.setWaiting(try waitingEntries())
    }

    func mark(_ name: String) throws -> [UInt8]? {
        try rows("SELECT value FROM node WHERE name = ?", .text(name)) { $0.blob(0) }.first
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try run("INSERT OR REPLACE INTO node (name, value) VALUES (?, ?)", .text(name), .blob(value))
    }
}

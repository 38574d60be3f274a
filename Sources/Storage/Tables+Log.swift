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
        try insert(Entry(atMs: place.window * 1_000, op), sequence: place.sequence, sliceBits: 2)
    }

    /// Adds one of very many entries about tokens to a window of a log that has none yet. What else comes into that window must come after
    /// these are published: their slices are thinner, so that a batch of them is sorted and no more.
    func recordAmongMany(_ op: Entry.Op, window: UInt64) throws {
        try insert(Entry(atMs: window * 1_000, op), sequence: journal.next().sequence, sliceBits: 10)
    }

    private func insert(_ entry: Entry, sequence: UInt64, sliceBits: Int) throws {
        let ref = entry.sortKey
        let front = ref.count < 2 ? 0 : Int(ref[0]) << 8 | Int(ref[1])
        try run(
            "INSERT INTO entry (window, slice, sequence, ref, bytes) VALUES (?, ?, ?, ?, ?)",
            .time(entry.atMs / 1_000), .number(front >> (16 - sliceBits)), .time(sequence), .blob(ref), .blob(entry.encoded))
    }

    func record(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        for event in events { try record(event) }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    /// What the log has to hold before this transaction's own entries. After an absence it says anew that the broker goes on,
    /// before it says what was late.
    func keepPromises() throws {
        guard journal.hasStarted else { return }
        if let resumption, journal.wasAbsent { try record(resumption) }
        try purgeOverdue(limit: Self.overdueLimit)
    }

    /// As many as the sweeper takes at a time.
    private static let overdueLimit = 500

    /// The latest window that holds an entry, unix seconds; 0 for none.
    func latestWindow() throws -> UInt64 {
        max(try logHead()?.window ?? 0, try rows("SELECT max(window) FROM entry") { $0.time(0) }[0])
    }

    /// Takes up windows, order and backlog where the last run left them.
    func resumeJournal() throws {
        let given = try latestWindow()
        let last = try rows("SELECT max(sequence) FROM entry") { $0.time(0) }[0]
        journal.resume(given: given, sequence: last, waiting: try waitingEntries())
    }

    func waitingEntries() throws -> Int {
        try rows("SELECT count(*) FROM entry") { Int($0.int(0)) }[0] + sequencedEntries()
    }

    private func sequencedEntries() throws -> Int {
        try rows("SELECT coalesce(sum(count), 0) FROM sequenced") { Int($0.int(0)) }[0]
    }

    func closedEntries(before window: UInt64, limit: Int) throws -> [ClosedEntry] {
        journal.give(before: window)
        return try rows(
            """
            SELECT window, slice, ref, sequence, bytes FROM entry WHERE window < ? ORDER BY window, slice, ref, sequence LIMIT ?
            """,
            .time(window), .number(limit)
        ) { ClosedEntry(window: $0.time(0), slice: Int($0.int(1)), ref: $0.blob(2), sequence: $0.time(3), bytes: $0.blob(4)) }
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
        try sequence(entries, from: size)
        return true
    }

    /// Takes entries out of their windows and into the log, at `position` and after.
    private func sequence(_ entries: [ClosedEntry], from position: UInt64) throws {
        var moved = 0
        var rest = entries[...]
        while let first = rest.first {
            let slice = first.slice
            let same = rest.prefix { $0.window == first.window && $0.slice == slice }
            rest = rest.dropFirst(same.count)
            if rest.isEmpty {
                // The last slice may be here in part.
                for entry in same {
                    moved += try run(
                        "DELETE FROM entry WHERE window = ? AND slice = ? AND sequence = ?", .time(entry.window),
                        .number(slice), .time(entry.sequence))
                }
            } else {
                // At a stop its window may have gone on since.
                let newest = same.reduce(0) { max($0, $1.sequence) }
                moved += try run(
                    "DELETE FROM entry WHERE window = ? AND slice = ? AND sequence <= ?", .time(first.window),
                    .number(slice), .time(newest))
            }
        }
        guard moved == entries.count else { throw StoreError.damaged("a ledger entry was sequenced twice") }
        if !entries.isEmpty { try insertSequenced(entries.map(\.bytes), at: position) }
    }

    private func insertSequenced(_ entries: [[UInt8]], at position: UInt64) throws {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(entries.reduce(0) { $0 + $1.count + 2 })
        for entry in entries {
            bytes.append(UInt8(entry.count >> 8))
            bytes.append(UInt8(entry.count & 0xff))
            bytes += entry
        }
        try run(
            "INSERT INTO sequenced (position, count, bytes) VALUES (?, ?, ?)", .time(position), .number(entries.count),
            .blob(bytes))
    }

    func unpublished() throws -> (first: UInt64, entries: [[UInt8]]) {
        let found = try rows("SELECT position, bytes FROM sequenced ORDER BY position") { ($0.time(0), $0.blob(1)) }
        return (found.first?.0 ?? 0, found.flatMap { Self.entries($0.1) })
    }

    private static func entries(_ bytes: [UInt8]) -> [[UInt8]] {
        var entries: [[UInt8]] = []
        var start = 0
        while start < bytes.count {
            let end = start + 2 + Int(bytes[start]) << 8 + Int(bytes[start + 1])
            entries.append(Array(bytes[start + 2..<end]))
            start = end
        }
        return entries
    }

    func published(upTo size: UInt64) throws {
        let cut = try rows(
            "SELECT position, bytes FROM sequenced WHERE position < ? AND position + count > ?", .time(size), .time(size)
        ) { ($0.time(0), $0.blob(1)) }.first
        let before = try sequencedEntries()
        try run("DELETE FROM sequenced WHERE position < ?", .time(size))
        if let (position, bytes) = cut {
            try insertSequenced(Array(Self.entries(bytes).dropFirst(Int(size - position))), at: size)
        }
        let gone = before - (try sequencedEntries())
        // Counting reads all that waits. After a large batch another follows, and the last one is not large.
        journal.setWaiting(gone > Self.large ? journal.waiting - gone : try waitingEntries())
    }

    private static let large = 10_000

    func mark(_ name: String) throws -> [UInt8]? {
        try rows("SELECT value FROM node WHERE name = ?", .text(name)) { $0.blob(0) }.first
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try run("INSERT OR REPLACE INTO node (name, value) VALUES (?, ?)", .text(name), .blob(value))
    }
}

import Ledger
import Policy
import SQLite
import Vocabulary

extension SQLiteDatabase {
    func logHead() throws -> LogHead? {
        try first("SELECT size, checkpoint, window_start FROM log") {
            LogHead(size: $0.time(0), checkpoint: $0.text(1), window: $0.time(2))
        }
    }

    /// The rank of the log's last entry.
    func lastRank() throws -> UInt8 { try first("SELECT rank FROM log") { UInt8(clamping: $0.int(0)) } ?? 0 }

    /// Replaces the head and deletes the rows that it covers.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        guard try (logHead()?.size ?? 0) == size else { return false }
        guard try isFolderCurrent() else { throw StoreError.unavailable("the previous head is not published") }
        try remove(entries)
        try updateBuckets(with: entries)
        try addUnpublished(entries, from: size)
        try run(
            """
            INSERT INTO log (one, size, checkpoint, window_start, rank) VALUES (1, $1, $2, $3, $4) ON CONFLICT (one)
            DO UPDATE SET size = excluded.size, checkpoint = excluded.checkpoint, window_start = excluded.window_start,
            rank = excluded.rank
            """, .time(head.size), .text(head.checkpoint), .time(head.window), .number(entries.last?.source.rank ?? lastRank()))
        return true
    }

    /// Deletes the entries' rows. An open window may have got entries between them since, but a complete batch may not.
    private func remove(_ entries: [ClosedEntry]) throws {
        var (inWindows, isGone) = (0, true)
        var next = entries[...]
        while let entry = next.first {
            var count = 1
            switch entry.source {
            case .window(let rank, let key):
                let deleted = try run(
                    "DELETE FROM entry WHERE window_start = $1 AND rank = $2 AND key = $3", .time(entry.window), .number(rank),
                    .blob(key))
                isGone = isGone && deleted == 1
                inWindows += 1
            case .batch:
                let ids = next.prefix { $0.source.rank == entry.source.rank && $0.window == entry.window }
                count = ids.count
                isGone = try isGone && removeFromBatch(ids) == count
            case .closing: break
            }
            next = next.dropFirst(count)
        }
        guard isGone else { throw StoreError.damaged("a ledger entry was sequenced twice") }
        journal.books.inWindows -= inWindows
    }

    /// - Parameter entries: adjacent entries of one batch and rank. At midnight, entries of short and long tokens alternate.
    private func removeFromBatch(_ entries: ArraySlice<ClosedEntry>) throws -> Int {
        var last: [Int64: EntryID] = [:]
        var rank: UInt8 = 3
        for entry in entries {
            if case .batch(let number, let entryRank, let id, _, _) = entry.source { (last[number], rank) = (id, entryRank) }
        }
        return try last.reduce(0) { count, batch in
            try count
                + run(
                    "DELETE FROM waiting WHERE batch = $1 AND rank = $2 AND id <= $3", .int(batch.key), .number(rank),
                    .id(batch.value))
        }
    }

    /// Adds the entries to their buckets. Deletes closed buckets and finished batches.
    private func updateBuckets(with entries: [ClosedEntry]) throws {
        var books = journal.books
        for (until, bucket) in ClosedEntry.buckets(of: entries) {
            try run(
                """
                INSERT INTO bucket (until, sealed, carried, expired, ended) VALUES ($1, $2, 0, $3, $4) ON CONFLICT (until)
                DO UPDATE SET sealed = bucket.sealed + excluded.sealed, expired = bucket.expired + excluded.expired,
                ended = bucket.ended + excluded.ended
                """, .time(until), .time(bucket.sealed), .time(bucket.expired), .time(bucket.ended))
        }
        for entry in entries {
            switch entry.source {
            case .closing(let until):
                try run("DELETE FROM bucket WHERE until = $1", .time(until))
                books.closedBucket = until
            case .batch(let number, let rank, _, _, _): books.removeFromBatch(number, rank: rank)
            case .window: break
            }
            if entry.endsBatch {
                try run("DELETE FROM batch WHERE window_start = $1", .time(entry.window))
                books.frozen.removeAll { $0.window == entry.window }
            }
        }
        let isClosing = books.closedBucket != journal.books.closedBucket
        journal.books = books
        if isClosing { try saveSchedule() }
    }

    // MARK: The folder

    private static let packedBytes = 65_536

    /// Stores the entries until the folder has them. Rows have many entries: each its length (u16), then its bytes.
    private func addUnpublished(_ entries: [ClosedEntry], from size: UInt64) throws {
        var (first, count, limited) = (size, 0, 0)
        var bytes: [UInt8] = []
        func write() throws {
            if count == 0 { return }
            try run(
                "INSERT INTO unpublished (first, count, limited, bytes) VALUES ($1, $2, $3, $4)", .time(first), .number(count),
                .number(limited), .blob(bytes))
            journal.books.covered.count += count
            journal.books.covered.limited += limited
            (first, count, limited, bytes) = (first + UInt64(count), 0, 0, [])
        }
        for entry in entries {
            bytes.append(bigEndian: UInt16(entry.bytes.count))
            bytes += entry.bytes
            count += 1
            if entry.source.rank != 4 { limited += 1 }
            if bytes.count >= Self.packedBytes { try write() }
        }
        try write()
    }

    /// Returns true if the folder is known to have everything under the head.
    private func isFolderCurrent() throws -> Bool { try !exists("SELECT 1 FROM unpublished LIMIT 1") }

    func unpublished() throws -> (first: UInt64, entries: [[UInt8]]) {
        var first: UInt64?
        var entries: [[UInt8]] = []
        try each("SELECT first, bytes FROM unpublished ORDER BY first") { row in
            first = first ?? row.time(0)
            let bytes = row.blob(1)
            var start = 0
            while start + 2 <= bytes.count {
                let end = start + 2 + Int(bytes[start]) << 8 + Int(bytes[start + 1])
                guard end <= bytes.count else { throw StoreError.damaged("an entry is truncated") }
                entries.append(Array(bytes[start + 2..<end]))
                start = end
            }
        }
        return (try first ?? logHead()?.size ?? 0, entries)
    }

    func published(upTo size: UInt64) throws {
        guard let head = try logHead(), size >= head.size else { return }
        try run("DELETE FROM unpublished")
        journal.books.covered = Books.Covered()
    }

    /// Returns true if log and folder have all entries except those of open batches, which may go into the next log.
    private func isAllPublished() throws -> Bool {
        let books = journal.books
        return try books.inWindows == 0 && books.frozen.allSatisfy { $0.window == nil } && isFolderCurrent()
    }

    // MARK: Marks

    func mark(_ name: String) throws -> [UInt8]? {
        try first("SELECT value FROM node WHERE name = $1", .text(name)) { $0.blob(0) }
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try run(
            "INSERT INTO node (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", .text(name),
            .blob(value))
    }
}

extension Books {
    fileprivate mutating func removeFromBatch(_ number: Int64, rank: UInt8) {
        for index in frozen.indices {
            if frozen[index].short.number == number { frozen[index].short.add(rank: rank, -1) }
            if frozen[index].long?.number == number { frozen[index].long?.add(rank: rank, -1) }
        }
    }
}

// The end of a log and the start of the next.
extension SQLiteDatabase {
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) throws -> Bool {
        guard try logHead() != nil, try isAllPublished() else { return false }
        // A past bucket closes with its midnight batch, whose entries can't go into the next log.
        let (window, day) = (journal.window(rank: 0), journal.timing.daySeconds)
        guard let closed = journal.books.closedBucket, closed >= window / day * day else { return false }
        for event in events { try append(event, window: window) }
        for (until, bucket) in try buckets() { try append(bucket.closed(until: until), window: window) }
        try append(.ledgerClosed(next: next), window: window)
        try setMark(mark.name, mark.value)
        return true
    }

    func beginLog(after end: Checkpoint, marks: [StoreMark]) throws -> Bool {
        guard let head = try logHead(), head.size == end.size, try isAllPublished() else { return false }
        guard let origin = EntryText(end.origin) else { throw StoreError.damaged("the origin of the log that ended") }
        try run("DELETE FROM log")
        try run("UPDATE bucket SET carried = sealed + carried - expired - ended, sealed = 0, expired = 0, ended = 0")
        try run("DELETE FROM bucket WHERE carried <= 0")
        var books = journal.books
        (books.closedBucket, books.isCut) = (nil, false)
        journal.books = books
        let jobs = try rows("SELECT count(*) FROM job") { UInt64(clamping: $0.int(0)) }[0]
        try append(.ledgerOpened(previous: origin, size: end.size, root: end.root, jobs: jobs), window: head.window)
        for (until, bucket) in try buckets() {
            try append(.bucketCarried(untilMs: until * 1_000, live: bucket.carried), window: head.window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
        return true
    }
}

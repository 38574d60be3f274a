import Ledger
import SQLite
import Vocabulary

extension SQLiteDatabase {
    func logHead() throws -> LogHead? {
        try rows("SELECT size, checkpoint, window_start FROM log") {
            LogHead(size: $0.time(0), checkpoint: $0.text(1), window: $0.time(2))
        }.first
    }

    /// The rank of the log's last entry.
    func lastRank() throws -> UInt8 { try rows("SELECT rank FROM log") { UInt8(clamping: $0.int(0)) }.first ?? 0 }

    /// Replaces the head, and deletes the rows that it covers.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        guard try (logHead()?.size ?? 0) == size else { return false }
        guard try isFolderCurrent() else { throw StoreError.unavailable("the head before is not published") }
        try remove(entries)
        try book(entries)
        try pack(entries, from: size)
        try run(
            """
            INSERT INTO log (one, size, checkpoint, window_start, rank) VALUES (1, $1, $2, $3, $4) ON CONFLICT (one)
            DO UPDATE SET size = excluded.size, checkpoint = excluded.checkpoint, window_start = excluded.window_start,
            rank = excluded.rank
            """, .time(head.size), .text(head.checkpoint), .time(head.window), .number(entries.last?.place.rank ?? lastRank()))
        return true
    }

    /// Deletes their rows. Later entries may have come between those of an open window, but not into a complete batch.
    private func remove(_ entries: [ClosedEntry]) throws {
        var (inWindows, isGone) = (0, true)
        var next = entries[...]
        while let entry = next.first {
            var count = 1
            switch entry.place {
            case .window(let rank, let key):
                let deleted = try run(
                    "DELETE FROM entry WHERE window_start = $1 AND rank = $2 AND key = $3", .time(entry.window), .number(rank),
                    .blob(key))
                isGone = isGone && deleted == 1
                inWindows += 1
            case .batch:
                let ids = next.prefix { $0.place.rank == entry.place.rank && $0.window == entry.window }
                count = ids.count
                isGone = try isGone && removeFromBatch(ids) == count
            case .closing: break
            }
            next = next.dropFirst(count)
        }
        guard isGone else { throw StoreError.damaged("a ledger entry was sequenced twice") }
        journal.books.inWindows -= inWindows
    }

    /// - Parameter entries: neighbours of one batch and rank. At midnight short tokens' and long tokens' entries alternate.
    private func removeFromBatch(_ entries: ArraySlice<ClosedEntry>) throws -> Int {
        var last: [Int64: EntryID] = [:]
        var rank: UInt8 = 3
        for entry in entries {
            if case .batch(let number, let entryRank, let id, _, _) = entry.place { (last[number], rank) = (id, entryRank) }
        }
        return try last.reduce(0) { count, batch in
            try count
                + run(
                    "DELETE FROM waiting WHERE batch = $1 AND rank = $2 AND id <= $3", .int(batch.key), .number(rank),
                    .id(batch.value))
        }
    }

    /// Adds the entries to their buckets. Deletes closed buckets and published batches.
    private func book(_ entries: [ClosedEntry]) throws {
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
            switch entry.place {
            case .closing(let until):
                try run("DELETE FROM bucket WHERE until = $1", .time(until))
                books.closed = until
            case .batch(let number, let rank, _, _, _): books.takeFromBatch(number, rank: rank)
            case .window: break
            }
            if entry.endsBatch {
                try run("DELETE FROM batch WHERE window_start = $1", .time(entry.window))
                books.frozen.removeAll { $0.window == entry.window }
            }
        }
        let isClosing = books.closed != journal.books.closed
        journal.books = books
        if isClosing { try saveSchedule() }
    }

    // MARK: The folder

    private static let packedBytes = 65_536

    /// Keeps them until the folder has them: each a length (u16) and its bytes, concatenated.
    private func pack(_ entries: [ClosedEntry], from size: UInt64) throws {
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
            bytes += [UInt8(entry.bytes.count >> 8), UInt8(entry.bytes.count & 0xff)]
            bytes += entry.bytes
            count += 1
            if entry.place.rank != 4 { limited += 1 }
            if bytes.count >= Self.packedBytes { try write() }
        }
        try write()
    }

    /// Whether the folder is known to hold what the head covers.
    private func isFolderCurrent() throws -> Bool { try rows("SELECT 1 FROM unpublished LIMIT 1") { _ in 1 }.isEmpty }

    func unpublished() throws -> (first: UInt64, entries: [[UInt8]]) {
        var first: UInt64?
        var entries: [[UInt8]] = []
        try each("SELECT first, bytes FROM unpublished ORDER BY first") { row in
            first = first ?? row.time(0)
            let bytes = row.blob(1)
            var at = 0
            while at + 2 <= bytes.count {
                let end = at + 2 + Int(bytes[at]) << 8 + Int(bytes[at + 1])
                guard end <= bytes.count else { throw StoreError.damaged("an entry that is cut off") }
                entries.append(Array(bytes[at + 2..<end]))
                at = end
            }
        }
        return (try first ?? logHead()?.size ?? 0, entries)
    }

    func published(upTo size: UInt64) throws {
        guard let head = try logHead(), size >= head.size else { return }
        try run("DELETE FROM unpublished")
        journal.books.covered = Books.Covered()
    }

    /// Whether all that was closed is in log and folder. What waits for its batch may go into another log.
    func isAllPublished() throws -> Bool {
        let books = journal.books
        return try books.inWindows == 0 && books.frozen.allSatisfy { $0.window == nil } && isFolderCurrent()
    }

    // MARK: Marks

    func mark(_ name: String) throws -> [UInt8]? {
        try rows("SELECT value FROM node WHERE name = $1", .text(name)) { $0.blob(0) }.first
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try run(
            "INSERT INTO node (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", .text(name),
            .blob(value))
    }
}

extension Books {
    fileprivate mutating func takeFromBatch(_ number: Int64, rank: UInt8) {
        for index in frozen.indices {
            if frozen[index].short.number == number { frozen[index].short.add(rank: rank, -1) }
            if frozen[index].long?.number == number { frozen[index].long?.add(rank: rank, -1) }
        }
    }
}

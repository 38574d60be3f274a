import Ledger
import Policy
import Vocabulary

extension StoreEngine {
    func logHead() throws -> LogHead? {
        try first("SELECT size, checkpoint, window_start FROM log") {
            LogHead(size: $0.time(0), checkpoint: $0.text(1), window: $0.time(2))
        }
    }

    /// The rank of the log's last entry.
    func lastRank() throws -> UInt8 { try first("SELECT rank FROM log") { $0.number(0) } ?? 0 }

    func setHead(_ head: LogHead, rank: UInt8) throws {
        try queue(
            """
            INSERT INTO log (one, size, checkpoint, window_start, rank) VALUES (1, $1, $2, $3, $4) ON CONFLICT (one)
            DO UPDATE SET size = excluded.size, checkpoint = excluded.checkpoint, window_start = excluded.window_start,
            rank = excluded.rank
            """, .time(head.size), .text(head.checkpoint), .time(head.window), .number(rank))
    }

    /// Deletes the rows that a new head covers, each by its key: an open window may have received entries between these since. A complete batch
    /// receives none, so its last entry in the log is noted instead.
    /// - Returns: the number of entries of windows.
    func remove(_ entries: [ClosedEntry]) throws -> Int {
        var inWindows = 0
        var next = entries[...]
        while let entry = next.first {
            var count = 1
            switch entry.source {
            case .window(let rank, let key):
                try queue(
                    "DELETE FROM entry WHERE window_start = $1 AND rank = $2 AND key = $3", .time(entry.window), .number(rank),
                    .blob(key))
                inWindows += 1
            case .batch:
                let ids = next.prefix { $0.source.rank == entry.source.rank && $0.window == entry.window }
                count = ids.count
                try removeFromBatch(ids)
            case .closing: break
            }
            next = next.dropFirst(count)
        }
        return inWindows
    }

    /// Records how far a batch is in the log. Its entries stay where they are: with SQLite until the folder has them, with PostgreSQL until all are in
    /// the log.
    /// - Parameter entries: adjacent entries of one batch and rank. At midnight, entries of short and long tokens alternate.
    private func removeFromBatch(_ entries: ArraySlice<ClosedEntry>) throws {
        guard let last = entries.last, case .batch(_, let rank, let id, _, _, _) = last.source else { return }
        let changed = try change(
            "UPDATE batch SET rank = $1, id = $2 WHERE window_start = $3 AND (rank IS NULL OR (rank, id) < ($1, $2))",
            .number(rank), .id(id), .time(last.window))
        guard changed > 0 else { throw StoreError.damaged("a batch's entries are in the log already") }
    }

    /// Adds the entries to their buckets. Deletes closed buckets and finished batches.
    /// - Returns: the end of the last bucket that they close, or nil if they close none.
    func updateBuckets(with entries: [ClosedEntry]) throws -> UInt64? {
        for (until, bucket) in ClosedEntry.buckets(of: entries) {
            try queue(
                """
                INSERT INTO bucket (until, sealed, carried, expired, ended) VALUES ($1, $2, 0, $3, $4) ON CONFLICT (until)
                DO UPDATE SET sealed = bucket.sealed + excluded.sealed, expired = bucket.expired + excluded.expired,
                ended = bucket.ended + excluded.ended
                """, .time(until), .time(bucket.sealed), .time(bucket.expired), .time(bucket.ended))
        }
        var closed: UInt64?
        for entry in entries {
            if case .closing(let until) = entry.source {
                try queue("DELETE FROM bucket WHERE until = $1", .time(until), expecting: nil)
                closed = until
            }
            if entry.endsBatch { try queue("DELETE FROM batch WHERE window_start = $1", .time(entry.window), expecting: nil) }
        }
        return closed
    }

    // MARK: The folder

    private static var packedBytes: Int { 65_536 }

    /// Stores the entries until the folder has them. Rows have many entries: each its length (u16), then its bytes.
    /// - Returns: their counts.
    @discardableResult
    func addUnpublished(_ entries: some Sequence<ClosedEntry>, from size: UInt64) throws -> Books.Covered {
        var covered = Books.Covered()
        var (first, count, limited) = (size, 0, 0)
        var bytes: [UInt8] = []
        func write() throws {
            if count == 0 { return }
            try queue(
                "INSERT INTO unpublished (first, count, limited, bytes) VALUES ($1, $2, $3, $4)", .time(first), .number(count),
                .number(limited), .blob(bytes))
            covered.count += count
            covered.limited += limited
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
        return covered
    }

    /// Returns the entries of a row of `unpublished`.
    func unpacked(_ bytes: [UInt8]) throws -> [[UInt8]] {
        var (entries, start): ([[UInt8]], Int) = ([], 0)
        while start + 2 <= bytes.count {
            let end = start + 2 + Int(bytes[start]) << 8 + Int(bytes[start + 1])
            guard end <= bytes.count else { throw StoreError.damaged("an entry is truncated") }
            entries.append(Array(bytes[start + 2..<end]))
            start = end
        }
        return entries
    }

    // MARK: Marks

    func mark(_ name: String) throws -> [UInt8]? {
        try first("SELECT value FROM node WHERE name = $1", .text(name)) { $0.blob(0) }
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try queue(
            "INSERT INTO node (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", .text(name),
            .blob(value))
    }

    /// Replaces a mark if its value is still `old`. A missing mark counts as empty.
    /// - Returns: false if the value differs.
    func replaceMark(_ name: String, _ old: [UInt8], by new: [UInt8]) throws -> Bool {
        let changed =
            if old.isEmpty {
                try change(
                    """
                    INSERT INTO node (name, value) VALUES ($1, $2)
                    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE length(node.value) = 0
                    """, .text(name), .blob(new))
            } else {
                try change("UPDATE node SET value = $1 WHERE name = $2 AND value = $3", .blob(new), .text(name), .blob(old))
            }
        return changed == 1
    }
}

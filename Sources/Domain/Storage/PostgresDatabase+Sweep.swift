import Ledger
import Postgres
import Vocabulary

extension PostgresDatabase {
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        // A node whose clock is ahead must not purge what has not expired.
        let clock = try read { try time() }
        try recordAbsence(until: clock)
        let result = try sweepRows(now: min(now, clock), limit: limit, jobSlack: jobSlack)
        journal.noteAlive(at: clock, isResuming: false)
        return result
    }

    func nextExpiry(jobSlack: UInt64) throws -> UInt64? {
        // If the database's time is behind broker time, `sweep` goes by it. Then come later.
        let now = journal.now()
        let ahead = now - min(now, try time())
        return [try earliestExpiry(jobSlack: jobSlack), try nextDrop(now: now - ahead)].compactMap(\.self).min().map {
            $0 + ahead
        }
    }

    /// Leaves out jobs of another node whose term was not ended. After an outage that node may still know their outcomes.
    func overdueJobs(_ due: UInt64, limit: Int) throws -> [(deadline: UInt64, job: JobID)] {
        try rows(
            """
            SELECT deadline, job FROM job WHERE deadline <= $1 AND NOT EXISTS (SELECT 1 FROM member WHERE name = owner AND name <> $3
            AND held_until > 0) ORDER BY deadline LIMIT $2
            """, .time(due), .number(limit), .text(journal.node?.name ?? ""), read: Transaction.key)
    }

    /// The time outside of transactions, unix ms: the agreed time, and never before the log's latest window.
    func time() throws -> UInt64 {
        let clock = try only("SELECT coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)", databaseClock) {
            $0.time(0)
        }
        let latest = try latestWindow()
        return max(try journal.agreed(on: clock, latest: latest).clock, latest * 1_000)
    }

    /// The server's table of locks is shared by all sessions.
    var mostLocked: Int? { 200 }

    func purgeTokens(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purged(
            rows(
                """
                DELETE FROM token WHERE expires <= $1 AND (expires, purge_id) IN (SELECT expires, purge_id FROM token
                WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING expires, purge_id, is_long
                """, .time(now), .number(limit), read: Self.purge))
    }

    func purgeRegistrations(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purged(
            rows(
                """
                DELETE FROM registration WHERE expires <= $1 AND (expires, purge_id) IN (SELECT expires, purge_id FROM registration
                WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING expires, purge_id, is_long
                """, .time(now), .number(limit), read: Self.purge))
    }

    private typealias Purge = (expires: UInt64, id: EntryID, isLong: Bool)

    private static func purge(_ row: any Row) throws -> Purge { (row.time(0), try row.id(1), row.bool(2)) }

    private func purged(_ purges: [Purge]) throws -> [UInt64] {
        for purge in purges { try record(.purged(purge.id, .ended, expires: purge.expires, isLong: purge.isLong)) }
        return purges.map(\.expires)
    }

    func deleteRooms(upTo expires: UInt64, _ room: Digest) throws -> [Digest?] {
        // The first condition tells the server which partitions it needs.
        try rows(
            "DELETE FROM room WHERE expires <= $1 AND (expires, room) <= ($1, $2) RETURNING code", .time(expires), .digest(room)
        ) { try $0.digestOrNil(0) }
    }

    func counts() throws -> StoreCounts { try counts(waitingEntries: waitingEntries()) }

    func waitingEntries() throws -> Int {
        try count(
            """
            SELECT (SELECT count(*) FROM entry)
            + (SELECT coalesce(sum(count), 0)::bigint FROM unpublished WHERE first + count > (SELECT published FROM log))
            + (SELECT count(*) FROM unsequenced WHERE batch <= (SELECT max(moment) FROM batch))
            """)
    }
}

// Partitions are made when their first row comes, and dropped when all in them has expired or is in the log.
extension PostgresDatabase {
    /// Makes the partitions for inserted rows.
    /// - Parameter rows: their statements, and the values of their first columns.
    /// - Returns: false if all exist.
    func makePartitions(for rows: [(sql: StaticString, value: Int64)]) throws -> Bool {
        var starts: [String: Set<UInt64>] = [:]
        for (sql, value) in rows {
            // The table is the third word of an INSERT.
            let words = sql.description.split(separator: " ", maxSplits: 3)
            guard let kind = PostgresSchema.partitioned.first(where: { $0.table == words[2] }), value >= 0 else { continue }
            starts[kind.table, default: []].insert(kind.start(of: UInt64(value)))
        }
        var hasMade = false
        for (table, starts) in starts {
            for start in starts {
                if try makePartition(table, Int64(clamping: start)) { hasMade = true }
            }
        }
        return hasMade
    }

    /// Makes the partition for a row, unless another connection has made it.
    /// - Parameter value: of the row's first column.
    /// - Returns: false if it exists.
    /// - Throws: `.unavailable` if a table of its name was detached, or is being detached.
    @discardableResult
    func makePartition(_ table: String, _ value: Int64) throws -> Bool {
        guard let kind = PostgresSchema.partitioned.first(where: { $0.table == table }), value >= 0 else { return false }
        let start = kind.start(of: UInt64(value))
        // No parameters are allowed here. All parts are names and numbers of the program.
        let name = "\(table)_\(start)"
        return try write(isSignOfLife: false) {
            try lock([.partitions], for: #function)
            let isAttached = try first(
                """
                SELECT relispartition AND NOT coalesce(inhdetachpending, false) FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid
                WHERE oid = to_regclass($1)
                """, .text(name)
            ) { $0.bool(0) }
            if let isAttached {
                guard !isAttached else { return false }
                // Its rows may be all that is left of some tokens, so only the operator can decide.
                throw StoreError.unavailable(
                    "the table \(name) was detached from \(table). Attach it again, or drop it if it is empty")
            }
            // It has no CHECK of its bounds, which each insert would parse again: ATTACH makes them refuse the same rows.
            try queue(text: "CREATE TABLE \(name) (LIKE \(table) INCLUDING DEFAULTS) WITH (\(kind.storage))")
            try queue(text: PostgresSchema.withoutStatistics(PostgresSchema.definition(table), partition: name))
            try queue(text: "ALTER TABLE \(table) ATTACH PARTITION \(name) FOR VALUES FROM (\(start)) TO (\(start + kind.width))")
            return true
        }
    }

    /// A table with the name of a partition. A crash between detaching and dropping it leaves it without a parent.
    private struct Partition {
        let name: String
        let parent: String
        let isDetaching: Bool
        let isIndexed: Bool
        let table: String
        /// The first value of its first column.
        let start: UInt64
        /// When all its rows have certainly expired, unix ms. For waiting entries: 0 once all are in the log, otherwise nil.
        let end: UInt64?
    }

    /// Returns those that are being detached first: until that is done, no other partition of their table can be detached.
    private func partitions() throws -> [Partition] {
        try rows(
            """
            SELECT c.relname::text, coalesce(p.relname::text, ''), coalesce(i.inhdetachpending, false),
            EXISTS (SELECT 1 FROM pg_index WHERE indrelid = c.oid), (SELECT sequenced FROM schedule) FROM pg_class c
            LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
            WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
            AND c.relname ~ '^(room|token|job|registration|waiting)_[0-9]+$'
            """
        ) { row in
            let parts = row.text(0).split(separator: "_")
            let (table, start) = (String(parts[0]), UInt64(parts[1]) ?? .max)
            var end: UInt64?
            if table == PostgresSchema.waitingTable {
                end = start <= row.time(4) ? 0 : nil
            } else if let kind = PostgresSchema.partitioned.first(where: { $0.table == table }), start < .max / 2 {
                end = start + kind.width + Self.partitionSlack
            }
            return Partition(
                name: row.text(0), parent: row.text(1), isDetaching: row.bool(2), isIndexed: row.bool(3), table: table,
                start: start, end: end)
        }.sorted { ($0.isDetaching ? 0 : 1, $0.start) < ($1.isDetaching ? 0 : 1, $1.start) }
    }

    /// Returns the partitions with waiting entries that the log lacks, by boundary.
    func waitingBatches() throws -> [(number: Int64, isIndexed: Bool)] {
        try partitions().filter { $0.table == PostgresSchema.waitingTable && $0.end == nil }.map {
            (Int64(clamping: $0.start), $0.isIndexed)
        }.sorted { $0.number < $1.number }
    }

    /// Drops the partitions in which everything has expired and nothing is left, and those of batches that are in the log. Waits for transactions
    /// that use the table, but makes none wait.
    private func dropPartitions(expiredBy now: UInt64) throws {
        var failure: String?
        func note(_ reason: String, _ table: String, _ remedy: String) {
            if failure == nil {
                failure =
                    "an old partition of \(table) can't be dropped (\(reason)). Its deleted rows stay on the disk. \(remedy)"
            }
        }
        for partition in try read({ try partitions() }) {
            guard let end = partition.end, end <= now else { continue }
            do {
                if try !drop(partition), partition.parent.isEmpty {
                    note("it was detached and has rows", partition.table, "Attach it again, or drop it")
                }
            } catch let error as PostgresError where !error.endsSession {
                // Another node has dropped it.
                if error.isNoTable { continue }
                // The other partitions don't wait for this one.
                note("\(error)", partition.table, "End the command or session that reads the table")
            }
        }
        journal.note(undropped: failure)
    }

    /// - Returns: false if it has rows.
    private func drop(_ partition: Partition) throws -> Bool {
        // One that is being detached was empty before.
        guard try partition.isDetaching || partition.table == PostgresSchema.waitingTable || isEmpty(partition.name) else {
            return false
        }
        if !partition.parent.isEmpty {
            let how = partition.isDetaching ? "FINALIZE" : "CONCURRENTLY"
            try runAlone(["ALTER TABLE \(partition.parent) DETACH PARTITION \(partition.name) \(how)"])
        }
        try runAlone(["DROP TABLE IF EXISTS \(partition.name)"])
        return true
    }

    /// Returns when a scrub can drop the next partition, unix ms.
    func nextDrop(now: UInt64) throws -> UInt64? {
        guard dropsPartitions else { return nil }
        // A partition that could not be dropped is tried again.
        return try partitions().compactMap(\.end).min().map { $0 > now ? $0 : now + 20_000 }
    }

    /// Only the node that leads drops partitions. A former leader may still try, so a missing partition is no error.
    private var dropsPartitions: Bool { journal.node == nil || journal.leaseTerm != nil }

    private func isEmpty(_ partition: String) throws -> Bool {
        try read { try count(text: "SELECT count(*) FROM (SELECT 1 FROM \(partition) LIMIT 1) AS rows") == 0 }
    }

    /// A node's clock may be behind.
    private static let partitionSlack: UInt64 = 120_000

    /// Lets the server write out and forget the write-ahead log of purged rows.
    func scrub(now: UInt64) throws {
        try connect()
        try runAlone(["SELECT pg_switch_wal()"])
        try runAlone(["CHECKPOINT"])
        // A long read elsewhere delays this, and must not delay the above.
        if dropsPartitions { try dropPartitions(expiredBy: min(now, try read { try time() })) }
    }
}

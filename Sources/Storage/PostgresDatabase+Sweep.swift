import Ledger
import Vocabulary

// A sweep is several transactions, each for rows of one kind. So it never holds a row while it waits for another kind of lock.
extension PostgresDatabase {
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        var result = SweepResult()
        // A node whose clock is ahead must not purge what has not expired.
        let (now, clock) = try read {
            let clock = try time()
            return (min(now, clock), clock)
        }
        try recordAbsence(until: clock)
        let jobsDue = now - min(now, jobSlack)
        let due = try read {
            try rows(
                """
                SELECT EXISTS (SELECT 1 FROM job WHERE deadline <= $1), EXISTS (SELECT 1 FROM room WHERE due <= $2),
                EXISTS (SELECT 1 FROM token WHERE expires <= $2), EXISTS (SELECT 1 FROM room WHERE expires <= $2),
                EXISTS (SELECT 1 FROM registration WHERE expires <= $2)
                """, .time(jobsDue), .time(now)
            ) { row in (0..<5).map { row.int($0) != 0 } }[0]
        }
        // Jobs first, so that an outcome precedes its token's purge.
        if due[0] { result.jobs = try sweeping { try transaction.end(try orphanedJobs(due: jobsDue, limit: limit), .unknown) } }
        var isMore = result.jobs == limit
        if due[1] {
            let ended = try sweeping { try endDueRooms(now, limit: min(limit, Self.mostLocked)) }
            result.codes += ended.codes
            result.rooms += ended.rooms
            result.tokens += ended.tokens
            result.retries += ended.retries
            result.ends += ended.ends
            isMore = isMore || ended.more
        }
        var tokensAreGone = true
        if due[2] {
            let ends = try sweeping { try purgeTokens(expiredBy: now, limit: limit) }
            result.tokens += ends.count
            result.ends += ends
            tokensAreGone = ends.count < limit
            isMore = isMore || !tokensAreGone
        }
        if due[3], tokensAreGone {
            let limit = min(limit, Self.mostLocked)
            let rooms = try sweeping { try deleteRooms(expiredBy: now, limit: limit) }
            result.rooms += rooms
            isMore = isMore || rooms == limit
        }
        if due[4] {
            let ends = try sweeping { try purgeRegistrations(expiredBy: now, limit: limit) }
            result.tokens += ends.count
            result.ends += ends
            isMore = isMore || ends.count == limit
        }
        let others = try sweeping { try deleteOthers(expiredBy: now, limit: limit) }
        result.others = others.count
        result.more = isMore || others.isMore
        // A frozen batch may have been waiting for these purges.
        try settle()
        journal.noteAlive(at: clock, isResuming: false)
        return result
    }

    func forgetAll(limit: Int) throws -> SweepResult {
        var result = SweepResult()
        result.jobs = try sweeping { try transaction.endJobs(due: .max, limit: limit, .unsent) }
        result.tokens = try sweeping { try purgeTokens(expiredBy: .max, limit: limit).count }
        let roomLimit = min(limit, Self.mostLocked)
        if result.jobs < limit, result.tokens < limit {
            result.rooms = try sweeping { try deleteRooms(expiredBy: .max, limit: roomLimit) }
        }
        let registrations = try sweeping { try purgeRegistrations(expiredBy: .max, limit: limit).count }
        let others = try sweeping { try deleteOthers(expiredBy: .max, limit: limit) }
        result.more =
            result.jobs == limit || result.tokens == limit || result.rooms == roomLimit || registrations == limit || others.isMore
        result.tokens += registrations
        result.others = others.count
        return result
    }

    /// Returns due jobs, except those of another node whose term was not ended. After an outage that node may still know their outcomes.
    private func orphanedJobs(due: UInt64, limit: Int) throws -> [(deadline: UInt64, job: JobID)] {
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

    /// One node sweeps at a time. Otherwise two would wait for each other's rows.
    private func sweeping<Value>(_ body: () throws -> Value) throws -> Value {
        try write {
            try lockFirst(.sweep)
            return try body()
        }
    }

    /// Rooms that one transaction locks. The server's table of locks is shared by all sessions.
    private static let mostLocked = 200

    /// Ends codes and answers that are due. Requests may change the same rooms meanwhile, so each room is read again under its locks.
    private func endDueRooms(_ now: UInt64, limit: Int) throws -> SweepResult {
        var result = SweepResult()
        let found = try transaction.dueRooms(now, limit: limit)
        try lock(found.flatMap { [LockKey.room($0.room.room), .code($0.code.index)] }, for: #function)
        let locked = Set(found.map(\.room.room))
        for joinable in try transaction.dueRooms(now, limit: limit) where locked.contains(joinable.room.room) {
            let hasEnded = joinable.room.expires <= now
            guard hasEnded || joinable.code.expires <= now else {
                try transaction.forgetAnswer(joinable)
                result.retries += 1
                continue
            }
            let purged = hasEnded ? (rooms: 1, tokens: try transaction.delete(joinable.room)) : try transaction.end(joinable)
            result.codes += 1
            result.rooms += purged.rooms
            result.tokens += purged.tokens
            for _ in 0..<purged.tokens { result.ends.append(joinable.room.ends) }
        }
        result.more = found.count == limit
        return result
    }

    /// - Returns: the expiry of each purged token.
    private func purgeTokens(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purged(
            rows(
                """
                DELETE FROM token WHERE expires <= $1 AND (expires, purge_id) IN (SELECT expires, purge_id FROM token
                WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING expires, purge_id, is_long
                """, .time(now), .number(limit), read: Self.purge))
    }

    /// `deleteOthers` deletes their indexes.
    /// - Returns: the expiry of each purged registration.
    private func purgeRegistrations(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purged(
            rows(
                """
                DELETE FROM registration WHERE expires <= $1 AND (expires, purge_id) IN (SELECT expires, purge_id FROM registration
                WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING expires, purge_id, is_long
                """, .time(now), .number(limit), read: Self.purge))
    }

    private typealias Purge = (expires: UInt64, id: EntryID, isLong: Bool)

    private static func purge(_ row: any Row) throws -> Purge { (row.time(0), try row.id(1), row.int(2) != 0) }

    private func purged(_ purges: [Purge]) throws -> [UInt64] {
        for purge in purges { try record(.purged(purge.id, .ended, expires: purge.expires, isLong: purge.isLong)) }
        return purges.map(\.expires)
    }

    /// - Returns: the number of deleted rooms.
    private func deleteRooms(expiredBy now: UInt64, limit: Int) throws -> Int {
        let rooms = try rows(
            "SELECT expires, room FROM room WHERE expires <= $1 ORDER BY expires, room LIMIT $2", .time(now), .number(limit)
        ) { ($0.time(0), try $0.digest(1)) }
        guard let last = rooms.last else { return 0 }
        try lock(rooms.map { .room($0.1) }, for: #function)
        let codes = try rows(
            "DELETE FROM room WHERE expires <= $1 AND (expires, room) <= ($1, $2) RETURNING code", .time(last.0), .digest(last.1)
        ) { try $0.digestOrNil(0) }
        for case let code? in codes { try transaction.forget(code: code) }
        return codes.count
    }

    func counts() throws -> StoreCounts {
        var counts = try rowCounts()
        counts.waitingEntries = try waitingEntries()
        return counts
    }

    func waitingEntries() throws -> Int {
        try rows(
            """
            SELECT (SELECT count(*) FROM entry)
            + (SELECT coalesce(sum(count), 0)::bigint FROM unpublished WHERE first + count > (SELECT published FROM log))
            + (SELECT count(*) FROM waiting WHERE batch <= (SELECT max(moment) FROM batch))
            """
        ) { Int($0.int(0)) }[0]
    }
}

extension CodeRecord {
    fileprivate var index: Digest {
        switch self {
        case .pending(let code): code.code
        case .used(let code): code.code
        }
    }
}

// Partitions are made when their first row comes, and dropped when all in them has expired.
extension PostgresDatabase {
    /// Makes the partition for a row, unless another connection has made it.
    func makePartition(_ table: String, _ expires: Int64) throws {
        guard let kind = PostgresSchema.partitioned.first(where: { $0.table == table }), expires >= 0 else { return }
        let start = UInt64(expires) / kind.width * kind.width
        // No parameters are allowed here. All parts are names and numbers of the program.
        let (name, column) = ("\(table)_\(start)", table == "job" ? "deadline" : "expires")
        let end = start + kind.width
        try write(isSignOfLife: false) {
            try lock([.partitions], for: #function)
            guard try !exists("SELECT 1 WHERE to_regclass($1) IS NOT NULL", .text(name)) else { return }
            try queue(
                text: """
                    CREATE TABLE \(name) (LIKE \(table) INCLUDING DEFAULTS, CHECK (\(column) >= \(start) AND \(column) < \(end)))
                    WITH (autovacuum_vacuum_scale_factor = 0.05)
                    """)
            try queue(text: PostgresSchema.withoutStatistics(PostgresSchema.definition(table), partition: name))
            try queue(text: "ALTER TABLE \(table) ATTACH PARTITION \(name) FOR VALUES FROM (\(start)) TO (\(end))")
        }
    }

    /// A table with the name of a partition. A crash between detaching and dropping it leaves it without a parent.
    private struct Partition {
        let name: String
        let parent: String
        let isDetaching: Bool
        /// When all rows have expired, also by a clock that is behind. Unix ms.
        let end: UInt64
    }

    private func partitions() throws -> [Partition] {
        try rows(
            """
            SELECT c.relname::text, coalesce(p.relname::text, ''), coalesce(i.inhdetachpending, false) FROM pg_class c
            LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
            WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname ~ '^(room|token|job|registration)_[0-9]+$'
            """
        ) { row in
            let parts = row.text(0).split(separator: "_")
            let width = PostgresSchema.partitioned.first { $0.table == parts[0] }?.width ?? 0
            let (end, isTooLarge) = (UInt64(parts[1]) ?? .max).addingReportingOverflow(width + Self.partitionSlack)
            return Partition(
                name: row.text(0), parent: row.text(1), isDetaching: row.int(2) != 0, end: isTooLarge ? .max : end)
        }
    }

    /// Drops the partitions in which everything has expired and nothing is left. Waits for no writer and lets none wait.
    func dropPartitions(expiredBy now: UInt64) throws {
        for partition in try read({ try partitions() }) where partition.end <= now {
            if !partition.parent.isEmpty {
                guard try isEmpty(partition.name) else { continue }
                let how = partition.isDetaching ? "FINALIZE" : "CONCURRENTLY"
                try runAlone(["ALTER TABLE \(partition.parent) DETACH PARTITION \(partition.name) \(how)"])
            }
            try runAlone(["DROP TABLE \(partition.name)"])
        }
    }

    /// Returns when a scrub can drop the next partition, unix ms.
    func nextDrop(now: UInt64) throws -> UInt64? {
        guard dropsPartitions else { return nil }
        // A partition that could not be dropped is tried again.
        return try partitions().map(\.end).min().map { $0 > now ? $0 : now + 20_000 }
    }

    /// Two nodes can't drop the same one.
    private var dropsPartitions: Bool { journal.node == nil || journal.leaseTerm != nil }

    private func isEmpty(_ partition: String) throws -> Bool {
        try read { try count(text: "SELECT count(*) FROM (SELECT 1 FROM \(partition) LIMIT 1) AS rows") == 0 }
    }

    /// A node's clock may be behind.
    private static let partitionSlack: UInt64 = 120_000

    /// Lets the server write out and forget the write-ahead log of purged rows.
    func scrub(now: UInt64) throws {
        try connect()
        if dropsPartitions { try dropPartitions(expiredBy: min(now, try read { try time() })) }
        try runAlone(["SELECT pg_switch_wal()"])
        try runAlone(["CHECKPOINT"])
    }
}

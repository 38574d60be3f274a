import Ledger
import SQLite

extension Tables {
    /// Purges what is due at `now`, at most `limit` rows of each kind. Never refused because the ledger is behind.
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        var result = SweepResult()

        // Jobs first: their outcome stands before their token's purge.
        let overdue = try jobs(due: now - min(now, jobSlack), limit: limit)
        for job in overdue { try finish(job, JobOutcome(status: 0, reason: .unknown)) }
        result.jobs = overdue.count

        let due = try due(now, limit: limit)
        for joinable in due {
            guard joinable.code.expires <= now else {
                try forgetRetry(joinable)
                result.retries += 1
                continue
            }
            let purged = try end(joinable)
            result.codes += 1
            result.rooms += purged.rooms
            result.tokens += purged.tokens
        }

        // Tokens go by their own key, all of one expiry together; their rooms, which end at the same time, after them.
        let tokens = try rows(
            "SELECT expires, ref FROM token WHERE expires <= ? ORDER BY expires LIMIT ?", .time(now), .number(limit)
        ) {
            ($0.time(0), $0.blob(1))
        }
        for (expires, ref) in tokens where try purge(ref, expires: expires, cause: .expired) { result.tokens += 1 }
        if tokens.count < limit {
            result.rooms += try run(
                """
                DELETE FROM room WHERE (expires, room) IN (SELECT expires, room FROM room WHERE expires <= ? ORDER BY expires LIMIT ?)
                """, .time(now), .number(limit))
        }

        result.more = overdue.count == limit || due.count == limit || tokens.count == limit || result.rooms >= limit
        return result
    }

    /// Purges everything, at most `limit` rows of each kind.
    func forgetAll(limit: Int) throws -> SweepResult {
        var result = SweepResult()
        let jobs = try jobs(due: UInt64(Int64.max), limit: limit)
        for job in jobs { try finish(job, JobOutcome(status: 0, reason: .roomClosed)) }
        result.jobs = jobs.count
        let tokens = try rows("SELECT expires, ref FROM token LIMIT ?", .number(limit)) { ($0.time(0), $0.blob(1)) }
        for (expires, ref) in tokens where try purge(ref, expires: expires, cause: .roomClosed) { result.tokens += 1 }
        if jobs.count < limit, tokens.count < limit {
            result.rooms = try run(
                "DELETE FROM room WHERE (expires, room) IN (SELECT expires, room FROM room LIMIT ?)", .number(limit))
        }
        result.more = jobs.count == limit || tokens.count == limit || result.rooms == limit
        return result
    }

    /// Purges what must be gone before the log speaks of the present window: tokens whose `until` it has reached.
    ///
    /// The sweeper does so in time. But with one entry of a later time before a purge, and the broker killed between the two, the
    /// purge could never be excused: so the two are one transaction.
    func purgeOverdue(limit: Int) throws {
        let reached = Entry.Op.epochStart(journal.upcoming * 1_000)
        guard reached > clearedUntil else { return }
        let tokens = try rows(
            "SELECT expires, ref FROM token WHERE expires < ? ORDER BY expires LIMIT ?", .time(reached), .number(limit)
        ) {
            ($0.time(0), $0.blob(1))
        }
        for (expires, ref) in tokens { try purge(ref, expires: expires, cause: .expired) }
        if tokens.count < limit { clearedUntil = reached }
    }

    func nextExpiry(jobSlack: UInt64) throws -> UInt64? {
        let dues: [UInt64?] = [
            try earliest("SELECT min(expires) FROM room"),
            try earliest("SELECT min(due) FROM room WHERE due IS NOT NULL"),
            try earliest("SELECT min(deadline) FROM job").map { $0 + jobSlack },
        ]
        return dues.compactMap(\.self).min()
    }

    private func earliest(_ sql: StaticString) throws -> UInt64? {
        try rows(sql) { $0.isNull(0) ? nil : $0.time(0) }[0]
    }

    func counts() throws -> StoreCounts {
        func count(_ sql: StaticString) throws -> Int { try rows(sql) { Int($0.int(0)) }[0] }
        var counts = StoreCounts()
        counts.rooms = try count("SELECT count(*) FROM room")
        counts.tokens = try count("SELECT count(*) FROM token")
        counts.codes = try count("SELECT count(*) FROM room INDEXED BY room_due WHERE due IS NOT NULL AND pending IS NOT NULL")
        counts.jobs = try count("SELECT count(*) FROM job")
        counts.waitingEntries = journal.waiting
        return counts
    }
}

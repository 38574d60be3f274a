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
            let hasEnded = joinable.room.expires <= now
            guard hasEnded || joinable.code.expires <= now else {
                try forgetRetry(joinable)
                result.retries += 1
                continue
            }
            let purged = hasEnded ? (rooms: 1, tokens: try delete(joinable.room, cause: .expired)) : try end(joinable)
            result.codes += 1
            result.rooms += purged.rooms
            result.tokens += purged.tokens
            for _ in 0..<purged.tokens { result.ends.append(joinable.room.ends) }
        }

        // Tokens go by their own key, all of one expiry together; their rooms, which end at the same time, after them.
        let ends = try purgeTokens(expiredBy: now, limit: limit)
        result.tokens += ends.count
        result.ends += ends
        if ends.count < limit { result.rooms += try deleteRooms(expiredBy: now, limit: limit) }

        result.more = overdue.count == limit || due.count == limit || ends.count == limit || result.rooms >= limit
        result.tokens += self.overdue.count
        result.ends += self.overdue
        self.overdue = []
        return result
    }

    /// Purges everything, at most `limit` rows of each kind.
    func forgetAll(limit: Int) throws -> SweepResult {
        var result = SweepResult()
        let jobs = try jobs(due: .max, limit: limit)
        for job in jobs { try finish(job, JobOutcome(status: 0, reason: .roomClosed)) }
        result.jobs = jobs.count
        result.tokens = try purgeTokens(expiredBy: .max, limit: limit, cause: .roomClosed).count
        if jobs.count < limit, result.tokens < limit { result.rooms = try deleteRooms(expiredBy: .max, limit: limit) }
        result.more = jobs.count == limit || result.tokens == limit || result.rooms == limit
        return result
    }

    /// Purges the tokens that expired first, together: they are neighbours.
    /// - Returns: when each was to end.
    private func purgeTokens(
        expiredBy now: UInt64, limit: Int, cause: Entry.PurgeCause = .expired
    ) throws -> [UInt64] {
        let tokens = try rows(
            "SELECT expires, ref FROM token WHERE expires <= ? ORDER BY expires, ref LIMIT ?", .time(now), .number(limit)
        ) { ($0.time(0), $0.blob(1)) }
        guard let last = tokens.last else { return [] }
        let gone = try run("DELETE FROM token WHERE (expires, ref) <= (?, ?)", .time(last.0), .blob(last.1))
        guard gone == tokens.count else { throw StoreError.damaged("\(gone) tokens in place of \(tokens.count)") }
        for (_, ref) in tokens { try record(.purged(ref, cause)) }
        return tokens.map(\.0)
    }

    /// - Returns: how many.
    private func deleteRooms(expiredBy now: UInt64, limit: Int) throws -> Int {
        let rooms = try rows(
            "SELECT expires, room FROM room WHERE expires <= ? ORDER BY expires, room LIMIT ?", .time(now), .number(limit)
        ) { ($0.time(0), $0.blob(1)) }
        guard let last = rooms.last else { return 0 }
        return try run("DELETE FROM room WHERE (expires, room) <= (?, ?)", .time(last.0), .blob(last.1))
    }

    /// Purges what must be gone before the log speaks of the present window: tokens whose `until` it has reached.
    ///
    /// The sweeper does so in time. But with one entry of a later time before a purge, and the broker killed between the two, the
    /// purge could never be excused: so the two are one transaction, however many there are.
    func purgeOverdue() throws {
        let reached = Entry.Op.epochStart(journal.upcoming * 1_000)
        guard reached > clearedUntil else { return }
        var ends: [UInt64]
        repeat {
            ends = try purgeTokens(expiredBy: reached - 1, limit: Self.overdueAtOnce)
            overdue += ends
        } while ends.count == Self.overdueAtOnce
        clearedUntil = reached
    }

    /// Read into memory together.
    private static let overdueAtOnce = 10_000

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

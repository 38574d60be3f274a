import Ledger
import SQLite
import Vocabulary

extension SQLiteDatabase {
    /// Purges rows due at `now`, at most `limit` of each kind. A ledger backlog doesn't prevent it.
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        var result = SweepResult()

        // Jobs first, so that an outcome precedes its token's purge.
        let overdue = try transaction.endJobs(due: now - min(now, jobSlack), limit: limit, .unknown)
        result.jobs = overdue

        let due = try transaction.dueRooms(now, limit: limit)
        for joinable in due {
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

        // All tokens of one expiry go together, by their own key. Their rooms expire at the same time and go after them.
        let ends = try purgeTokens(expiredBy: now, limit: limit)
        result.tokens += ends.count
        result.ends += ends
        if ends.count < limit { result.rooms += try deleteRooms(expiredBy: now, limit: limit) }

        let registrations = try purgeRegistrations(expiredBy: now, limit: limit)
        result.tokens += registrations.count
        result.ends += registrations
        let others = try deleteOthers(expiredBy: now, limit: limit)
        result.others = others.count

        result.more =
            overdue == limit || due.count == limit || ends.count == limit || result.rooms >= limit
            || registrations.count == limit || others.isMore
        // A frozen batch may have been waiting for these purges.
        try settleBatches()
        return result
    }

    /// Purges everything, at most `limit` rows of each kind.
    func forgetAll(limit: Int) throws -> SweepResult {
        var result = SweepResult()
        let jobs = try transaction.endJobs(due: .max, limit: limit, .unsent)
        result.jobs = jobs
        result.tokens = try purgeTokens(expiredBy: .max, limit: limit).count
        if jobs < limit, result.tokens < limit { result.rooms = try deleteRooms(expiredBy: .max, limit: limit) }
        let registrations = try purgeRegistrations(expiredBy: .max, limit: limit).count
        let others = try deleteOthers(expiredBy: .max, limit: limit)
        result.more =
            jobs == limit || result.tokens == limit || result.rooms == limit || registrations == limit || others.isMore
        result.tokens += registrations
        result.others = others.count
        return result
    }

    /// Purges the tokens that expired first. They are adjacent in the table, so one statement deletes them.
    /// - Returns: the expiry of each.
    private func purgeTokens(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purge(
            "SELECT expires, purge_id, is_long FROM token WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2",
            "DELETE FROM token WHERE (expires, purge_id) <= ($1, $2)", expiredBy: now, limit: limit)
    }

    /// Purges the registrations that expired first. `deleteOthers` deletes their indexes.
    /// - Returns: the expiry of each.
    private func purgeRegistrations(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purge(
            "SELECT expires, purge_id, is_long FROM registration WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2",
            "DELETE FROM registration WHERE (expires, purge_id) <= ($1, $2)", expiredBy: now, limit: limit)
    }

    private func purge(
        _ select: StaticString, _ delete: StaticString, expiredBy now: UInt64, limit: Int
    ) throws -> [UInt64] {
        let tokens = try rows(select, .time(now), .number(limit)) { ($0.time(0), try $0.id(1) as EntryID, $0.int(2) != 0) }
        guard let last = tokens.last else { return [] }
        let deleted = try run(delete, .time(last.0), .id(last.1))
        guard deleted == tokens.count else { throw StoreError.damaged("\(deleted) tokens in place of \(tokens.count)") }
        for (expires, purgeID, isLong) in tokens { addPurged(purgeID, .ended, expires: expires, isLong: isLong) }
        return tokens.map(\.0)
    }

    /// - Returns: the number of deleted rooms.
    private func deleteRooms(expiredBy now: UInt64, limit: Int) throws -> Int {
        let rooms = try rows(
            "SELECT expires, room, code FROM room WHERE expires <= $1 ORDER BY expires, room LIMIT $2", .time(now), .number(limit)
        ) { ($0.time(0), try $0.digest(1), try $0.digestOrNil(2)) }
        guard let last = rooms.last else { return 0 }
        for case (_, _, let code?) in rooms { try transaction.forget(code: code) }
        return try run("DELETE FROM room WHERE (expires, room) <= ($1, $2)", .time(last.0), .digest(last.1))
    }

    func counts() throws -> StoreCounts {
        var counts = try rowCounts()
        counts.waitingEntries = journal.books.waiting
        return counts
    }
}

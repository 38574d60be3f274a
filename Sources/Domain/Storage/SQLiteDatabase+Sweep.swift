import Ledger
import SQLite
import Vocabulary

extension SQLiteDatabase {
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        let result = try sweepRows(now: now, limit: limit, jobSlack: jobSlack)
        isSweeping = result.more
        return result
    }

    func nextExpiry(jobSlack: UInt64) throws -> UInt64? { try earliestExpiry(jobSlack: jobSlack) }

    func overdueJobs(_ due: UInt64, limit: Int) throws -> [(deadline: UInt64, job: JobID)] {
        try transaction.dueJobs(due, limit: limit)
    }

    // Tokens that expire together are adjacent in their table, so one statement deletes them.

    func purgeTokens(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purge(
            "SELECT expires, purge_id, is_long FROM token WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2",
            "DELETE FROM token WHERE (expires, purge_id) <= ($1, $2)", expiredBy: now, limit: limit)
    }

    func purgeRegistrations(expiredBy now: UInt64, limit: Int) throws -> [UInt64] {
        try purge(
            "SELECT expires, purge_id, is_long FROM registration WHERE expires <= $1 ORDER BY expires, purge_id LIMIT $2",
            "DELETE FROM registration WHERE (expires, purge_id) <= ($1, $2)", expiredBy: now, limit: limit)
    }

    private func purge(
        _ select: StaticString, _ delete: StaticString, expiredBy now: UInt64, limit: Int
    ) throws -> [UInt64] {
        let tokens = try rows(select, .time(now), .number(limit)) { ($0.time(0), try $0.id(1) as EntryID, $0.bool(2)) }
        guard let last = tokens.last else { return [] }
        try queue(delete, .time(last.0), .id(last.1), expecting: tokens.count)
        for (expires, purgeID, isLong) in tokens { try record(.purged(purgeID, .ended, expires: expires, isLong: isLong)) }
        return tokens.map(\.0)
    }

    func deleteRooms(upTo expires: UInt64, _ room: Digest) throws -> [Digest?] {
        // With RETURNING, SQLite would find each row twice.
        let codes = try rows("SELECT code FROM room WHERE (expires, room) <= ($1, $2)", .time(expires), .digest(room)) {
            try $0.digestOrNil(0)
        }
        try queue("DELETE FROM room WHERE (expires, room) <= ($1, $2)", .time(expires), .digest(room), expecting: codes.count)
        return codes
    }

    func counts() throws -> StoreCounts { try counts(waitingEntries: journal.books.waiting) }
}

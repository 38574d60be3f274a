import Vocabulary

// What a sweep deletes without an entry in the ledger, and what will be due next.
extension EngineRows {
    /// Deletes an audience's rows that the ledger doesn't record: at most `limit` of each kind, and the indexes of as many registrations.
    func deleteOthers(expiredBy now: UInt64, limit: Int) throws -> (count: Int, isMore: Bool) {
        // Indexes start with their row's expiry. This is greater than those of expired rows, and at most equal to all others.
        let end = [UInt8](bigEndian: now == .max ? now : now + 1)
        let indexes = try deleteIndexes(before: end, limit: limit * Self.indexesOfOne)
        let others = [
            try change(
                "DELETE FROM session WHERE session IN (SELECT session FROM session WHERE session < $1 ORDER BY session LIMIT $2)",
                .blob(end), .number(limit)),
            try change(
                "DELETE FROM seen WHERE key IN (SELECT key FROM seen WHERE key < $1 ORDER BY key LIMIT $2)", .blob(end),
                .number(limit)),
            try change(
                """
                DELETE FROM timer WHERE (expires, id) IN
                (SELECT expires, id FROM timer WHERE expires <= $1 AND (answer <> 0 OR expires <= $2) ORDER BY expires, id LIMIT $3)
                """, .time(now), .time(now - min(now, Self.timerSlack)), .number(limit)),
        ]
        return (others.reduce(indexes, +), indexes == limit * Self.indexesOfOne || others.contains(limit))
    }

    /// A timer that ran out while no broker ran is kept until it is reported, or until its note's key is certainly destroyed. An epoch's key
    /// lives until the next epoch is over.
    private static var timerSlack: UInt64 { 600_000 }

    private func deleteIndexes(before end: [UInt8], limit: Int) throws -> Int {
        let next = try first(
            "SELECT value, purge_id FROM registration_index WHERE value < $1 ORDER BY value, purge_id LIMIT 1 OFFSET $2",
            .blob(end),
            .number(limit)
        ) { (try $0.digest(0), try $0.id(1) as EntryID) }
        guard let next else { return try change("DELETE FROM registration_index WHERE value < $1", .blob(end)) }
        return try change("DELETE FROM registration_index WHERE (value, purge_id) < ($1, $2)", .digest(next.0), .id(next.1))
    }

    /// The most indexes of a registration: audience, owner, device and session.
    private static var indexesOfOne: Int { 4 }

    func nextExpiry(jobSlack: UInt64) throws -> UInt64? {
        let dues: [UInt64?] = [
            try earliest("SELECT min(expires) FROM room"),
            try earliest("SELECT min(due) FROM room WHERE due IS NOT NULL"),
            try earliest("SELECT min(deadline) FROM job").map { $0 + jobSlack },
            try earliest("SELECT min(expires) FROM registration"),
            try earliest("SELECT min(expires) FROM timer WHERE answer <> 0"),
            try earliest("SELECT min(expires) FROM timer WHERE answer = 0").map { $0 + Self.timerSlack },
            try earliestIndex("SELECT value FROM registration_index ORDER BY value LIMIT 1"),
            try earliestIndex("SELECT session FROM session ORDER BY session LIMIT 1"),
            try earliestIndex("SELECT key FROM seen ORDER BY key LIMIT 1"),
        ]
        return dues.compactMap(\.self).min()
    }

    private func earliestIndex(_ sql: StaticString) throws -> UInt64? {
        try first(sql) { try $0.digest(0).indexExpiry }
    }

    /// Returns the epoch before which everything due at `moment` is purged.
    func sweptEpoch(at moment: UInt64) throws -> UInt64 {
        let due = [
            try earliest("SELECT min(expires) FROM token"), try earliest("SELECT min(expires) FROM registration"),
        ].compactMap(\.self).min()
        return min(moment, due ?? .max) / Self.epochMs
    }

    private static var epochMs: UInt64 { 300_000 }

    /// Counts all rows but those of the ledger.
    func rowCounts() throws -> StoreCounts {
        func count(_ sql: StaticString) throws -> Int { try rows(sql) { Int($0.int(0)) }[0] }
        var counts = StoreCounts()
        counts.rooms = try count("SELECT count(*) FROM room")
        counts.tokens = try count("SELECT count(*) FROM token")
        counts.codes = try count("SELECT count(*) FROM room WHERE due > 0 AND pending IS NOT NULL")
        counts.jobs = try count("SELECT count(*) FROM job")
        counts.registrations = try count("SELECT count(*) FROM registration")
        counts.sessions = try count("SELECT count(*) FROM session")
        counts.timers = try count("SELECT count(*) FROM timer")
        return counts
    }
}

import Vocabulary

// With several writers a sweep is several transactions, each for one kind of row. This shortens how long locks are held.
extension StoreEngine {
    /// Purges rows due at `now`, at most `limit` of each kind. A ledger backlog doesn't prevent it.
    func sweepRows(now: UInt64, limit: Int, jobSlack: UInt64) throws -> SweepResult {
        let jobsDue = now - min(now, jobSlack)
        let isDue = try read {
            try rows(
                """
                SELECT EXISTS (SELECT 1 FROM job WHERE deadline <= $1), EXISTS (SELECT 1 FROM room WHERE due <= $2),
                EXISTS (SELECT 1 FROM token WHERE expires <= $2), EXISTS (SELECT 1 FROM room WHERE expires <= $2),
                EXISTS (SELECT 1 FROM registration WHERE expires <= $2)
                """, .time(jobsDue), .time(now)
            ) { row in (0..<5).map { row.bool($0) } }[0]
        }
        // Jobs first, so that an outcome precedes its token's purge.
        let jobs = isDue[0] ? try sweeping { try transaction.end(try overdueJobs(jobsDue, limit: limit), .unknown) } : 0
        let roomLimit = min(limit, mostLocked ?? limit)
        var result = isDue[1] ? try sweeping { try endDueRooms(now, limit: roomLimit) } : SweepResult()
        result.jobs = jobs
        // All tokens of one expiry go together, by their own key. Their rooms expire at the same time and go after them.
        let tokens = isDue[2] ? try sweeping { try purgeTokens(expiredBy: now, limit: limit) } : []
        if isDue[3], tokens.count < limit {
            let rooms = try sweeping { try deleteRooms(expiredBy: now, limit: roomLimit) }
            result.rooms += rooms
            result.more = result.more || rooms == roomLimit
        }
        let registrations = isDue[4] ? try sweeping { try purgeRegistrations(expiredBy: now, limit: limit) } : []
        result.ends += tokens + registrations
        result.tokens += tokens.count + registrations.count
        let others = try sweeping { try deleteOthers(expiredBy: now, limit: limit) }
        result.others = others.count
        result.more =
            result.more || jobs == limit || tokens.count == limit || registrations.count == limit || others.isMore
        // A frozen batch may have been waiting for these purges.
        try settleBatches()
        return result
    }

    /// Purges everything, at most `limit` rows of each kind.
    func forgetAll(limit: Int) throws -> SweepResult {
        var result = SweepResult()
        result.jobs = try sweeping { try transaction.end(transaction.dueJobs(.max, limit: limit), .unsent) }
        let tokens = try sweeping { try purgeTokens(expiredBy: .max, limit: limit).count }
        let roomLimit = min(limit, mostLocked ?? limit)
        if result.jobs < limit, tokens < limit {
            result.rooms = try sweeping { try deleteRooms(expiredBy: .max, limit: roomLimit) }
        }
        let registrations = try sweeping { try purgeRegistrations(expiredBy: .max, limit: limit).count }
        let others = try sweeping { try deleteOthers(expiredBy: .max, limit: limit) }
        result.more =
            result.jobs == limit || tokens == limit || result.rooms == roomLimit || registrations == limit || others.isMore
        result.tokens = tokens + registrations
        result.others = others.count
        return result
    }

    /// One node sweeps at a time. Otherwise two would wait for each other's rows.
    private func sweeping<Value>(_ body: () throws -> Value) throws -> Value {
        try write {
            try lockFirst(.sweep)
            return try body()
        }
    }

    /// Ends codes and answers that are due.
    private func endDueRooms(_ now: UInt64, limit: Int) throws -> SweepResult {
        var result = SweepResult()
        var due = try transaction.dueRooms(now, limit: limit)
        result.more = due.count == limit
        if mostLocked != nil {
            // Requests may have changed the rooms meanwhile, so they are read again under their locks.
            try lock(due.flatMap { [LockKey.room($0.room.room), .code($0.code.index)] }, for: #function)
            let locked = Set(due.map(\.room.room))
            due = try transaction.dueRooms(now, limit: limit).filter { locked.contains($0.room.room) }
        }
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
        return result
    }

    /// - Returns: the number of deleted rooms.
    private func deleteRooms(expiredBy now: UInt64, limit: Int) throws -> Int {
        let rooms = try rows(
            "SELECT expires, room, code FROM room WHERE expires <= $1 ORDER BY expires, room LIMIT $2", .time(now), .number(limit)
        ) { (expires: $0.time(0), room: try $0.digest(1), code: try $0.digestOrNil(2)) }
        guard let last = rooms.last else { return 0 }
        // A create that reuses a code deletes the old code's row and then its room, under the code's lock only.
        try lock(
            rooms.map { LockKey.room($0.room) } + rooms.compactMap { $0.code.map { LockKey.code($0) } }, for: #function)
        let codes = try deleteRooms(upTo: last.expires, last.room)
        for case let code? in codes { try transaction.forget(code: code) }
        return codes.count
    }

    // MARK: Rows that the ledger doesn't record

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

    /// Returns the earliest time at which a row will be due, or nil if there is none.
    func earliestExpiry(jobSlack: UInt64) throws -> UInt64? {
        let dues: [UInt64?] = [
            try earliest("SELECT min(expires) FROM room"),
            try earliest("SELECT min(due) FROM room WHERE due IS NOT NULL"),
            try earliest("SELECT min(deadline) FROM job").map { $0 + jobSlack },
            try earliest("SELECT min(expires) FROM registration"),
            try earliest("SELECT min(expires) FROM timer WHERE answer <> 0"),
            try earliest("SELECT min(expires) FROM timer WHERE answer = 0").map { $0 + Self.timerSlack },
            try indexExpiry("SELECT value FROM registration_index ORDER BY value LIMIT 1"),
            try indexExpiry("SELECT session FROM session ORDER BY session LIMIT 1"),
            try indexExpiry("SELECT key FROM seen ORDER BY key LIMIT 1"),
        ]
        return dues.compactMap(\.self).min()
    }

    /// Returns the expiry of the first index that a query finds.
    func indexExpiry(_ sql: StaticString) throws -> UInt64? {
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

    /// Counts all rows.
    func counts(waitingEntries: Int) throws -> StoreCounts {
        try StoreCounts(
            rooms: count("SELECT count(*) FROM room"), tokens: count("SELECT count(*) FROM token"),
            codes: count("SELECT count(*) FROM room WHERE due > 0 AND pending IS NOT NULL"),
            jobs: count("SELECT count(*) FROM job"), registrations: count("SELECT count(*) FROM registration"),
            sessions: count("SELECT count(*) FROM session"), timers: count("SELECT count(*) FROM timer"),
            waitingEntries: waitingEntries)
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

public import Vocabulary

// Sessions and printers' runs, and marks against repeats.
extension Transaction {
    /// Returns the session under the first index that has one.
    public func session(_ indexes: [Digest]) throws -> SessionRecord? {
        for index in indexes { if let session = try session(index) { return session } }
        return nil
    }

    private func session(_ index: Digest) throws -> SessionRecord? {
        try first(
            "SELECT generation, started, version, client, registration, reached FROM session WHERE session = $1", .digest(index)
        ) { row in
            try SessionRecord(
                session: index, generation: row.number(0), expires: index.indexExpiry, started: row.time(1),
                version: row.time(2), client: row.digestOrNil(3), registration: row.idOrNil(4),
                reached: row.number(5))
        }
    }

    /// Returns the distinct generations and expiries of all sessions and runs.
    public func sessionSlots() throws -> [(generation: UInt32, expires: UInt64)] {
        // An index starts with the expiry.
        try rows("SELECT DISTINCT generation, substr(session, 1, 8) FROM session") { row in
            var expires: UInt64 = 0
            row.withBlob(1) { expires = $0.bigEndian64(at: 0) }
            return (row.number(0), expires)
        }
    }

    /// Returns true if the session still has the version that was read, and its new index is free.
    func isAsRead(_ change: SessionChange, now: UInt64) throws -> Bool {
        guard case .set(let session, let version, let replaced) = change else { return true }
        guard let replaced, replaced != session.session else { return try live(session.session, now)?.version == version }
        return try live(replaced, now)?.version == version && live(session.session, now) == nil
    }

    /// Returns the session unless it has expired. While the ratchet is held after a clock step, a new session may replace an expired one.
    private func live(_ index: Digest, _ now: UInt64) throws -> SessionRecord? {
        try session(index).flatMap { $0.expires > now ? $0 : nil }
    }

    func make(_ change: SessionChange) throws {
        switch change {
        case .set(let session, _, let replaced):
            if let replaced, replaced != session.session { try delete(session: replaced) }
            try queue(
                """
                INSERT INTO session (session, generation, started, version, client, registration, reached)
                VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (session) DO UPDATE SET generation = excluded.generation,
                started = excluded.started, version = excluded.version, client = excluded.client,
                registration = excluded.registration, reached = excluded.reached
                """, .digest(session.session), .number(session.generation), .time(session.started), .time(session.version),
                .digest(session.client), .id(session.registration), .number(session.reached))
        case .delete(_, let session): try delete(session: session)
        case .restart(let session, let started, let reached):
            try queue(
                "UPDATE session SET started = $1, reached = coalesce($2, reached), version = version + 1 WHERE session = $3",
                .time(started), reached.map { .number($0) } ?? .null, .digest(session), expecting: nil)
        }
    }

    private func delete(session: Digest) throws {
        try queue("DELETE FROM session WHERE session = $1", .digest(session), expecting: nil)
    }

    func isSeen(_ seen: SeenRecord, now: UInt64) throws -> Bool {
        for key in [seen.key] + seen.others where key.indexExpiry > now {
            if try exists("SELECT 1 FROM seen WHERE key = $1", .digest(key)) { return true }
        }
        return false
    }

    func insert(_ seen: SeenRecord) throws {
        try queue("INSERT INTO seen (key) VALUES ($1) ON CONFLICT DO NOTHING", .digest(seen.key), expecting: nil)
    }
}

/// The index for looking up a request by its back end's own id.
public enum RequestNamer: Sendable, CaseIterable {
    case user, creator
}

/// Due timers and updates, and the time of the next ones.
public struct DueWork: Sendable, Equatable {
    /// Timers without an answer by their deadline.
    public var timers: [TimerRecord] = []
    /// Registrations with a waiting update that may be sent.
    public var updates: [RegistrationRecord] = []
    /// Nil if nothing waits. The current time if the limit was reached.
    public var next: UInt64?
}

extension Transaction {
    public func timer(_ id: RequestID) throws -> TimerRecord? {
        try first(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer WHERE id = $1", .id(id),
            read: Self.timer)
    }

    /// Returns the newest timer under one of these indexes of the back end's own id.
    public func timer(named names: [Digest], by namer: RequestNamer) throws -> TimerRecord? {
        let sql: StaticString =
            switch namer {
            case .user:
                """
                SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                WHERE user_name = $1 ORDER BY due DESC LIMIT 1
                """
            case .creator:
                """
                SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                WHERE creator_name = $1 ORDER BY due DESC LIMIT 1
                """
            }
        return try names.compactMap { try first(sql, .digest($0), read: Self.timer) }.max { $0.due < $1.due }
    }

    /// Returns a session's approvals that wait for an answer, oldest first.
    /// - Parameters:
    ///   - indexes: those under which they may be listed.
    ///   - except: an approval that doesn't count.
    public func pendingTimers(listed indexes: [Digest], except: RequestID? = nil, now: UInt64) throws -> [TimerRecord] {
        try indexes.flatMap { index in
            try rows(
                """
                SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                WHERE id IN (SELECT purge_id FROM registration_index WHERE value = $1) AND answer = 0 AND due > $2
                """, .digest(index), .time(now), read: Self.timer)
        }
        .filter { $0.id != except }
        .sorted { ($0.due, $0.id) < ($1.due, $1.id) }
    }

    /// Returns at most `limit` requests that are listed under these indexes, whatever their state.
    public func timers(listed indexes: [Digest], limit: Int) throws -> [TimerRecord] {
        try indexes.flatMap { index in
            try rows(
                """
                SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                WHERE id IN (SELECT purge_id FROM registration_index WHERE value = $1) LIMIT $2
                """, .digest(index), .number(limit), read: Self.timer)
        }
    }

    public func timers() throws -> [TimerRecord] {
        try rows(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer", read: Self.timer)
    }

    private static func timer(_ row: any Row) throws(StoreError) -> TimerRecord {
        try TimerRecord(
            id: row.id(1), due: row.time(2), expires: row.time(0), generation: row.number(3),
            answer: row.number(4), sealed: row.blob(5),
            names: row.isNull(6) ? nil : RequestNames(user: row.digest(6), creator: row.digest(7)))
    }

    /// Returns what is due at `now`, at most `limit` of each kind, earliest first.
    public func due(now: UInt64, limit: Int) throws -> DueWork {
        let timers = try rows(
            """
            SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
            WHERE answer = 0 AND due <= $1 ORDER BY due LIMIT $2
            """, .time(now), .number(limit), read: Self.timer)
        let updates = try dueUpdates(now: now, limit: limit)
        let isMore = timers.count == limit || updates.count == limit
        let next = [
            isMore ? now : nil,
            try earliest("SELECT min(due) FROM timer WHERE answer = 0 AND due > $1", .time(now)),
            try earliest("SELECT min(opens) FROM registration WHERE waiting IS NOT NULL AND opens > $1", .time(now)),
        ]
        return DueWork(timers: timers, updates: updates, next: next.compactMap(\.self).min())
    }

    func make(_ change: TimerChange) throws {
        switch change {
        case .begin(let timer, let listed):
            try queue(
                """
                INSERT INTO timer (expires, id, due, generation, answer, sealed, user_name, creator_name)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                """, .time(timer.expires), .id(timer.id), .time(timer.due), .number(timer.generation), .number(timer.answer),
                .blob(timer.sealed), .digest(timer.names?.user), .digest(timer.names?.creator))
            for index in listed {
                try queue("INSERT INTO registration_index (value, purge_id) VALUES ($1, $2)", .digest(index), .id(timer.id))
            }
        case .settle(let id, let expires, let answer, let listed):
            try queue(
                "UPDATE timer SET answer = $1 WHERE expires = $2 AND id = $3", .number(answer), .time(expires), .id(id))
            for index in listed {
                try queue(
                    "DELETE FROM registration_index WHERE value = $1 AND purge_id = $2", .digest(index), .id(id), expecting: nil)
            }
        }
    }
}

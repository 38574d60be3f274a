import Ledger
import SQLite
import Vocabulary

// Sessions, timers, what was done already, and the changes that an event makes of all.
extension Tables {
    func session(_ indexes: [Digest]) throws -> SessionRecord? {
        for index in indexes {
            if let session = try session(index) { return session }
        }
        return nil
    }

    private func session(_ index: Digest) throws -> SessionRecord? {
        try rows(
            "SELECT generation, started, version, client, registration, reached FROM session WHERE session = ?", .digest(index)
        ) { row in
            try SessionRecord(
                session: index, generation: UInt32(clamping: row.int(0)), expires: index.indexExpiry, started: row.time(1),
                version: row.time(2), client: row.digestOrNil(3), registration: row.idOrNil(4),
                reached: UInt8(clamping: row.int(5)))
        }.first
    }

    func timer(_ id: RequestID) throws -> TimerRecord? {
        try rows(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer WHERE id = ?", .id(id),
            read: Self.timer
        ).first
    }

    func timer(named names: [Digest], by namer: RequestNamer) throws -> TimerRecord? {
        try names.compactMap { name in
            switch namer {
            case .user:
                try rows(
                    """
                    SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                    WHERE user_name = ? ORDER BY due DESC LIMIT 1
                    """, .digest(name), read: Self.timer
                ).first
            case .creator:
                try rows(
                    """
                    SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                    WHERE creator_name = ? ORDER BY due DESC LIMIT 1
                    """, .digest(name), read: Self.timer
                ).first
            }
        }.max { $0.due < $1.due }
    }

    func timers() throws -> [TimerRecord] {
        try rows(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer", read: Self.timer)
    }

    private static func timer(_ row: Statement) throws(StoreError) -> TimerRecord {
        try TimerRecord(
            id: row.id(1), due: row.time(2), expires: row.time(0), generation: UInt32(clamping: row.int(3)),
            answer: UInt8(clamping: row.int(4)), sealed: row.blob(5),
            names: row.isNull(6) ? nil : RequestNames(user: row.digest(6), creator: row.digest(7)))
    }

    func due(now: UInt64, limit: Int) throws -> DueWork {
        var work = DueWork()
        work.timers = try rows(
            """
            SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
            WHERE answer = 0 AND due <= ? ORDER BY due LIMIT ?
            """, .time(now), .number(limit), read: Self.timer)
        work.updates = try rows(
            """
            SELECT expires, purge_id, id, audience, owner, device, session, kind, environment, generation, topic, sealed, preferences,
            details, opens, stamp, waiting, ref, is_long FROM registration WHERE waiting IS NOT NULL AND opens <= ? ORDER BY opens LIMIT ?
            """, .time(now), .number(limit), read: Self.registration)
        let isMore = work.timers.count == limit || work.updates.count == limit
        let next = [
            isMore ? now : nil,
            try earliest("SELECT min(due) FROM timer WHERE answer = 0 AND due > ?", .time(now)),
            try earliest("SELECT min(opens) FROM registration WHERE waiting IS NOT NULL AND opens > ?", .time(now)),
        ]
        work.next = next.compactMap(\.self).min()
        return work
    }

    func apply(_ change: AudienceChange, now: UInt64) throws -> ChangeOutcome {
        try refuseWhenLedgerIsBehind(.knock)
        try change.checkIndexes()
        // All is looked at before anything is done, since what is done stays.
        if let seen = change.seen, try isSeen(seen, now: now) { return .repeated }
        if case .settle(let id, let expires, _) = change.timer {
            guard let timer = try timer(id), timer.expires == expires else { return .changed }
            guard timer.answer == 0 else { return .settled }
        }
        var change = change
        let gone = change.leavesOutGone ? try leaveOutGone(of: &change) : []
        guard try isAsRead(change, now: now) else { return .changed }

        let last = Set(change.purges.map(\.row) + change.jobs.compactMap { $0.purge == nil ? nil : $0.row })
        for push in change.jobs { try insert(push, isLast: last.contains(push.row)) }
        for wait in change.waits {
            try run(
                "UPDATE registration SET waiting = ?, opens = ? WHERE expires = ? AND purge_id = ?", .blob(wait.waiting),
                .time(wait.opens), .time(wait.row.expires), .id(wait.row.purgeID))
        }
        // After all that was opened.
        for push in change.jobs { if let cause = push.purge { try purge(push.row, cause: cause) } }
        for gone in change.purges { try purge(gone.row, cause: gone.cause) }
        if let session = change.session { try make(session) }
        if let timer = change.timer { try make(timer) }
        if let seen = change.seen { try run("INSERT OR IGNORE INTO seen (key) VALUES (?)", .digest(seen.key)) }
        return gone.isEmpty ? .done : .leftOut(gone)
    }

    private func isSeen(_ seen: SeenRecord, now: UInt64) throws -> Bool {
        for key in [seen.key] + seen.others where key.indexExpiry > now {
            if try !rows("SELECT 1 FROM seen WHERE key = ?", .digest(key), read: { _ in 1 }).isEmpty { return true }
        }
        return false
    }

    /// Whether everything that the change goes by is still so.
    private func isAsRead(_ change: AudienceChange, now: UInt64) throws -> Bool {
        for push in change.jobs { guard try isAsRead(push) else { return false } }
        for wait in change.waits { guard try throttle(wait.row)?.opens == wait.wasOpens else { return false } }
        guard case .set(let session, let version, let replaced) = change.session else { return true }
        guard let replaced, replaced != session.session else { return try live(session.session, now)?.version == version }
        return try live(replaced, now)?.version == version && live(session.session, now) == nil
    }

    /// While the ratchet waits out a leap of the clock, one that has expired lies where its successor will: it is replaced.
    private func live(_ index: Digest, _ now: UInt64) throws -> SessionRecord? {
        try session(index).flatMap { $0.expires > now ? $0 : nil }
    }

    private func isAsRead(_ push: AudienceJob) throws -> Bool {
        guard push.row.expires > journal.moment, let throttle = try throttle(push.row) else { return false }
        return push.update.map { $0.isAsRead(throttle) } ?? true
    }

    private func leaveOutGone(of change: inout AudienceChange) throws -> Set<RowName> {
        var gone: Set<RowName> = []
        for push in change.jobs { if try !isAsRead(push) { gone.insert(push.row) } }
        if !gone.isEmpty { change.jobs.removeAll { gone.contains($0.row) } }
        return gone
    }

    /// What of a registration changes while it stands: when its throttle opens, what waits for that, and what it asks for.
    struct Throttle {
        let opens: UInt64
        let waiting: [UInt8]?
        let preferences: UInt32

        func isSame(as registration: RegistrationRecord) -> Bool {
            opens == registration.opens && waiting == registration.waiting && preferences == registration.preferences
        }
    }

    /// Nil when the registration is gone.
    func throttle(_ row: RowName) throws -> Throttle? {
        try rows(
            "SELECT opens, waiting, preferences FROM registration WHERE expires = ? AND purge_id = ?", .time(row.expires),
            .id(row.purgeID)
        ) {
            Throttle(opens: $0.time(0), waiting: $0.blobOrNil(1), preferences: UInt32(clamping: $0.int(2)))
        }.first
    }

    private func insert(_ push: AudienceJob, isLast: Bool) throws {
        var job = push.job
        job.record.isLast = isLast
        try insert(job)
        guard let update = push.update else { return }
        try run(
            "UPDATE registration SET opens = ?, stamp = ?, waiting = NULL WHERE expires = ? AND purge_id = ?",
            .time(update.opens),
            .time(update.stamp), .time(push.row.expires), .id(push.row.purgeID))
    }

    private func make(_ change: SessionChange) throws {
        switch change {
        case .set(let session, _, let replaced):
            if let replaced { try run("DELETE FROM session WHERE session = ?", .digest(replaced)) }
            try run(
                """
                INSERT OR REPLACE INTO session (session, generation, started, version, client, registration, reached)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """, .digest(session.session), .number(session.generation), .time(session.started), .time(session.version),
                .digest(session.client), .id(session.registration), .number(session.reached))
        case .delete(_, let session): try run("DELETE FROM session WHERE session = ?", .digest(session))
        case .restart(let session, let started):
            try run(
                "UPDATE session SET started = ?, version = version + 1 WHERE session = ?", .time(started), .digest(session))
        }
    }

    private func make(_ change: TimerChange) throws {
        switch change {
        case .begin(let timer):
            try run(
                """
                INSERT INTO timer (expires, id, due, generation, answer, sealed, user_name, creator_name)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                """, .time(timer.expires), .id(timer.id), .time(timer.due), .number(timer.generation), .number(timer.answer),
                .blob(timer.sealed), .digest(timer.names?.user), .digest(timer.names?.creator))
        case .settle(let id, let expires, let answer):
            try run("UPDATE timer SET answer = ? WHERE expires = ? AND id = ?", .number(answer), .time(expires), .id(id))
        }
    }
}

extension ActivityUpdate {
    fileprivate func isAsRead(_ throttle: Tables.Throttle) -> Bool {
        throttle.opens == wasOpens && (wasWaiting == nil || throttle.waiting == wasWaiting)
    }
}

extension AudienceChange {
    /// What would not be found, or not be swept.
    fileprivate func checkIndexes() throws {
        var expiries = seen.map { [($0.key, $0.expires)] } ?? []
        if case .set(let session, _, _) = session { expiries.append((session.session, session.expires)) }
        guard expiries.allSatisfy({ $0.indexExpiry == $1 }) else {
            throw StoreError.unavailable("an index that does not begin with its row's expiry")
        }
    }
}

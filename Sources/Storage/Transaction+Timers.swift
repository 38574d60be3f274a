public import Vocabulary

/// Whose index of a request's own id is looked up.
public enum RequestNamer: Sendable, CaseIterable {
    case user, creator
}

/// What has fallen due, and when the next does.
public struct DueWork: Sendable, Equatable {
    /// Nobody answered.
    public var timers: [TimerRecord]
    /// Their update waits, and their window is open.
    public var updates: [RegistrationRecord]
    /// Nil when nothing waits. Not later than now when there was more than asked for.
    public var next: UInt64?

    public init(timers: [TimerRecord] = [], updates: [RegistrationRecord] = [], next: UInt64? = nil) {
        self.timers = timers
        self.updates = updates
        self.next = next
    }
}

extension Transaction {
    public func timer(_ id: RequestID) throws -> TimerRecord? {
        try first(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer WHERE id = $1", .id(id),
            read: Self.timer)
    }

    /// The newest timer under one of these indexes of its back end's own id.
    public func timer(named names: [Digest], by namer: RequestNamer) throws -> TimerRecord? {
        try names.compactMap { name in
            switch namer {
            case .user:
                try first(
                    """
                    SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                    WHERE user_name = $1 ORDER BY due DESC LIMIT 1
                    """, .digest(name), read: Self.timer)
            case .creator:
                try first(
                    """
                    SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
                    WHERE creator_name = $1 ORDER BY due DESC LIMIT 1
                    """, .digest(name), read: Self.timer)
            }
        }.max { $0.due < $1.due }
    }

    public func timers() throws -> [TimerRecord] {
        try rows(
            "SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer", read: Self.timer)
    }

    private static func timer(_ row: any Row) throws(StoreError) -> TimerRecord {
        try TimerRecord(
            id: row.id(1), due: row.time(2), expires: row.time(0), generation: UInt32(clamping: row.int(3)),
            answer: UInt8(clamping: row.int(4)), sealed: row.blob(5),
            names: row.isNull(6) ? nil : RequestNames(user: row.digest(6), creator: row.digest(7)))
    }

    /// What has fallen due at `now`, at most `limit` of each kind, the earliest first.
    public func due(now: UInt64, limit: Int) throws -> DueWork {
        var work = DueWork()
        work.timers = try rows(
            """
            SELECT expires, id, due, generation, answer, sealed, user_name, creator_name FROM timer
            WHERE answer = 0 AND due <= $1 ORDER BY due LIMIT $2
            """, .time(now), .number(limit), read: Self.timer)
        work.updates = try dueUpdates(now: now, limit: limit)
        let isMore = work.timers.count == limit || work.updates.count == limit
        let next = [
            isMore ? now : nil,
            try earliest("SELECT min(due) FROM timer WHERE answer = 0 AND due > $1", .time(now)),
            try earliest("SELECT min(opens) FROM registration WHERE waiting IS NOT NULL AND opens > $1", .time(now)),
        ]
        work.next = next.compactMap(\.self).min()
        return work
    }

    func make(_ change: TimerChange) throws {
        switch change {
        case .begin(let timer):
            try queue(
                """
                INSERT INTO timer (expires, id, due, generation, answer, sealed, user_name, creator_name)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                """, .time(timer.expires), .id(timer.id), .time(timer.due), .number(timer.generation), .number(timer.answer),
                .blob(timer.sealed), .digest(timer.names?.user), .digest(timer.names?.creator))
        case .settle(let id, let expires, let answer):
            try queue(
                "UPDATE timer SET answer = $1 WHERE expires = $2 AND id = $3", .number(answer), .time(expires), .id(id))
        }
    }
}

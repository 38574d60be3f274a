import Shares
public import Vocabulary

/// The changes of one event, including its pushes. They are applied atomically.
public struct AudienceChange: Sendable, Equatable {
    public var jobs: [AudienceJob] = []
    public var waits: [WaitingUpdate] = []
    public var purges: [RegistrationPurge] = []
    public var session: SessionChange?
    public var timer: TimerChange?
    public var seen: SeenRecord?
    /// Set if the change depends on the session's oldest pending approval.
    public var oldest: OldestRequest?
    /// True to skip jobs whose registration is gone. Otherwise such a job fails the whole change.
    public var leavesOutGone = false

    public static let empty = AudienceChange()

    public var isEmpty: Bool {
        jobs.isEmpty && waits.isEmpty && purges.isEmpty && session == nil && timer == nil && seen == nil
    }
}

/// The oldest pending approval of a session, as it was read.
public struct OldestRequest: Sendable, Equatable {
    /// The indexes of the session under which its approvals may be listed.
    public var list: [Digest]
    /// An approval that the change ends. It doesn't count.
    public var except: RequestID?
    /// Is nil if no approval is pending.
    public var request: RequestID?

    public init(list: [Digest], except: RequestID?, request: RequestID?) {
        (self.list, self.except, self.request) = (list, except, request)
    }
}

/// A push to a registration.
public struct AudienceJob: Sendable, Equatable {
    /// A job without a room.
    public var job: NewJob
    /// Set if the push updates a Live Activity. It resets the activity's throttle.
    public var update: ActivityUpdate?
    /// Set if this is the registration's last push. The registration is purged with it.
    public var purge: PurgeCause?

    public init(_ job: NewJob, update: ActivityUpdate? = nil, purge: PurgeCause? = nil) {
        (self.job, self.update, self.purge) = (job, update, purge)
    }

    /// The registration's row.
    public var row: RowName { job.record.row }
}

/// The change of a Live Activity's throttle when an update is sent. A waiting update is deleted.
public struct ActivityUpdate: Sendable, Equatable {
    /// `opens` as it was read.
    public var wasOpens: UInt64
    /// The waiting update as it was read, if this push sends it. Nil for a newer update.
    public var wasWaiting: [UInt8]?
    public var opens: UInt64
    public var stamp: UInt64

    public init(wasOpens: UInt64, wasWaiting: [UInt8]? = nil, opens: UInt64, stamp: UInt64) {
        self.wasOpens = wasOpens
        self.wasWaiting = wasWaiting
        self.opens = opens
        self.stamp = stamp
    }
}

/// Replaces a registration's waiting update.
public struct WaitingUpdate: Sendable, Equatable {
    public var row: RowName
    /// `opens` as it was read.
    public var wasOpens: UInt64
    /// The earliest time of the update.
    public var opens: UInt64
    /// Nil deletes the waiting update.
    public var waiting: [UInt8]?

    /// - Parameter opens: nil keeps `wasOpens`.
    public init(row: RowName, wasOpens: UInt64, opens: UInt64? = nil, waiting: [UInt8]?) {
        self.row = row
        self.wasOpens = wasOpens
        self.opens = opens ?? wasOpens
        self.waiting = waiting
    }
}

public struct RegistrationPurge: Sendable, Equatable {
    public var row: RowName
    public var cause: PurgeCause

    public init(_ row: RowName, _ cause: PurgeCause) { (self.row, self.cause) = (row, cause) }
}

public enum SessionChange: Sendable, Equatable {
    /// Stores the session. `after`: the version that was read, or nil if there was none. `replacing`: that version's index if it differs.
    case set(SessionRecord, after: UInt64?, replacing: Digest? = nil)
    /// Does nothing if the session is gone.
    case delete(expires: UInt64, session: Digest)
    /// Changes the start of the session and what was reached, whatever its version. Does nothing if the session is gone.
    /// `reached`: nil to keep it.
    case restart(session: Digest, started: UInt64, reached: UInt8? = nil)
}

public enum TimerChange: Sendable, Equatable {
    /// `listed`: the indexes under which the request is found until they expire or it is settled.
    case begin(TimerRecord, listed: [Digest] = [])
    /// `listed`: the indexes under which the request is no longer found.
    case settle(id: RequestID, expires: UInt64, answer: UInt8, listed: [Digest] = [])
}

/// The outcome of a change.
public enum ChangeOutcome: Sendable, Equatable {
    case done
    /// A row has changed since it was read. Read again.
    case changed
    /// The event was processed before.
    case repeated
    /// The timer already has an answer.
    case settled
    /// Done, except for the jobs of these registrations, which are gone.
    case leftOut(Set<RowName>)
}

extension Transaction {
    /// Applies a change. If a job's registration is gone, returns `changed`, or `leftOut` if the change skips such jobs.
    public func apply(_ change: AudienceChange, now: UInt64) throws -> ChangeOutcome {
        try lock(change.lockKeys)
        try database.admit(.knock)
        if let seen = change.seen { try seen.key.check(expires: seen.expires) }
        if case .set(let session, _, _) = change.session { try session.session.check(expires: session.expires) }
        if let seen = change.seen, try isSeen(seen, now: now) { return .repeated }
        if case .settle(let id, let expires, _, _) = change.timer {
            guard let timer = try timer(id), timer.expires == expires else { return .changed }
            guard timer.answer == 0 else { return .settled }
        }
        var change = change
        let gone = change.leavesOutGone ? try removeGone(from: &change) : []
        guard try isAsRead(change, now: now) else { return .changed }

        let last = Set(change.purges.map(\.row) + change.jobs.compactMap { $0.purge == nil ? nil : $0.row })
        for push in change.jobs { try insert(push, isLast: last.contains(push.row)) }
        for wait in change.waits {
            try queue(
                "UPDATE registration SET waiting = $1, opens = $2 WHERE expires = $3 AND purge_id = $4", .blob(wait.waiting),
                .time(wait.opens), .time(wait.row.expires), .id(wait.row.purgeID))
        }
        // Purges must follow all openings.
        for push in change.jobs { if let cause = push.purge { try purge(push.row, cause: cause) } }
        for gone in change.purges { try purge(gone.row, cause: gone.cause) }
        if let session = change.session { try make(session) }
        if let timer = change.timer { try make(timer) }
        if let seen = change.seen { try insert(seen) }
        return gone.isEmpty ? .done : .leftOut(gone)
    }

    /// Returns true if all rows are still as they were read.
    private func isAsRead(_ change: AudienceChange, now: UInt64) throws -> Bool {
        for push in change.jobs { guard try isAsRead(push) else { return false } }
        for wait in change.waits { guard try throttle(wait.row)?.opens == wait.wasOpens else { return false } }
        if let oldest = change.oldest {
            guard try pendingTimers(listed: oldest.list, except: oldest.except, now: now).first?.id == oldest.request else {
                return false
            }
        }
        return try change.session.map { try isAsRead($0, now: now) } ?? true
    }

    private func isAsRead(_ push: AudienceJob) throws -> Bool {
        guard push.row.expires > moment, let throttle = try throttle(push.row) else { return false }
        guard let update = push.update else { return true }
        return throttle.opens == update.wasOpens && (update.wasWaiting == nil || throttle.waiting == update.wasWaiting)
    }

    private func removeGone(from change: inout AudienceChange) throws -> Set<RowName> {
        var gone: Set<RowName> = []
        for push in change.jobs { if try !isAsRead(push) { gone.insert(push.row) } }
        if !gone.isEmpty { change.jobs.removeAll { gone.contains($0.row) } }
        return gone
    }

    private func insert(_ push: AudienceJob, isLast: Bool) throws {
        var job = push.job
        job.record.isLast = isLast
        try insert(job)
        guard let update = push.update else { return }
        try queue(
            "UPDATE registration SET opens = $1, stamp = $2, waiting = NULL WHERE expires = $3 AND purge_id = $4",
            .time(update.opens), .time(update.stamp), .time(push.row.expires), .id(push.row.purgeID))
    }
}

extension AudienceChange {
    fileprivate var lockKeys: [LockKey] {
        var keys: [LockKey] = jobs.map { .registration($0.row) } + waits.map { .registration($0.row) }
        keys += purges.map { .registration($0.row) }
        switch session {
        case .set(let session, _, let replaced): keys += [.session(session.session)] + (replaced.map { [.session($0)] } ?? [])
        case .delete(_, let session), .restart(let session, _, _): keys.append(.session(session))
        case nil: break
        }
        switch timer {
        case .begin(let timer, _): keys.append(.timer(timer.id))
        case .settle(let id, _, _, _): keys.append(.timer(id))
        case nil: break
        }
        // All changes that begin or end an approval of a session follow one another.
        if let oldest { keys += oldest.list.map { .session($0) } }
        if let seen { keys += ([seen.key] + seen.others).map { .seen($0) } }
        return keys
    }
}

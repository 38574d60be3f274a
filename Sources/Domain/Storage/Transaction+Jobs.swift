import Ledger
import Shares
public import Vocabulary

/// The outcome of a knock.
public enum KnockOutcome: Sendable, Equatable {
    case queued
    /// The side may be knocked at again at `until`, in broker time.
    case throttled(until: UInt64)
    /// The side's token has changed. Read again.
    case changed
}

/// The outcome of a push.
public struct JobOutcome: Sendable, Equatable {
    /// The push service's HTTP status, as recorded (see `WebPushAnswer`). 0 without an answer.
    public var status: UInt16
    /// The reason for the ledger. Nil if the push service accepted the push.
    public var reason: PushReason?
    /// True if the token must be purged, since it is no longer registered.
    public var purge: Bool
    /// True if the side may be knocked at again at once, because nothing was sent.
    public var releaseThrottle: Bool

    public init(status: UInt16, reason: PushReason?, purge: Bool = false, releaseThrottle: Bool = false) {
        self.status = status
        self.reason = reason
        self.purge = purge
        self.releaseThrottle = releaseThrottle
    }
}

extension Transaction {
    /// Stores the job if the side still has this token and was not knocked at in the last `throttle` milliseconds.
    /// - Parameter knocked: the new start of the side's throttle, which may be in the future. Nil for a test push, which ignores the throttle.
    public func knock(_ new: NewJob, throttle: UInt64, now: UInt64, knocked: UInt64?) throws -> KnockOutcome {
        let job = new.record
        guard let index = job.room else { return .changed }
        try lock([.room(index)])
        try database.admit(.knock)
        guard let room = try room(index), let side = room[job.slot], side.token == job.purgeID, job.expires > moment,
            try holdsToken(job.purgeID, expires: job.expires)
        else { return .changed }
        if let knocked {
            // A time in the future throttles like the current time.
            if side.knocked != 0, now < min(side.knocked, now) + throttle { return .throttled(until: side.knocked + throttle) }
            try setKnocked(knocked, room: room, slot: job.slot)
        }
        try insert(new)
        return .queued
    }

    /// Ends a job. Does nothing if the job is gone.
    public func finish(_ job: JobRecord, _ outcome: JobOutcome) throws {
        guard let index = job.room else {
            try lock([.registration(job.row)])
            if try end(job.job, deadline: job.deadline, outcome), outcome.purge { try purge(job.row, cause: .ended) }
            return
        }
        try lock([.room(index)])
        let room = outcome.purge || outcome.releaseThrottle ? try room(index) : nil
        guard try end(job.job, deadline: job.deadline, outcome), let room else { return }
        if outcome.releaseThrottle { try setKnocked(0, room: room, slot: job.slot) }
        if outcome.purge, try purge(job.purgeID, expires: job.expires, cause: .ended), room[job.slot]?.token == job.purgeID {
            try setToken(nil, room: room, slot: job.slot)
        }
    }

    /// Returns true if a job still exists, and its token too. Checked just before a push is sent.
    ///
    /// A failover to a server that lacked commits can lose a job that was acknowledged. Then the ledger lacks its opening, so nothing may be pushed.
    /// - Parameter token: false if the push may leave without its token.
    public func holds(_ job: JobRecord, token: Bool) throws -> Bool {
        guard token else {
            return try exists("SELECT 1 FROM job WHERE deadline = $1 AND job = $2", .time(job.deadline), .id(job.job))
        }
        if job.room == nil {
            return try exists(
                """
                SELECT 1 FROM job WHERE deadline = $1 AND job = $2
                AND EXISTS (SELECT 1 FROM registration WHERE expires = $3 AND purge_id = $4)
                """, .time(job.deadline), .id(job.job), .time(job.row.expires), .id(job.row.purgeID))
        }
        return try exists(
            "SELECT 1 FROM job WHERE deadline = $1 AND job = $2 AND EXISTS (SELECT 1 FROM token WHERE expires = $3 AND purge_id = $4)",
            .time(job.deadline), .id(job.job), .time(job.expires), .id(job.purgeID))
    }

    public func jobs() throws -> [JobRecord] {
        try rows(
            """
            SELECT deadline, job, not_before, purge_id, room, slot, kind, template, generation, expires, sealed, fields, is_last
            FROM job ORDER BY deadline
            """, read: JobRecord.init)
    }

    // MARK: Parts

    func insert(_ new: NewJob) throws {
        let job = new.record
        // The policy's lint allows only names that are valid in the ledger.
        guard let template = EntryText(job.context.template) else {
            preconditionFailure("a template's name is invalid in the ledger")
        }
        try queue(
            """
            INSERT INTO job (deadline, job, not_before, purge_id, room, slot, kind, template, generation, expires, sealed, fields,
            is_last) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
            """, .time(job.deadline), .id(job.job), .time(job.notBefore), .id(job.purgeID),
            job.room.map { .digest($0) } ?? .blob([]), .number(job.slot), .code(job.context.kind),
            .text(job.context.template), .number(job.context.generation), .time(job.expires), .blob(job.sealed),
            .blob(job.fields), .bool(job.isLast))
        try database.record(.event(.tokenOpened(id: new.openedID, job: job.job, template: template)))
    }

    /// Reads only the keys of the rows, so damage elsewhere doesn't matter.
    func dueJobs(_ due: UInt64, limit: Int) throws -> [(deadline: UInt64, job: JobID)] {
        try rows(
            "SELECT deadline, job FROM job WHERE deadline <= $1 ORDER BY deadline LIMIT $2", .time(due), .number(limit),
            read: Self.key)
    }

    /// Ends jobs that were never sent, or whose outcome is unknown.
    /// - Returns: the number of jobs.
    func end(_ jobs: [(deadline: UInt64, job: JobID)], _ reason: PushReason) throws -> Int {
        for (deadline, job) in jobs { try end(job, deadline: deadline, JobOutcome(status: 0, reason: reason)) }
        return jobs.count
    }

    /// Reads a job's deadline and id.
    static func key(_ row: any Row) throws -> (deadline: UInt64, job: JobID) { (row.time(0), try row.id(1)) }

    /// Deletes a job's row and records its outcome. Returns false if the job is gone.
    @discardableResult
    private func end(_ job: JobID, deadline: UInt64, _ outcome: JobOutcome) throws -> Bool {
        guard try change("DELETE FROM job WHERE deadline = $1 AND job = $2", .time(deadline), .id(job)) else { return false }
        let op: Entry.Op =
            if let reason = outcome.reason {
                .pushFailed(job: job, status: outcome.status, reason: reason)
            } else {
                .pushDelivered(job: job, status: outcome.status)
            }
        try database.record(.event(op))
        return true
    }
}

extension JobRecord {
    /// Reads the columns in the order of `Transaction.jobs`.
    init(_ row: any Row) throws {
        try self.init(
            JobContext(
                generation: row.number(8), job: row.id(1), purgeID: row.id(3), kind: row.code(6), slot: row.number(5),
                template: row.text(7), deadlineMs: row.time(0), expiryMs: row.time(9)),
            notBefore: row.time(2), room: row.int(5) == 0 ? nil : row.digest(4), sealed: row.blob(10), fields: row.blobOrNil(11),
            isLast: row.bool(12))
    }
}

import Ledger
import SQLite
import Vocabulary

extension Tables {
    func knock(_ new: NewJob, throttle: UInt64, now: UInt64, knocked: UInt64) throws -> KnockOutcome {
        let job = new.record
        try refuseWhenLedgerIsBehind(.knock)
        guard let index = job.room, let room = try room(index), let side = room[job.slot], side.token == job.purgeID else {
            return .changed
        }
        guard job.expires > journal.moment, try token(job.purgeID, expires: job.expires) != nil else { return .changed }
        // A mark that lies ahead throttles as one of now would.
        if side.knocked != 0, now < min(side.knocked, now) + throttle { return .throttled(until: side.knocked + throttle) }
        try setKnocked(knocked, room: room, slot: job.slot)
        try insert(new)
        return .queued
    }

    func insert(_ new: NewJob) throws {
        let job = new.record
        try run(
            """
            INSERT INTO job (deadline, job, not_before, purge_id, room, slot, kind, environment, topic, template, generation, expires,
            sealed, fields, is_last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(job.deadline), .id(job.job), .time(job.notBefore), .id(job.purgeID),
            job.room.map { .digest($0) } ?? .blob([]),
            .number(job.slot),
            .code(job.kind), .code(job.environment), .text(job.topic), .text(job.template), .number(job.generation),
            .time(job.expires), .blob(job.sealed), .blob(job.fields), .bool(job.isLast))
        try record(.opened(new))
    }

    private func setKnocked(_ time: UInt64, room: RoomRecord, slot: UInt8) throws {
        if slot == 1 {
            try run(
                "UPDATE room SET creator_knocked = ? WHERE expires = ? AND room = ?", .time(time), .time(room.expires),
                .digest(room.room))
        } else {
            try run(
                "UPDATE room SET joiner_knocked = ? WHERE expires = ? AND room = ?", .time(time), .time(room.expires),
                .digest(room.room))
        }
    }

    func finish(_ job: JobRecord, _ outcome: JobOutcome) throws {
        guard try end(job.job, deadline: job.deadline, outcome) else { return }
        guard let index = job.room else {
            if outcome.purge { try purge(job.row, cause: .ended) }
            return
        }
        guard outcome.purge || outcome.releaseThrottle, let room = try room(index) else { return }
        if outcome.releaseThrottle { try setKnocked(0, room: room, slot: job.slot) }
        if outcome.purge, try purge(job.purgeID, expires: job.expires, cause: .ended), room[job.slot]?.token == job.purgeID {
            try setToken(nil, room: room, slot: job.slot)
        }
    }

    /// Ends jobs that were never carried out, whatever else their rows hold.
    /// - Returns: how many.
    func endJobs(due: UInt64, limit: Int, _ reason: APNsReason) throws -> Int {
        let jobs = try rows(
            "SELECT deadline, job FROM job WHERE deadline <= ? ORDER BY deadline LIMIT ?", .time(due), .number(limit)
        ) {
            ($0.time(0), try $0.id(1) as JobID)
        }
        for (deadline, job) in jobs { try end(job, deadline: deadline, JobOutcome(status: 0, reason: reason)) }
        return jobs.count
    }

    /// Deletes a job's row and records its outcome. Returns false if it has ended already.
    @discardableResult
    private func end(_ job: JobID, deadline: UInt64, _ outcome: JobOutcome) throws -> Bool {
        guard try run("DELETE FROM job WHERE deadline = ? AND job = ?", .time(deadline), .id(job)) == 1 else { return false }
        try record(.ended(job, outcome))
        return true
    }

    func jobs() throws -> [JobRecord] {
        try rows(
            """
            SELECT deadline, job, not_before, purge_id, room, slot, kind, environment, topic, template, generation, expires, sealed,
            fields, is_last FROM job ORDER BY deadline
            """
        ) { row in
            try JobRecord(
                job: row.id(1), deadline: row.time(0), notBefore: row.time(2), purgeID: row.id(3),
                room: row.int(5) == 0 ? nil : row.digest(4),
                slot: UInt8(clamping: row.int(5)), kind: row.code(6), environment: row.code(7),
                topic: row.text(8), template: row.text(9), generation: UInt32(clamping: row.int(10)), expires: row.time(11),
                sealed: row.blob(12), fields: row.blobOrNil(13), isLast: row.int(14) != 0)
        }
    }
}

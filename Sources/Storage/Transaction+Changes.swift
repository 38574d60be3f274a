import Vocabulary

extension Transaction {
    /// Does all of a change, or nothing. A job whose registration is gone gives `changed`, or `leftOut` where the change leaves it out.
    public func apply(_ change: AudienceChange, now: UInt64) throws -> ChangeOutcome {
        try lock(change.lockKeys)
        try database.admit(.knock)
        try change.checkIndexes()
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
            try queue(
                "UPDATE registration SET waiting = $1, opens = $2 WHERE expires = $3 AND purge_id = $4", .blob(wait.waiting),
                .time(wait.opens), .time(wait.row.expires), .id(wait.row.purgeID))
        }
        // After all that was opened.
        for push in change.jobs { if let cause = push.purge { try purge(push.row, cause: cause) } }
        for gone in change.purges { try purge(gone.row, cause: gone.cause) }
        if let session = change.session { try make(session) }
        if let timer = change.timer { try make(timer) }
        if let seen = change.seen { try insert(seen) }
        return gone.isEmpty ? .done : .leftOut(gone)
    }

    /// Whether everything that the change goes by is still so.
    private func isAsRead(_ change: AudienceChange, now: UInt64) throws -> Bool {
        for push in change.jobs { guard try isAsRead(push) else { return false } }
        for wait in change.waits { guard try throttle(wait.row)?.opens == wait.wasOpens else { return false } }
        return try change.session.map { try isAsRead($0, now: now) } ?? true
    }

    private func isAsRead(_ push: AudienceJob) throws -> Bool {
        guard push.row.expires > moment, let throttle = try throttle(push.row) else { return false }
        return push.update.map { $0.isAsRead(throttle) } ?? true
    }

    private func leaveOutGone(of change: inout AudienceChange) throws -> Set<RowName> {
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

extension ActivityUpdate {
    fileprivate func isAsRead(_ throttle: Transaction.Throttle) -> Bool {
        throttle.opens == wasOpens && (wasWaiting == nil || throttle.waiting == wasWaiting)
    }
}

extension AudienceChange {
    /// What would not be found, or not be swept.
    fileprivate func checkIndexes() throws(StoreError) {
        var expiries = seen.map { [($0.key, $0.expires)] } ?? []
        if case .set(let session, _, _) = session { expiries.append((session.session, session.expires)) }
        guard expiries.allSatisfy({ $0.indexExpiry == $1 }) else {
            throw .unavailable("an index that does not begin with its row's expiry")
        }
    }

    fileprivate var lockKeys: [LockKey] {
        var keys: [LockKey] = jobs.map { .registration($0.row) } + waits.map { .registration($0.row) }
        keys += purges.map { .registration($0.row) }
        switch session {
        case .set(let session, _, let replaced): keys += [.session(session.session)] + (replaced.map { [.session($0)] } ?? [])
        case .delete(_, let session), .restart(let session, _): keys.append(.session(session))
        case nil: break
        }
        switch timer {
        case .begin(let timer): keys.append(.timer(timer.id))
        case .settle(let id, _, _): keys.append(.timer(id))
        case nil: break
        }
        if let seen { keys += ([seen.key] + seen.others).map { .seen($0) } }
        return keys
    }
}

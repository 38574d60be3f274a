import Storage
import Synchronization
import Vocabulary

/// Tracks which queued pushes are still wanted: their token exists, no newer push has replaced them, and what they ask for is pending.
///
/// The courier checks before each attempt, on its own loop.
final class WantedPushes: Sendable {
    /// Pushes with the same target replace each other.
    struct Target: Hashable, Sendable {
        /// The token's purge id.
        let token: EntryID
        let collapse: Handle
    }

    private struct Newest {
        var stampMs: UInt64
        var job: JobRecord
        /// Pushes to this target without an outcome. The newest is tracked until the last of them has its outcome.
        var count: Int
    }

    private struct State {
        var revoked = Expiring<EntryID>()
        var renewed = Expiring<EntryID>()
        var settled = Expiring<RequestID>()
        var newest: [Target: Newest] = [:]

        func isNewest(_ job: JobID, of target: Target) -> Bool { newest[target].map { $0.job.job == job } ?? true }
    }

    private let state = Mutex(State())

    /// Withdraws the pushes to a token that was destroyed.
    /// - Parameter until: the latest deadline of a push that is queued now. Times must not decrease.
    func revoke(_ token: EntryID, until: UInt64, now: UInt64) {
        state.withLock { $0.revoked.add(token, until: until, now: now) }
    }

    /// Keeps the pushes to the old purge id of a token that was sealed again.
    func renew(_ token: EntryID, until: UInt64, now: UInt64) {
        state.withLock { $0.renewed.add(token, until: until, now: now) }
    }

    /// Withdraws the pushes that ask for an approval, which has ended.
    func settle(_ request: RequestID, until: UInt64, now: UInt64) {
        state.withLock { $0.settled.add(request, until: until, now: now) }
    }

    func isRevoked(_ token: EntryID) -> Bool { state.withLock { $0.revoked.contains(token) } }

    func isSettled(_ request: RequestID) -> Bool { state.withLock { $0.settled.contains(request) } }

    func isRenewed(_ token: EntryID) -> Bool { state.withLock { $0.renewed.contains(token) } }

    /// Adds a push, which is the newest unless another one has a later stamp.
    func add(_ job: JobRecord, to target: Target, stampMs: UInt64) {
        state.withLock { state in
            var current = state.newest[target] ?? Newest(stampMs: stampMs, job: job, count: 0)
            current.count += 1
            if stampMs >= current.stampMs { (current.stampMs, current.job) = (stampMs, job) }
            state.newest[target] = current
        }
    }

    /// Removes a push that has its outcome.
    func remove(from target: Target) {
        state.withLock { state in
            guard let count = state.newest[target]?.count else { return }
            if count > 1 { state.newest[target]?.count = count - 1 } else { state.newest[target] = nil }
        }
    }

    /// Returns nil if no push to this target waits for its outcome.
    func newest(of target: Target) -> JobRecord? { state.withLock { $0.newest[target]?.job } }

    /// False if a newer push has replaced this one. Pushes without a target are never replaced.
    func isNewest(_ job: JobID, of target: Target?) -> Bool {
        guard let target else { return true }
        return state.withLock { $0.isNewest(job, of: target) }
    }

    /// False if the push's token was destroyed, a newer push has replaced it, or its approval has ended. The last push to a token is sent although
    /// its token is gone.
    func isWanted(_ job: JobRecord, of target: Target?, asks request: RequestID?) -> Bool {
        state.withLock { state in
            if let request, state.settled.contains(request) { return false }
            return (job.isLast || !state.revoked.contains(job.purgeID))
                && (target.map { state.isNewest(job.job, of: $0) } ?? true)
        }
    }

    var count: Int { state.withLock(\.newest.count) }
}

/// Ids of tokens or approvals. Each is kept until no queued push can refer to it.
private struct Expiring<ID: OpaqueID> {
    private var ids: Set<ID> = []
    /// In order of time.
    private var order = Queue<(until: UInt64, id: ID)>()

    func contains(_ id: ID) -> Bool { ids.contains(id) }

    mutating func add(_ id: ID, until: UInt64, now: UInt64) {
        while let oldest = order.first, oldest.until <= now {
            ids.remove(oldest.id)
            _ = order.popFirst()
        }
        if ids.insert(id).inserted { order.append((until, id)) }
    }
}

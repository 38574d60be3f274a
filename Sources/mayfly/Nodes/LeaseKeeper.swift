import Broker
import EventLoop
import Linux
import Storage
import Synchronization

/// Renews this node's lease. Ends the process if another node has taken it, or if the database was out of reach for so long that the keys must go.
actor LeaseKeeper: LoopActor {
    nonisolated let loop: EventLoop
    private let store: PostgresStore
    /// Monotonic time of the end of the lease, ms.
    private nonisolated let end: Mutex<UInt64>
    private nonisolated let clockIsWrong = Mutex(false)
    private var isFailing = false
    private var isStopped = false

    private static let periodMs: UInt64 = 2_000
    /// A clock that differs more from the database's is wrong.
    static let largestDifferenceMs: UInt64 = 60_000

    /// - Parameter taken: monotonic time before the lease was taken, ms.
    init(_ store: PostgresStore, loop: EventLoop, taken: UInt64) {
        (self.store, self.loop) = (store, loop)
        end = Mutex(taken + PostgresStore.leaseMs)
    }

    /// True while no other node can hold the lease.
    nonisolated var isCurrent: Bool { Clock.monotonicMs < end.withLock(\.self) }

    /// True if this node can serve: it holds the lease, and its clock is right.
    nonisolated var isReady: Bool { isCurrent && !clockIsWrong.withLock(\.self) }

    /// Waits while the lease is not current, e.g. after this process was suspended.
    nonisolated func waitUntilCurrent() async {
        while !isCurrent { guard (try? await loop.sleep(50)) != nil else { return } }
    }

    func run() async {
        while !isStopped {
            await renew()
            try? await loop.sleep(Self.periodMs)
        }
    }

    private func renew() async {
        let start = Clock.monotonicMs
        do {
            let isOwn = try await store.renewLease()
            if isStopped { return }
            guard isOwn else { Self.end("another node serves now. This one stops and forgets its keys") }
            end.withLock { $0 = start + PostgresStore.leaseMs }
            if isFailing { Terminal.log("lease: renewed again") }
            isFailing = false
            let lease = try await store.lease()
            let isWrong = NodeClock.isWrong(lease.now)
            if isWrong, !clockIsWrong.withLock(\.self) { Terminal.log(.error, NodeClock.explanation) }
            clockIsWrong.withLock { $0 = isWrong }
        } catch {
            if isStopped { return }
            if !isFailing { Terminal.log(.error, "lease: can't be renewed (\(error)); trying again every 2 s") }
            isFailing = true
            let silence = Clock.monotonicMs + PostgresStore.leaseMs - end.withLock(\.self)
            if silence > PostgresStore.longestSilenceMs {
                Self.end("the database was out of reach for ten minutes. This node stops and forgets its keys")
            }
        }
    }

    /// Locked memory ends with the process.
    private static func end(_ reason: String) -> Never {
        Terminal.log(.error, "lease: \(reason)")
        ProcessControl.exit(1)
    }

    /// Gives the lease back.
    func release() async {
        isStopped = true
        do { try await store.releaseLease() } catch {
            Terminal.log(.warning, "lease: it ends by itself in \(PostgresStore.leaseMs / 1_000) s (\(error))")
        }
    }
}

/// Compares this machine's clock with the database's.
enum NodeClock {
    static func isWrong(_ databaseMs: UInt64) -> Bool {
        let own = Clock.wallMs
        return max(own, databaseMs) - min(own, databaseMs) > LeaseKeeper.largestDifferenceMs
    }

    static let explanation =
        "clock: this machine's clock differs from the database's by more than a minute. Set it right; until then this node is not ready"
}

public import EventLoop
import Sealing
public import Storage
import Synchronization

/// How the rules reach the store: what one turn of the loop asks for goes there together, and errors become the caller's.
public final class StoreAccess: Sendable {
    private let loop: EventLoop
    private let store: any Store
    private let metrics: Metrics
    private let log: @Sendable (String) -> Void
    /// Whether the store waits for the end of this turn, and when trouble is logged again, on the loop's clock.
    private let state = Mutex((holds: false, logAt: UInt64(0)))

    public init(loop: EventLoop, store: any Store, metrics: Metrics, log: @escaping @Sendable (String) -> Void) {
        self.loop = loop
        self.store = store
        self.metrics = metrics
        self.log = log
    }

    /// Asks the store for something. To be called on the loop.
    /// - Throws: `.storageUnavailable`, `.ledgerUnavailable` or `.shuttingDown`, after `tell`.
    func stored<Value: Sendable>(_ body: () async throws(StoreError) -> Value) async throws(BrokerError) -> Value {
        hold()
        do {
            // What the store's threads resume comes straight back here, and not by way of the global pool.
            return try await withTaskExecutorPreference(loop, operation: body)
        } catch {
            tell(error)
            throw BrokerError(error)
        }
    }

    /// Counts trouble with the store as an alarm, with a line in the log: one a minute, or anyone could fill the log of a broker whose disk
    /// is full. That the store was closed is none.
    func tell(_ error: StoreError) {
        if error == .closed { return }
        let now = loop.now
        let isDue = state.withLock { state in
            guard now >= state.logAt else { return false }
            state.logAt = now + 60_000
            return true
        }
        guard isDue else { return }
        metrics.add(.alarms)
        log("store: \(error)")
    }

    private func hold() {
        let held = state.withLock { state in
            defer { state.holds = true }
            return state.holds
        }
        if held { return }
        store.hold()
        loop.atEndOfTurn {
            self.state.withLock { $0.holds = false }
            self.store.release()
        }
    }
}

/// Keys that can't be had are the broker's trouble, not the caller's.
func available<Value>(_ body: () throws(SealingError) -> Value) throws(BrokerError) -> Value {
    do {
        return try body()
    } catch {
        throw .storageUnavailable
    }
}

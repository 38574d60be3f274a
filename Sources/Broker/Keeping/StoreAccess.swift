public import EventLoop
import Sealing
public import Storage
import Synchronization

/// The rules' access to the store. It submits the operations of one turn of the loop together, and turns store errors into `BrokerError`.
public final class StoreAccess: Sendable {
    private let loop: EventLoop
    /// The store itself, for callers that handle `StoreError`.
    let engine: any Store
    private let metrics: Metrics
    private let log: Logger
    /// True while the store waits for the end of this turn.
    private let isHeld = Mutex(false)
    /// When each kind of error may be reported again, on the loop's clock. The kinds are a few constants of the program.
    private let reports = Mutex<[String: UInt64]>([:])

    public init(loop: EventLoop, store: any Store, metrics: Metrics, log: Logger) {
        self.loop = loop
        engine = store
        self.metrics = metrics
        self.log = log
    }

    func read<Value: Sendable>(
        _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws -> Value {
        try await perform(.read, operation)
    }

    /// Returns when the operation and its ledger entries are durable.
    func write<Value: Sendable>(
        _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws -> Value {
        try await perform(.write, operation)
    }

    /// Must be called on the loop.
    /// - Throws: `.storageUnavailable`, `.ledgerUnavailable` or `.shuttingDown`. The error has been reported to the operator.
    func perform<Value: Sendable>(
        _ access: Access, _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws -> Value {
        hold()
        do {
            return try await Storage.perform(access, on: engine, operation)
        } catch {
            report(error)
            throw BrokerError(error)
        }
    }

    /// Reports an error of the store, unless the store was closed.
    func report(_ error: StoreError) {
        if error != .closed { report("store: \(error)") }
    }

    /// Reports a shortage. Other errors are the caller's, or were reported where they occurred.
    func reportShortage(_ error: any Error) {
        let error = BrokerError(thrown: error)
        if case .overloaded(let shortage)? = error, shortage != .behind { metrics.add(.secretShortages) }
        if let shortage = error?.shortage { report(shortage) }
    }

    /// Counts an alarm and logs a line, once a minute for each kind of error. The kind is the text before the colon. Without the limit anyone
    /// could fill the log of a broker whose disk is full.
    func report(_ text: String) {
        let now = loop.now
        let kind = String(text.prefix { $0 != ":" })
        let isDue = reports.withLock { reports in
            guard now >= reports[kind, default: 0] else { return false }
            reports[kind] = now + 60_000
            return true
        }
        guard isDue else { return }
        metrics.add(.alarms)
        log.error(text)
    }

    private func hold() {
        let held = isHeld.withLock { isHeld in
            defer { isHeld = true }
            return isHeld
        }
        if held { return }
        engine.hold()
        loop.atEndOfTurn {
            self.isHeld.withLock { $0 = false }
            self.engine.release()
        }
    }
}

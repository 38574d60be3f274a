public import EventLoop
import Sealing
public import Storage
import Synchronization

/// Gives the rules access to the store. It submits the operations of one turn of the loop together, and turns store errors into
/// `BrokerError`.
public final class StoreAccess: Sendable {
    private let loop: EventLoop
    /// The store itself, for callers that handle `StoreError`.
    let engine: any Store
    private let metrics: Metrics
    private let log: @Sendable (String) -> Void
    /// True while the store waits for the end of this turn.
    private let holds = Mutex(false)
    /// When each kind of error may be reported again, on the loop's clock. The kinds are few constants of the program.
    private let reports = Mutex<[String: UInt64]>([:])

    public init(loop: EventLoop, store: any Store, metrics: Metrics, log: @escaping @Sendable (String) -> Void) {
        self.loop = loop
        engine = store
        self.metrics = metrics
        self.log = log
    }

    func read<Value: Sendable>(
        _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(BrokerError) -> Value {
        try await perform(.read, operation)
    }

    /// Returns when the operation and its ledger entries are durable.
    func write<Value: Sendable>(
        _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(BrokerError) -> Value {
        try await perform(.write, operation)
    }

    /// Call it on the loop.
    /// - Throws: `.storageUnavailable`, `.ledgerUnavailable` or `.shuttingDown`, after `tell`.
    func perform<Value: Sendable>(
        _ access: Access, _ operation: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(BrokerError) -> Value {
        hold()
        do {
            return try await Storage.perform(access, on: engine, operation)
        } catch {
            tell(error)
            throw BrokerError(error)
        }
    }

    /// Reports trouble with the store; not that the store was closed.
    func tell(_ error: StoreError) {
        if error != .closed { report("store: \(error)") }
    }

    /// Reports a shortage; other errors are the caller's, or were reported where they were met.
    func tell(_ error: BrokerError) {
        if let shortage = error.shortage { report(shortage) }
    }

    /// Counts an alarm and writes a line to the log, once a minute for each kind: the text before the colon. Otherwise anyone could fill
    /// the log of a broker whose disk is full.
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
        log(text)
    }

    private func hold() {
        let held = holds.withLock { holds in
            defer { holds = true }
            return holds
        }
        if held { return }
        engine.hold()
        loop.atEndOfTurn {
            self.holds.withLock { $0 = false }
            self.engine.release()
        }
    }
}

/// Keys that can't be had are the broker's trouble, not the caller's.
func available<Value>(_ body: () throws(SealingError) -> Value) throws(BrokerError) -> Value {
    do {
        return try body()
    } catch {
        throw BrokerError(error)
    }
}

/// A shortage says nothing about what was asked, and becomes `.overloaded`.
func unlessShort<Value>(_ body: () throws(SlotShortage) -> Value) throws(BrokerError) -> Value {
    do {
        return try body()
    } catch {
        throw .overloaded(error)
    }
}

/// Opens something sealed. Returns nil if it is invalid or its key is gone.
func ifItOpens<Value>(_ open: () throws(SealingError) -> Value) throws(BrokerError) -> Value? {
    try unlessShort { () throws(SlotShortage) in try opened(open) }
}

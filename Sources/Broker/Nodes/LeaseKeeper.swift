public import EventLoop
import Storage
import Synchronization

/// Renews this node's term, and the lease while it leads. Ends the process once another node has ended the term, or after ten minutes without the
/// database. All times count ms from the boot, sleep included: terms run out while the machine sleeps.
public actor LeaseKeeper: LoopActor {
    public nonisolated let loop: EventLoop
    private let store: PostgresStore
    private nonisolated let process: NodeProcess
    private let report: @Sendable (_ isLeaving: Bool) -> NodeReport
    /// When the term ends.
    private nonisolated let end: Mutex<UInt64>
    /// The fault of the store that was logged last.
    private var fault: StoreError?
    private nonisolated let alarm = Mutex<@Sendable () -> Void> {}
    /// When the other nodes have had time to renew their terms after an outage.
    private nonisolated let settled = Mutex<UInt64>(0)
    private var isFailing = false
    private var isStopped = false

    private static let periodMs: UInt64 = 2_000
    /// Longer than a renewal that begins with a new connection.
    private static let settlingMs: UInt64 = 12_000

    /// - Parameter taken: a time before the term began.
    init(
        _ store: PostgresStore, loop: EventLoop, process: NodeProcess, taken: UInt64,
        report: @escaping @Sendable (_ isLeaving: Bool) -> NodeReport
    ) {
        (self.store, self.loop, self.process, self.report) = (store, loop, process, report)
        end = Mutex(taken + PostgresStore.leaseMs)
    }

    /// True while no other node can have ended the term.
    public nonisolated var isCurrent: Bool { process.bootMs() < end.withLock(\.self) }

    /// False for some seconds after an outage in which this node's term ran out. The other nodes renew theirs meanwhile, so this one must not end them.
    nonisolated var isSettled: Bool { process.bootMs() >= settled.withLock(\.self) }

    /// Why this node can't serve. Nil if it can.
    public nonisolated var reasonNotReady: String? {
        if let fault = store.fault { return "\(fault)" }
        return isCurrent ? nil : "this node could not renew its term in the database. It tries again every 2 s"
    }

    /// Waits while the term is not current, e.g. after this process was suspended, or while the database lacks entries of the log.
    nonisolated func waitUntilCurrent() async {
        while !isCurrent || store.fault == .lostCommits { guard (try? await loop.sleep(50)) != nil else { return } }
    }

    func run() async {
        while !isStopped {
            await renew()
            do { try await loop.sleep(Self.periodMs) } catch { return }
        }
    }

    private func renew() async {
        let start = process.bootMs()
        if start + PostgresStore.leaseMs > end.withLock(\.self) + PostgresStore.longestSilenceMs {
            return endProcess(
                "this node had no contact with the database for ten minutes, or its machine slept. This node stops and forgets its keys"
            )
        }
        do {
            let isOwn = try await store.renew(report(false))
            if isStopped { return }
            guard isOwn else {
                return endProcess("another node has ended this one's term, as after a suspension. It stops and forgets its keys")
            }
            if !isCurrent { settled.withLock { $0 = process.bootMs() + Self.settlingMs } }
            end.withLock { $0 = start + PostgresStore.leaseMs }
            if isFailing { process.log.info("lease: renewed again") }
            isFailing = false
            note(store.fault)
        } catch {
            if isStopped { return }
            if !isFailing { process.log.error("lease: can't be renewed (\(error)); trying again every 2 s") }
            isFailing = true
        }
    }

    /// Sets what is called at each new fault.
    public nonisolated func onFault(_ alarm: @escaping @Sendable () -> Void) {
        if store.fault != nil { alarm() }
        self.alarm.withLock { $0 = alarm }
    }

    private func note(_ found: StoreError?) {
        if found == fault { return }
        fault = found
        guard let found else { return process.log.info("database: this node can store again") }
        process.log.error("database: \(found)")
        alarm.withLock(\.self)()
    }

    private func endProcess(_ reason: String) {
        isStopped = true
        process.log.error("lease: \(reason)")
        process.end()
    }

    /// Ends term and lease, so that other nodes needn't wait for their expiry.
    public func release() async {
        isStopped = true
        do { try await store.leave(report(true)) } catch {
            process.log.warning("lease: it ends by itself in \(PostgresStore.leaseMs / 1_000) s (\(error))")
        }
    }
}

import Ledger
import Linux
import Policy
import Postgres
import Synchronization

/// The entries that waited for publication when they were last counted.
struct Backlog: Sendable {
    var count: UInt64 = 0
    /// The number of that count.
    var stamp: UInt64 = 0
}

/// A node that may write, as long as no other node has ended its term.
struct PostgresNode: Sendable, Equatable {
    let name: String
    /// Counts the processes of this name, plus the terms that other nodes have ended.
    let term: UInt64
}

/// What the connections of a PostgreSQL store share: settings, the ledger's backlog, and whether this node was absent.
final class PostgresJournal: LedgerState {
    private struct State {
        var timing = LedgerTiming.standard
        var backlog = Backlog()
        /// The entries that this node has recorded since.
        var recorded: UInt64 = 0
        var hasStarted = false
        var node: PostgresNode?
        var leaseTerm: UInt64?
        var hosts: [PostgresConnection.Host]?
        /// The index of the host that was the primary last.
        var primary = 0
        /// Until when to avoid a host, on the monotonic clock, milliseconds.
        var avoided: [Int: UInt64] = [:]
        /// The agreed time of the last success, unix ms. Nil before the first one.
        var alive: UInt64?
        /// The largest size of the log's head, and the latest term of the lease, that were seen.
        var head: UInt64 = 0
        var latestLease: UInt64 = 0
        /// The last durable renewal of this node's term. 0 before the first one.
        var renewal: UInt64 = 0
        var hasLostCommits = false
        /// True if a commit may be durable although its operations were told that it failed.
        var hasUnknownCommit = false
        var clockIsWrong = false
        /// How often in a row a partition could not be dropped, and what the operator should know of that.
        var undropped = 0
        var alarms: [String] = []
        /// The stamps of other nodes, and since when each is known, on the monotonic clock.
        var renewals: [Renewed: Renewal] = [:]
    }

    /// The kinds of stamps that a process renews.
    enum Renewed: Hashable {
        case term(of: String)
        case lease(of: String?)
        case report(of: String)
    }

    private struct Renewal {
        var stamp: UInt64
        var since: UInt64
        var lastRead: UInt64
        /// True if an earlier stamp was seen.
        var isRenewed = false
    }

    /// `postgresql://...`. libpq's environment and files fill in what it lacks.
    let uri: String
    /// A window's length in seconds.
    let resolution: UInt64
    /// Entries to record after an absence.
    let resumption: [Entry.Op]
    /// Broker time in unix milliseconds.
    let now: @Sendable () -> UInt64
    /// Called with the log's latest window, unix ms, when broker time is behind it.
    let isBehind: @Sendable (UInt64) -> Void
    let clocks: PostgresClocks
    let interceptor: JobInterceptor?
    let limit: Int
    /// How many of the log's last entries are kept for nodes that don't serve yet. The default is about one window of a busy deployment.
    let keptForWaiting: Int
    private let state = Mutex(State())
    /// Held while one connection records an absence.
    private let resuming = Mutex(())

    /// The defaults are for a connection of no store.
    init(
        uri: String, resolution: UInt64 = 1, limit: Int = 1_000_000, keptForWaiting: Int = 65_536, resumption: [Entry.Op] = [],
        now: @escaping @Sendable () -> UInt64 = { 0 }, isBehind: @escaping @Sendable (UInt64) -> Void = { _ in },
        clocks: PostgresClocks = PostgresClocks(agreed: AgreedClock()), interceptor: JobInterceptor? = nil
    ) {
        (self.uri, self.resolution, self.limit, self.resumption) = (uri, resolution, limit, resumption)
        self.keptForWaiting = keptForWaiting
        (self.now, self.isBehind, self.clocks, self.interceptor) = (now, isBehind, clocks, interceptor)
    }

    var timing: LedgerTiming {
        get { state.withLock { $0.timing } }
        set { state.withLock { $0.timing = newValue } }
    }

    var hasStarted: Bool {
        get { state.withLock { $0.hasStarted } }
        set { state.withLock { $0.hasStarted = newValue } }
    }

    /// Is nil until this node may write under its name.
    var node: PostgresNode? {
        get { state.withLock { $0.node } }
        set { state.withLock { $0.node = newValue } }
    }

    /// Is nil while this node doesn't lead.
    var leaseTerm: UInt64? {
        get { state.withLock { $0.leaseTerm } }
        set { state.withLock { $0.leaseTerm = newValue } }
    }

    // MARK: Hosts

    /// Connects to the host that was the primary last, or else to another one. Hosts to avoid come last.
    /// - Parameter deadlineMs: the longest wait for each host.
    /// - Returns: the connection, and the index of its host if the URI names hosts.
    func connect(_ options: [(String, String)], deadlineMs: UInt64) throws(PostgresError) -> (PostgresConnection, host: Int?) {
        let hosts = try hosts()
        if hosts.isEmpty { return (try PostgresConnection(uri, options: options, deadlineMs: deadlineMs), nil) }
        let (first, avoided) = state.withLock { ($0.primary, $0.avoided) }
        let order = hosts.indices.map { (first + $0) % hosts.count }
        let now = Clock.monotonicMs
        let isAvoided = { (host: Int) in avoided[host, default: 0] > now }
        var failure: PostgresError?
        for host in order.filter({ !isAvoided($0) }) + order.filter(isAvoided) {
            do throws(PostgresError) {
                let made = try PostgresConnection(uri, options: options, host: hosts[host], deadlineMs: deadlineMs)
                state.withLock { $0.primary = host }
                return (made, host)
            } catch { failure = failure ?? error }
        }
        throw failure ?? .refused("no host")
    }

    /// The index of the host that was the primary last.
    var primary: Int { state.withLock(\.primary) }

    /// Tries all other hosts first for a minute. A primary whose commits hang still accepts connections, and another may have been promoted.
    func avoid(_ host: Int) { state.withLock { $0.avoided[host] = Clock.monotonicMs + 60_000 } }

    private func hosts() throws(PostgresError) -> [PostgresConnection.Host] {
        if let known = state.withLock(\.hosts) { return known }
        let hosts = try PostgresConnection.hosts(of: uri)
        state.withLock { $0.hosts = hosts }
        return hosts
    }

    // MARK: The backlog

    /// Call it with a count that was read from the database.
    func note(_ backlog: Backlog) {
        state.withLock { state in
            if backlog.stamp > state.backlog.stamp { (state.backlog, state.recorded) = (backlog, 0) }
        }
    }

    /// The number of the last count that this node knows.
    var stamp: UInt64 { state.withLock(\.backlog.stamp) }

    /// Call it for a new connection: after a failover the server may count from an earlier number.
    func forgetStamp() { state.withLock { $0.backlog.stamp = 0 } }

    func noteRecorded(_ count: UInt64) { state.withLock { $0.recorded += count } }

    var limited: Int { state.withLock { Int(clamping: $0.backlog.count + $0.recorded) } }

    // MARK: Faults of the server

    /// Why nothing new can be stored now. Known from the last transaction.
    var fault: StoreError? {
        state.withLock { $0.hasLostCommits ? .lostCommits : $0.clockIsWrong ? .wrongClock : nil }
    }

    /// Compares a transaction's clock with this machine's, and tells broker time how far the log is.
    /// - Parameters:
    ///   - clock: the database's, unix ms.
    ///   - latest: the latest window with an entry, unix seconds.
    func agreed(on clock: UInt64, latest: UInt64) throws(StoreError) -> AgreedClock.Comparison {
        do throws(StoreError) {
            var comparison = try clocks.agreed.compare(clock)
            state.withLock { $0.clockIsWrong = !comparison.isConfirmed }
            let now = now()
            if latest * 1_000 > now { isBehind(latest * 1_000) }
            // After a step ahead, the log keeps the pace of broker time. After a step back it must not stand still while the keys go on.
            if now > comparison.clock + AgreedClock.largestDifferenceMs { comparison.clock = now }
            comparison.clock = min(comparison.clock, now)
            return comparison
        } catch {
            state.withLock { $0.clockIsWrong = true }
            throw error
        }
    }

    /// The largest size of the log's head that was seen.
    var head: UInt64 { state.withLock(\.head) }

    /// Records a head that must not be lost. A smaller head later means lost commits. Ignores heads from a server that has lost commits.
    func note(head: UInt64) { state.withLock { if !$0.hasLostCommits { $0.head = max($0.head, head) } } }

    /// The latest term of the lease that was seen.
    var latestLease: UInt64 { state.withLock(\.latestLease) }

    func note(lease term: UInt64) { state.withLock { if !$0.hasLostCommits { $0.latestLease = max($0.latestLease, term) } } }

    /// The last durable renewal of this node's term.
    var renewal: UInt64 { state.withLock(\.renewal) }

    func note(renewal stamp: UInt64) { state.withLock { if !$0.hasLostCommits { $0.renewal = max($0.renewal, stamp) } } }

    /// A failover has lost commits, but nothing of the published log.
    func noteSmallLoss() {
        state.withLock { state in
            if state.renewal == 0 { return }
            // Until the next renewal every transaction meets the same loss.
            state.renewal = 0
            state.alarms.append(
                "a failover has lost commits of the last seconds. Changes of these seconds are lost: some new rooms and tokens are unknown, "
                    + "and some deleted ones exist until they expire. Use synchronous replication")
        }
    }

    /// Lasts until `forgetLoss`: the log of the wrong server may outgrow the lost one.
    func noteLoss() { state.withLock { $0.hasLostCommits = true } }
    func noteUnknownCommit() { state.withLock { $0.hasUnknownCommit = true } }
    func takeUnknownCommit() -> Bool {
        state.withLock { state in
            defer { state.hasUnknownCommit = false }
            return state.hasUnknownCommit
        }
    }

    /// The database has everything again.
    func forgetLoss() { state.withLock { $0.hasLostCommits = false } }

    /// A new log begins.
    func forgetHead() { state.withLock { $0.head = 0 } }

    /// Notes why a partition could not be dropped, or nil if all were. A command that reads may keep one for some seconds, so only the second
    /// failure in a row is an alarm.
    func note(undropped reason: String?) {
        state.withLock { state in
            state.undropped = reason == nil ? 0 : state.undropped + 1
            if let reason, state.undropped == 2 { state.alarms.append(reason) }
        }
    }

    /// Returns the alarms since the last call.
    func takeAlarms() -> [String] { state.withLock { $0.alarms.takeAll() } }

    // MARK: Renewals

    /// Nodes read all stamps every second or two.
    private static let longestBlindMs: UInt64 = 5_000

    /// Judges whether another process still renews a stamp: by this process's monotonic clock, since any wall clock may step.
    /// - Parameter stamp: its present value. 0: another node has ended it. 1: it was given up.
    func life(_ name: Renewed, stamp: UInt64) -> NodeLife {
        let now = clocks.monotonic()
        return state.withLock { state in
            var renewal = state.renewals[name] ?? Renewal(stamp: stamp, since: now, lastRead: now)
            if renewal.stamp != stamp { renewal = Renewal(stamp: stamp, since: now, lastRead: now, isRenewed: true) }
            // While nothing could be read, nothing could be renewed either.
            if now - renewal.lastRead > Self.longestBlindMs { renewal.since = now }
            renewal.lastRead = now
            state.renewals[name] = renewal
            if stamp <= 1 || now - renewal.since >= PostgresStore.leaseMs { return .over }
            return renewal.isRenewed ? .renewed : .unknown
        }
    }

    /// How long a stamp has not changed, milliseconds. 0 if it was not seen before.
    func unchangedMs(_ name: Renewed, stamp: UInt64) -> UInt64 {
        _ = life(name, stamp: stamp)
        return state.withLock { clocks.monotonic() - ($0.renewals[name]?.since ?? clocks.monotonic()) }
    }

    // MARK: Absence

    /// Records `resumption` with `record` if this node had no success for a minute. Others wait until that is done, so that no entry precedes it.
    /// - Parameter clock: the agreed time, unix ms.
    func resume(at clock: UInt64, _ record: () throws -> Void) throws {
        try resuming.withLock { _ in if isAbsence(until: clock) { try record() } }
    }

    func isAbsence(until clock: UInt64) -> Bool { state.withLock { isAbsence($0, clock) } }

    private func isAbsence(_ state: State, _ clock: UInt64) -> Bool {
        guard let alive = state.alive else { return false }
        return state.hasStarted && clock > alive && clock - alive > Self.longestSilence && !resumption.isEmpty
    }

    /// Does nothing after an absence until that is recorded: the clock may have stepped ahead and back since.
    /// - Parameter clock: the agreed time, unix ms.
    func noteAlive(at clock: UInt64, isResuming: Bool) {
        state.withLock { state in
            if isResuming || !isAbsence(state, clock) { state.alive = max(state.alive ?? 0, clock) }
        }
    }
}

/// The clocks of a PostgreSQL store. Tests replace them.
struct PostgresClocks: Sendable {
    /// Also the clock of broker time.
    var agreed: AgreedClock
    /// Milliseconds. Never steps, and stands still while the machine sleeps.
    var monotonic: @Sendable () -> UInt64 = { Clock.monotonicMs }
    /// Replaces the server's, unix ms.
    var database: (@Sendable () -> UInt64)?
}

/// Called around the jobs of a PostgreSQL store, for tests that delay or fail them, or wait for them.
struct JobInterceptor: Sendable {
    /// Threads that take jobs from one queue.
    struct Lane: Sendable, Hashable {
        let name: String
        let threads: Int
    }

    /// Called when a job is queued.
    let queued: @Sendable (Lane) -> Void
    /// Called with the number of jobs that a thread runs together, before it runs them. They fail with what this throws.
    let before: @Sendable (Lane, Int) throws(StoreError) -> Void
    /// Called when they have run. Their callers get the error that this throws, although the jobs are done.
    let after: @Sendable (Lane) throws(StoreError) -> Void
    /// Called when their callers have their answers.
    let answered: @Sendable (Lane) -> Void
}

/// The state of another process, as its stamp shows it.
public enum NodeLife: Sendable {
    case renewed
    /// Its stamp was read less than a term ago and has not changed yet.
    case unknown
    case over
}

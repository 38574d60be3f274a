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
final class PostgresJournal: Sendable {
    private struct State {
        var timing: LedgerTiming
        var backlog = Backlog()
        /// The entries that this node has recorded since.
        var recorded: UInt64 = 0
        var hasStarted = false
        var node: PostgresNode?
        var leaseTerm: UInt64?
        var hosts: [Connection.Host]?
        /// The index of the host that was the primary last.
        var primary = 0
        /// Until when to avoid a host, on the monotonic clock, milliseconds.
        var avoided: [Int: UInt64] = [:]
        /// The time of the last success, unix milliseconds.
        var alive: UInt64
    }

    let uri: String
    /// A window's length in seconds.
    let resolution: UInt64
    /// Entries to record after an absence.
    let resumption: [Entry.Op]
    /// Broker time in unix milliseconds.
    let now: @Sendable () -> UInt64
    /// Replaces the database's clock in tests.
    let databaseClock: (@Sendable () -> UInt64)?
    private let limit: Int
    private let state: Mutex<State>
    /// Held while one connection records an absence.
    private let resuming = Mutex(())
    /// A longer time without success is an absence. The sweeper succeeds at least twice as often.
    private static let longestSilence: UInt64 = 60_000

    init(
        uri: String, resolution: UInt64, timing: LedgerTiming, limit: Int, resumption: [Entry.Op],
        now: @escaping @Sendable () -> UInt64, databaseClock: (@Sendable () -> UInt64)?
    ) {
        self.uri = uri
        self.resolution = resolution
        self.resumption = resumption
        self.now = now
        self.databaseClock = databaseClock
        self.limit = limit
        state = Mutex(State(timing: timing, alive: now()))
    }

    /// For a connection that only changes the schema.
    convenience init(uri: String) {
        self.init(uri: uri, resolution: 1, timing: .standard, limit: 0, resumption: [], now: { 0 }, databaseClock: nil)
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
    func connect(_ options: [(String, String)], deadlineMs: UInt64) throws(PostgresError) -> (Connection, host: Int?) {
        let hosts = try hosts()
        if hosts.isEmpty { return (try Connection(uri, options: options, deadlineMs: deadlineMs), nil) }
        let (first, avoided) = state.withLock { ($0.primary, $0.avoided) }
        let order = hosts.indices.map { (first + $0) % hosts.count }
        let now = Clock.monotonicMs
        let isAvoided = { (host: Int) in avoided[host, default: 0] > now }
        var failure: PostgresError?
        for host in order.filter({ !isAvoided($0) }) + order.filter(isAvoided) {
            do throws(PostgresError) {
                let made = try Connection(uri, options: options, host: hosts[host], deadlineMs: deadlineMs)
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

    private func hosts() throws(PostgresError) -> [Connection.Host] {
        if let known = state.withLock(\.hosts) { return known }
        let hosts = try Connection.hosts(of: uri)
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

    func noteRecorded(_ count: UInt64) { state.withLock { $0.recorded += count } }

    /// Returns true if the backlog has reached `thousandths` of the limit.
    func isFull(_ thousandths: Int) -> Bool {
        state.withLock { Int(clamping: ($0.backlog.count + $0.recorded) * 1_000) >= limit * thousandths }
    }

    // MARK: Absence

    /// Records `resumption` with `record` if this node had no success for a minute. Others wait until that is done, so that no entry precedes it.
    func resume(_ record: () throws -> Void) throws {
        guard wasAbsent else { return }
        try resuming.withLock { _ in if wasAbsent { try record() } }
    }

    private var wasAbsent: Bool {
        let now = now()
        return state.withLock { $0.hasStarted && now > $0.alive && now - $0.alive > Self.longestSilence } && !resumption.isEmpty
    }

    func noteAlive() {
        let now = now()
        state.withLock { $0.alive = max($0.alive, now) }
    }
}

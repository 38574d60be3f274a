import Synchronization

/// Gives each ledger entry its window and its place in it, and knows how many wait to be published.
///
/// Windows are unix seconds at which a window starts. They never go back, whatever the clock says. At a stop the open window is
/// published as it stands; what the next start adds to it follows under the same window.
final class Journal: Sendable {
    private struct State {
        /// The latest window that was given to the log: no entry gets an earlier one.
        var given: UInt64 = 0
        /// The window of the latest entry.
        var latest: UInt64 = 0
        var backlog = Backlog()
        /// When the store last could do what was asked of it.
        var alive: UInt64 = 0
        /// The moment of the transaction under way: nothing of it happens at another, whatever the clock does meanwhile.
        var moment: UInt64 = 0
        var hasStarted = false
    }

    /// What was recorded, and how much of it waits.
    struct Backlog {
        /// The number of the latest entry.
        var sequence: UInt64 = 0
        /// Entries that are not known to be published.
        var waiting = 0
        /// Of these, what counts towards the limit: no purges, which are bounded by the tokens there are.
        var limited = 0
        /// Of these, what the signed head covers.
        var covered = 0
    }

    private let state = Mutex(State())
    private let resolution: UInt64
    private let limit: Int
    private let now: @Sendable () -> UInt64
    /// A longer time without a sign of life is an absence; the sweeper gives one at least twice as often.
    private static let longestSilence: UInt64 = 60_000

    /// - Parameters:
    ///   - resolution: a window's length in seconds.
    ///   - limit: how many entries, purges not counted, may wait before operations are refused.
    ///   - now: broker time in unix milliseconds.
    init(resolution: UInt64, limit: Int, now: @escaping @Sendable () -> UInt64) {
        self.resolution = resolution
        self.limit = limit
        self.now = now
        let start = now()
        state.withLock { ($0.alive, $0.moment) = (start, start) }
    }

    /// A transaction begins.
    func begin() {
        let now = now()
        state.withLock { $0.moment = max($0.moment, now) }
    }

    /// The log has been told that this broker has started.
    func noteStart() { state.withLock { $0.hasStarted = true } }

    /// The log is closed: what comes now is the next one's.
    func noteEnd() { state.withLock { $0.hasStarted = false } }

    var hasStarted: Bool { state.withLock { $0.hasStarted } }

    /// Whether nothing was done for so long that the log has to say so before it goes on: the machine slept, its clock jumped, or
    /// the disk was full.
    var wasAbsent: Bool { state.withLock { $0.moment > $0.alive && $0.moment - $0.alive > Self.longestSilence } }

    /// Everything that was asked for was done.
    func noteAlive() { state.withLock { $0.alive = max($0.alive, $0.moment) } }

    /// Takes up where the database left off, `given` being the latest window that it holds.
    func resume(given: UInt64, backlog: Backlog) {
        state.withLock { ($0.given, $0.latest, $0.backlog) = (given, given, backlog) }
    }

    /// Set back by an operation that is rolled back.
    var backlog: Backlog {
        get { state.withLock { $0.backlog } }
        set { state.withLock { $0.backlog = newValue } }
    }

    /// Whether so many thousandths of the limit are reached.
    func isFull(_ thousandths: Int) -> Bool {
        state.withLock { $0.backlog.limited * 1_000 >= limit * thousandths }
    }
    var waiting: Int { state.withLock { $0.backlog.waiting } }

    func next(isPurge: Bool) -> (window: UInt64, sequence: UInt64) {
        state.withLock { state in
            state.backlog.sequence += 1
            state.backlog.waiting += 1
            if !isPurge { state.backlog.limited += 1 }
            state.latest = max(start(state), state.given)
            return (state.latest, state.backlog.sequence)
        }
    }

    private func start(_ state: State) -> UInt64 { state.moment / 1_000 / resolution * resolution }

    /// Entries before `window` are given to the log. Broker time never goes back, so that none of them can come later, unless
    /// `window` lies ahead of it.
    func give(before window: UInt64) {
        state.withLock { state in
            if state.latest < window { state.given = max(state.given, state.latest) }
        }
    }

    /// The window of this transaction's entries.
    var upcoming: UInt64 { state.withLock { max(start($0), $0.given) } }
}

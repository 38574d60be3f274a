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
        var sequence: UInt64 = 0
        /// When the store last could do what was asked of it.
        var alive: UInt64 = 0
        var waiting = 0
    }

    private let state = Mutex(State())
    private let resolution: UInt64
    private let limit: Int
    private let now: @Sendable () -> UInt64
    /// A longer time without a sign of life is an absence; the sweeper gives one at least twice as often.
    private static let longestSilence: UInt64 = 60_000

    /// - Parameters:
    ///   - resolution: a window's length in seconds.
    ///   - limit: how many entries may wait before operations are refused.
    ///   - now: broker time in unix milliseconds.
    init(resolution: UInt64, limit: Int, now: @escaping @Sendable () -> UInt64) {
        self.resolution = resolution
        self.limit = limit
        self.now = now
        state.withLock { $0.alive = now() }
    }

    /// Whether nothing was done for so long that the log has to say so before it goes on: the machine slept, its clock jumped, or
    /// the disk was full.
    var wasAbsent: Bool {
        let now = now()
        return state.withLock { now > $0.alive && now - $0.alive > Self.longestSilence }
    }

    /// Everything that was asked for was done.
    func noteAlive() {
        let now = now()
        state.withLock { $0.alive = max($0.alive, now) }
    }

    /// Takes up where the database left off.
    func resume(given: UInt64, sequence: UInt64, waiting: Int) {
        let now = now()
        state.withLock { $0 = State(given: given, latest: given, sequence: sequence, alive: now, waiting: waiting) }
    }

    var isFull: Bool { state.withLock { $0.waiting >= limit } }
    var waiting: Int { state.withLock { $0.waiting } }

    func next() -> (window: UInt64, sequence: UInt64) {
        let start = now() / 1_000 / resolution * resolution
        return state.withLock { state in
            state.sequence += 1
            state.waiting += 1
            state.latest = max(start, state.given)
            return (state.latest, state.sequence)
        }
    }

    /// Entries before `window` are given to the log. Broker time never goes back, so that none of them can come later, unless
    /// `window` lies ahead of it.
    func give(before window: UInt64) {
        state.withLock { state in
            if state.latest < window { state.given = max(state.given, state.latest) }
        }
    }

    /// Where the next entry would stand.
    var upcoming: UInt64 {
        let start = now() / 1_000 / resolution * resolution
        return state.withLock { max(start, $0.given) }
    }

    /// Sets the backlog to what was counted; operations that were rolled back had counted as well.
    func setWaiting(_ count: Int) {
        state.withLock { $0.waiting = count }
    }
}

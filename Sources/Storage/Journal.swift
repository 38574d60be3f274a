import Synchronization

/// Gives each ledger entry its window and its place in it, and knows how many wait to be published.
///
/// Windows are unix seconds at which a window starts. They never go back: an entry that comes after a window was closed
/// belongs to a later one, whatever the clock says.
final class Journal: Sendable {
    private struct State {
        var closed: UInt64 = 0
        /// The window of the latest entry.
        var latest: UInt64 = 0
        var sequence: UInt64 = 0
        var waiting = 0
    }

    private let state = Mutex(State())
    private let resolution: UInt64
    private let limit: Int
    private let now: @Sendable () -> UInt64

    /// - Parameters:
    ///   - resolution: a window's length in seconds.
    ///   - limit: how many entries may wait before operations are refused.
    ///   - now: broker time in unix milliseconds.
    init(resolution: UInt64, limit: Int, now: @escaping @Sendable () -> UInt64) {
        self.resolution = resolution
        self.limit = limit
        self.now = now
    }

    /// Takes up where the database left off.
    func resume(closed: UInt64, sequence: UInt64, waiting: Int) {
        state.withLock { $0 = State(closed: closed, latest: closed, sequence: sequence, waiting: waiting) }
    }

    var isFull: Bool { state.withLock { $0.waiting >= limit } }
    var waiting: Int { state.withLock { $0.waiting } }

    func next() -> (window: UInt64, sequence: UInt64) {
        let start = now() / 1_000 / resolution * resolution
        return state.withLock { state in
            state.sequence += 1
            state.waiting += 1
            state.latest = max(start, state.closed + 1)
            return (state.latest, state.sequence)
        }
    }

    /// - Parameter window: `.max` closes what is open, and no more.
    func close(before window: UInt64) {
        state.withLock { state in
            state.closed = max(state.closed, window == .max ? state.latest : window - min(window, 1))
        }
    }

    /// Where the next entry would stand.
    var upcoming: UInt64 {
        let start = now() / 1_000 / resolution * resolution
        return state.withLock { max(start, $0.closed + 1) }
    }

    /// Sets the backlog to what was counted; operations that were rolled back had counted as well.
    func setWaiting(_ count: Int) {
        state.withLock { $0.waiting = count }
    }
}

import Synchronization

/// The clocks of a machine, set by a test. All in ms.
final class MachineClock: Sendable {
    private struct State {
        var monotonic: UInt64 = 1_000_000
        /// How far the others are ahead of the monotonic clock.
        var wall: Int64
        var boot: Int64 = 0
    }

    private let state: Mutex<State>

    init(wall: UInt64) { state = Mutex(State(wall: Int64(wall) - 1_000_000)) }

    var monotonic: UInt64 { state.withLock { $0.monotonic } }
    var wall: UInt64 { state.withLock { UInt64(Int64($0.monotonic) + $0.wall) } }
    var boot: UInt64 { state.withLock { UInt64(Int64($0.monotonic) + $0.boot) } }

    func pass(_ ms: UInt64) { state.withLock { $0.monotonic += ms } }
    /// Someone sets the wall clock.
    func step(_ ms: Int64) { state.withLock { $0.wall += ms } }
    /// The machine sleeps: nothing runs, and its monotonic clock stands still.
    func sleep(_ ms: UInt64) {
        state.withLock { state in
            state.wall += Int64(ms)
            state.boot += Int64(ms)
        }
    }
    func reboot() { state.withLock { $0.boot = 5_000 - Int64($0.monotonic) } }
}

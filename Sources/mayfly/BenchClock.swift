import Synchronization

/// A clock that goes on when it is told to.
final class BenchClock: Sendable {
    private let time = Mutex<UInt64>(1_767_225_600_000)

    var now: UInt64 { time.withLock { $0 } }

    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
}

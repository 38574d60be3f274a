public import Linux
import Sealing
import Synchronization
import Vocabulary

/// The broker's clock, which all its threads share. It never goes back, and it detects steps of the wall clock.
public final class BrokerTime: Sendable {
    private let clock: Mutex<BrokerClock>
    private let wall: @Sendable () -> UInt64
    private let boot: @Sendable () -> UInt64
    /// Steps of the wall clock that are not reported yet, in milliseconds.
    private let alarms = Mutex<[Int64]>([])

    /// - Parameters:
    ///   - persisted: the highest time that is known from earlier runs, unix ms.
    ///   - wall: returns the wall clock, unix ms.
    ///   - boot: returns a clock that does not step, in milliseconds.
    public init(
        persisted: UInt64, wall: @escaping @Sendable () -> UInt64 = { Clock.wallMs },
        boot: @escaping @Sendable () -> UInt64 = { Clock.boottimeMs }
    ) {
        self.wall = wall
        self.boot = boot
        clock = Mutex(BrokerClock(persistedMs: persisted, wallMs: wall(), bootMs: boot()))
    }

    /// Begins again after a time that an earlier run has recorded, unix ms. Call it before anything else reads the time: a node may have waited until
    /// its clock was right.
    public func resume(after persisted: UInt64) {
        clock.withLock { $0 = BrokerClock(persistedMs: persisted, wallMs: wall(), bootMs: boot()) }
    }

    /// Raises broker time to the log's latest window, unix ms. The ratchet follows as after a step of the wall clock.
    public func raise(to time: UInt64) {
        clock.withLock { clock in
            _ = clock.read(wallMs: wall(), bootMs: boot())
            clock.raise(to: time)
        }
    }

    /// Broker time, unix ms. Every expiry is measured by it.
    public var now: UInt64 { read().nowMs }

    /// The wall clock, unix ms. It may go back. Times of other systems, like those in JWTs, are compared with it.
    public var wallMs: UInt64 { wall() }

    /// The whole seconds by which broker time is ahead, after the wall clock was set back. Negative after it was set forward.
    var secondsAhead: Int64 { (Int64(clamping: now) - Int64(clamping: wallMs)) / 1_000 }

    /// Says when the wall clock will have caught up, if it is more than a minute behind. Broker time runs at half speed until then.
    public var lead: String? {
        let seconds = secondsAhead
        guard seconds > BrokerClock.largestStepMs / 1_000 else { return nil }
        let end = Timestamp.text((wallMs / 1_000 + 2 * UInt64(seconds)) * 1_000)
        return "The clock was set back. Log times are \(seconds) s ahead of it until \(end), and tokens expire late until then."
    }

    /// The time by which the ratchet steps, unix ms.
    public var ratchet: UInt64 { read().ratchetMs }

    /// True while the ratchet is held after a step of the wall clock.
    public var isHeld: Bool { read().isHeld }

    private func read() -> BrokerClock.Reading {
        let reading = clock.withLock { $0.read(wallMs: wall(), bootMs: boot()) }
        if let step = reading.alarm { alarms.withLock { $0.append(step) } }
        return reading
    }

    /// Returns the steps of the wall clock since the last call, in milliseconds.
    public func takeAlarms() -> [Int64] {
        alarms.withLock { alarms in
            defer { alarms = [] }
            return alarms
        }
    }
}

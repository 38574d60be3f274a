public import Linux
import Sealing
import Synchronization

/// The one clock of a broker, shared by its threads: never goes back, checked against a clock that does not step.
public final class BrokerTime: Sendable {
    private let clock: Mutex<BrokerClock>
    private let wall: @Sendable () -> UInt64
    private let boot: @Sendable () -> UInt64
    /// Steps of the wall clock that nobody has been told of yet, in milliseconds.
    private let alarms = Mutex<[Int64]>([])

    /// - Parameter persisted: the highest time that is known from before, in unix milliseconds.
    public init(
        persisted: UInt64, wall: @escaping @Sendable () -> UInt64 = { Clock.wallMs },
        boot: @escaping @Sendable () -> UInt64 = { Clock.boottimeMs }
    ) {
        self.wall = wall
        self.boot = boot
        clock = Mutex(BrokerClock(persistedMs: persisted, wallMs: wall(), bootMs: boot()))
    }

    /// Learns of a higher time from before, e.g. from the store.
    public func resume(after persisted: UInt64) {
        clock.withLock {
            $0 = BrokerClock(
                persistedMs: max(persisted, $0.read(wallMs: wall(), bootMs: boot()).nowMs), wallMs: wall(), bootMs: boot())
        }
    }

    /// Broker time: what expiry is measured by.
    public var now: UInt64 { read().nowMs }

    /// The wall clock as it is, which may go back: for what others wrote by theirs.
    public var wallMs: UInt64 { wall() }

    /// By how many whole seconds broker time is ahead, after the wall clock was set back.
    var secondsAhead: UInt64 {
        let (now, wall) = (now, wallMs)
        return now > wall ? (now - wall) / 1_000 : 0
    }

    /// What the ratchet steps by.
    public var ratchet: UInt64 { read().ratchetMs }

    /// The ratchet waits out a leap of the clock.
    public var isHeld: Bool { read().isHeld }

    private func read() -> BrokerClock.Reading {
        let reading = clock.withLock { $0.read(wallMs: wall(), bootMs: boot()) }
        if let step = reading.alarm { alarms.withLock { $0.append(step) } }
        return reading
    }

    /// Steps noticed since the last call.
    public func takeAlarms() -> [Int64] {
        alarms.withLock { alarms in
            defer { alarms = [] }
            return alarms
        }
    }
}

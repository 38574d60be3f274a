/// The broker's time, from the wall clock and CLOCK_BOOTTIME, which never steps. Times are unix ms.
///
/// Broker time never goes back. It starts at the later of the wall clock and the persisted time. While the wall clock is behind, broker time
/// advances at half the speed of CLOCK_BOOTTIME. So rows still expire, and the two clocks meet again. While the wall clock is ahead by less than
/// three minutes, broker time advances a quarter faster. If it is ahead by more, broker time leaps to it.
///
/// The ratchet's time usually equals broker time. If broker time leaps, the ratchet is held: it ignores the leap and advances
/// at normal speed. When broker time has advanced by a minute, without further leaps, the ratchet's time becomes broker time again.
public struct BrokerClock: Sendable {
    public static let largestStepMs: UInt64 = 60_000
    /// The shortest leap. In every log it is a gap, which is a minute without entries between two windows of up to a minute. Several shorter leaps
    /// would make entries late, and no gap would excuse them.
    public static let shortestLeapMs: UInt64 = 180_000
    /// A delay of one epoch is acceptable. The audit of the log allows two minutes of delay after a start, so a minute leaves time.
    static let holdMs: UInt64 = 60_000

    public struct Reading: Sendable, Equatable {
        /// Broker time, for all expiries. Never decreases.
        public let nowMs: UInt64
        /// The ratchet's time. Never decreases, and is never ahead of broker time.
        public let ratchetMs: UInt64
        /// The wall clock's step since the last reading, if larger than 60 s. The caller raises an alarm.
        public let alarm: Int64?
        /// True while the ratchet is held.
        public let isHeld: Bool
    }

    private var highest: UInt64
    private var ratchet: UInt64
    /// The last wall clock reading. Initially the least that it should show.
    private var lastWall: UInt64
    private var lastBoot: UInt64
    /// The advance of broker time since the ratchet was held. Nil if it isn't held.
    private var heldMs: UInt64?

    /// - Parameter persistedMs: the latest broker time known from earlier runs, at least `KeyRing.earliestNowMs`.
    public init(persistedMs: UInt64, wallMs: UInt64, bootMs: UInt64) {
        highest = max(persistedMs, wallMs)
        ratchet = highest
        lastWall = highest
        lastBoot = bootMs
    }

    public mutating func read(wallMs: UInt64, bootMs: UInt64) -> Reading {
        let boot = max(bootMs, lastBoot)
        let passed = boot - lastBoot
        // Differences of halves and quarters: those of the differences would lose time.
        let (half, quarter) = (boot / 2 - lastBoot / 2, boot / 4 - lastBoot / 4)
        lastBoot = boot
        let step = Int64(clamping: wallMs) - Int64(clamping: lastWall + passed)
        lastWall = wallMs
        let isLeap = wallMs >= highest + passed + Self.shortestLeapMs
        let now = max(highest + half, isLeap ? wallMs : min(wallMs, highest + passed + quarter))
        follow(now - highest, passed)
        highest = now
        if heldMs == nil { ratchet = now }
        return Reading(
            nowMs: now, ratchetMs: ratchet, alarm: step.magnitude > Self.largestStepMs ? step : nil, isHeld: heldMs != nil)
    }

    /// Continues at a later time, which another clock shows. Does nothing if it isn't later.
    public mutating func raise(to time: UInt64) {
        guard time > highest else { return }
        follow(time - highest, 0)
        highest = time
        if heldMs == nil { ratchet = time }
    }

    private mutating func follow(_ advance: UInt64, _ passed: UInt64) {
        let isLeap = advance > passed + Self.largestStepMs
        let gone = isLeap ? passed : advance
        if let held = heldMs {
            heldMs = held + gone < Self.holdMs ? held + gone : nil
        } else if isLeap {
            heldMs = 0
        }
        ratchet += gone
    }
}

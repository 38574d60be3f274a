/// The broker's time from the wall clock, checked against CLOCK_BOOTTIME, which does not step.
///
/// Broker time is the highest of wall clock, highest seen and persisted time, so it never goes back; while the wall clock is behind
/// it goes on at half the pace of CLOCK_BOOTTIME, so that things still expire and the two meet again. The ratchet's time is the
/// same, but when broker time leaps by more than 60 s the ratchet keeps its pace until broker time has gone on by a minute, further
/// leaps not counted; then it is broker time again, wherever the wall clock stands by now. Times are unix ms.
public struct BrokerClock: Sendable {
    public static let largestStepMs: UInt64 = 60_000
    /// The rule allows an epoch. A minute leaves room in the two that the log has for what is late after a start.
    static let holdMs: UInt64 = 60_000

    public struct Reading: Sendable, Equatable {
        /// Broker time: what expiry is measured by. Never decreases.
        public let nowMs: UInt64
        /// What the ratchet steps by. Never decreases, and is never ahead of broker time.
        public let ratchetMs: UInt64
        /// A step of the wall clock since the last reading, if it was larger than 60 s: raise the alarm.
        public let alarm: Int64?
        /// The ratchet is behind broker time.
        public let isHeld: Bool
    }

    private var highest: UInt64
    private var ratchet: UInt64
    /// What the wall clock showed last; at first, what it must show at least.
    private var lastWall: UInt64
    private var lastBoot: UInt64
    /// How far broker time has gone on since the leap that the ratchet waits out.
    private var heldMs: UInt64?

    /// `persistedMs`: the highest broker time that is known from before, and no earlier than the key file's `KeyRing.earliestNowMs`.
    public init(persistedMs: UInt64, wallMs: UInt64, bootMs: UInt64) {
        highest = max(persistedMs, wallMs)
        ratchet = highest
        lastWall = highest
        lastBoot = bootMs
    }

    public mutating func read(wallMs: UInt64, bootMs: UInt64) -> Reading {
        // Even, so that the half of many short times is not lost.
        let passed = (max(bootMs, lastBoot) - lastBoot) & ~1
        lastBoot += passed
        let step = Int64(clamping: wallMs) - Int64(clamping: lastWall + passed)
        lastWall = wallMs
        let now = max(highest + passed / 2, wallMs)
        follow(now - highest, passed)
        highest = now
        if heldMs == nil { ratchet = now }
        return Reading(
            nowMs: now, ratchetMs: ratchet, alarm: step.magnitude > Self.largestStepMs ? step : nil, isHeld: heldMs != nil)
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

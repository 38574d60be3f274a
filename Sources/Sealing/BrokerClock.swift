/// The broker's time from the wall clock, checked against CLOCK_BOOTTIME, which does not step.
///
/// Broker time is the highest of wall clock, highest seen and persisted time, so it never goes back; while the wall clock is behind
/// it goes on at half the pace of CLOCK_BOOTTIME, so that things still expire and the two meet again. The ratchet's time is the
/// same, but when the wall clock steps forward by more than 60 s it keeps its pace for an epoch: what a wrong clock destroys is
/// gone for good, and a person gets that long to put it right. Times are unix ms.
public struct BrokerClock: Sendable {
    public static let largestStepMs: UInt64 = 60_000

    public struct Reading: Sendable, Equatable {
        /// Broker time: what expiry is measured by. Never decreases.
        public let nowMs: UInt64
        /// What the ratchet steps by. Never decreases.
        public let ratchetMs: UInt64
        /// Set once, when a step of the wall clock is first noticed, to its size: raise the alarm.
        public let alarm: Int64?
        /// The wall clock's time is not trusted at present.
        public let isHeld: Bool
    }

    private var highest: UInt64
    /// The time that the wall clock and CLOCK_BOOTTIME agree on.
    private var steady: UInt64
    private var lastBoot: UInt64
    private var steppedAtBoot: UInt64?

    /// `persistedMs`: the highest broker time that was stored, and no earlier than the key file's `KeyRing.earliestNowMs`.
    public init(persistedMs: UInt64, wallMs: UInt64, bootMs: UInt64) {
        highest = max(persistedMs, wallMs)
        steady = highest
        lastBoot = bootMs
    }

    public mutating func read(wallMs: UInt64, bootMs: UInt64) -> Reading {
        // Even, so that the half of many short times is not lost.
        let passed = (max(bootMs, lastBoot) - lastBoot) & ~1
        lastBoot += passed
        let alarm = follow(wallMs, passed)
        highest = max(highest + passed / 2, wallMs, steady)
        return Reading(nowMs: highest, ratchetMs: steady, alarm: alarm, isHeld: steppedAtBoot != nil)
    }

    /// Moves the steady time on; the wall clock's step, if this is the first reading after one.
    private mutating func follow(_ wall: UInt64, _ passed: UInt64) -> Int64? {
        let difference = Int64(clamping: wall) - Int64(clamping: steady + passed)
        if difference.magnitude <= Self.largestStepMs {
            steppedAtBoot = nil
        } else if steppedAtBoot == nil {
            steppedAtBoot = lastBoot
            steady += difference > 0 ? passed : passed / 2
            return difference
        } else if difference > 0, lastBoot - steppedAtBoot! < Epoch.lengthMs {
            steady += passed
            return nil
        } else if difference > 0 {
            // The hold is over: it is believed.
            steppedAtBoot = nil
        }
        steady = max(steady + passed / 2, wall)
        return nil
    }
}

/// The broker's time from the wall clock, checked against CLOCK_BOOTTIME, which does not step.
///
/// Broker time is the highest of wall clock, highest seen and persisted time: it never goes back, and while the wall clock is
/// behind it goes on at the pace of CLOCK_BOOTTIME, so that things still expire. The ratchet's time is the same, but for an epoch
/// after the wall clock has stepped by more than 60 s it keeps to the old time's pace: what a wrong clock destroys is gone for
/// good, and a person gets that long to put it right. Times are unix ms.
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
    /// The time that wall clock and CLOCK_BOOTTIME have agreed on, moved on by the latter.
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
        steady += bootMs - min(lastBoot, bootMs)
        lastBoot = max(lastBoot, bootMs)
        let alarm = judge(wallMs, lastBoot)
        highest = max(highest, wallMs, steady)
        return Reading(nowMs: highest, ratchetMs: steady, alarm: alarm, isHeld: steppedAtBoot != nil)
    }

    /// Follows the wall clock where it may be trusted; the step, if this is the first reading after one.
    private mutating func judge(_ wall: UInt64, _ boot: UInt64) -> Int64? {
        let difference = Int64(clamping: wall) - Int64(clamping: steady)
        if difference.magnitude <= Self.largestStepMs {
            // Slewing: forwards it is followed, backwards it is waited for.
            steady = max(steady, wall)
            steppedAtBoot = nil
            return nil
        }
        guard let since = steppedAtBoot else {
            steppedAtBoot = boot
            return difference
        }
        // The hold is over. A clock that went forward is believed; one that went back never is.
        if boot - since >= Epoch.lengthMs, wall > steady {
            steady = wall
            steppedAtBoot = nil
        }
        return nil
    }
}

import Sodium

/// When a push leaves, so that its time says little about the knock's.
///
/// A knock takes the first boundary between two slots that comes after it (slots are whole multiples of their length in unix time),
/// or without slots its own moment, and a delay is drawn and added. What that keeps back, and why: `docs/delivery.md`. In ms.
public struct SendTiming: Sendable, Equatable {
    /// 0: no slots.
    public let slotMs: UInt64
    /// The delay is drawn evenly from 0 up to, and not including, this.
    public let jitterMs: UInt64

    public init(slotSeconds: Int?, jitterSeconds: Int?) {
        slotMs = UInt64(clamping: slotSeconds ?? 0) * 1_000
        jitterMs = UInt64(clamping: jitterSeconds ?? 0) * 1_000
    }

    /// A push leaves when it is asked for, and its time is the knock's.
    public var isAtOnce: Bool { slotMs + jitterMs == 0 }

    /// From a knock to its push, at most.
    public var longestWaitMs: UInt64 { slotMs + jitterMs }

    /// The bound: who has the time of one push, and knew no better before, finds the knock's time spread evenly over this much of the
    /// `longestWaitMs` before the push, or more. A guess at its second is right once in so many seconds, or less often.
    ///
    /// A jitter of no more than a slot adds nothing: there is one boundary that the push can have waited for.
    public var spanMs: UInt64 { slotMs == 0 ? jitterMs : slotMs * max(1, jitterMs / slotMs) }

    /// When a push can leave that is asked for at `knock`, before jitter.
    public func boundary(after knock: UInt64) -> UInt64 {
        slotMs == 0 ? knock : (knock / slotMs + 1) * slotMs
    }

    /// Draws when the push leaves, once and for all.
    /// - Parameter draw: a number below its argument, none likelier than another; jitter is 60 s at most.
    public func departure(boundary: UInt64, draw: (UInt32) -> UInt32 = Sodium.random(below:)) -> UInt64 {
        jitterMs == 0 ? boundary : boundary + UInt64(draw(UInt32(clamping: jitterMs)))
    }

    /// When a push leaves that was to leave at `departure`: whole slots later, if that time is over. Then it is one of a slot's again,
    /// and what it waited for (the disk, a start) does not show.
    public func departure(missed departure: UInt64, now: UInt64) -> UInt64 {
        slotMs == 0 || departure > now ? departure : departure + ((now - departure) / slotMs + 1) * slotMs
    }

    /// From when on a side may be knocked at again whose push leaves at `departure`, so that its next one leaves `throttleMs` later or
    /// later still. It is a boundary: a time inside a slot would cut that slot for the next knock.
    public func nextKnock(after departure: UInt64, throttleMs: UInt64) -> UInt64 {
        let earliest = departure + throttleMs
        return slotMs == 0 ? earliest : (earliest + slotMs - 1) / slotMs * slotMs - slotMs
    }
}

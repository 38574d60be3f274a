import Policy

/// When a push leaves, how long it is tried, and from when its expiry is counted. All times are unix ms.
///
/// Apple sees when a push leaves, when it expires and when the attempts end. With slots or jitter all of these follow from the first, so that
/// none tells more about the knock's time.
struct JobTimes {
    /// The times of one knock, which are stored with its job.
    struct Plan: Equatable {
        /// 0 for at once.
        let notBefore: UInt64
        let deadline: UInt64
        /// The knock's time as the throttle counts it.
        let knocked: UInt64
    }

    private let timing: SendTiming
    /// How long attempts go on: no longer than the push is worth delivering. A push with only one attempt has the whole deadline for it.
    private let lifeMs: UInt64
    private let throttleMs: UInt64

    init(_ template: Template) {
        timing = template.timing
        let limits = template.jobs
        throttleMs = limits.throttleMs
        let ttl = UInt64(clamping: template.ttlSeconds) * 1_000
        // A knock that the grace after a start delays must end by its deadline, too.
        let longest = timing.isAtOnce ? limits.deadlineMs : limits.deadlineMs - limits.startGraceMs
        lifeMs = ttl == 0 ? longest : min(ttl, longest)
    }

    /// - Parameters:
    ///   - heldUntil: nothing leaves before this time. 0 for no such time.
    ///   - tokenExpires: when the token expires, and the room with it.
    /// - Returns: nil if the token could expire before the push leaves.
    func plan(now: UInt64, heldUntil: UInt64, tokenExpires: UInt64) -> Plan? {
        guard !timing.isAtOnce else {
            return Plan(notBefore: heldUntil, deadline: min(now + lifeMs, tokenExpires), knocked: now)
        }
        let boundary = timing.boundary(after: max(now, heldUntil))
        // Use the longest jitter, not the drawn one. Otherwise pushes would crowd before the end.
        guard boundary + timing.jitterMs < tokenExpires else { return nil }
        let leaves = timing.departure(boundary: boundary)
        // Count as if every push had waited the longest. The distance to `now` would tell the knock's time.
        let counted = leaves - timing.longestWaitMs
        return Plan(
            notBefore: leaves, deadline: min(counted + lifeMs, tokenExpires),
            knocked: timing.nextKnock(after: leaves, throttleMs: throttleMs) - throttleMs)
    }

    /// The time from which the push's expiry is counted, so that each attempt carries the same headers. If the token's expiry cut the
    /// deadline short, the push is worth delivering until then anyway.
    func counted(deadline: UInt64, tokenExpires: UInt64) -> UInt64 {
        deadline < tokenExpires ? deadline - min(deadline, lifeMs) : tokenExpires
    }
}

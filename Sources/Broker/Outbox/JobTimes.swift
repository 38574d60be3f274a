import Policy

/// When a push leaves, how long it may be tried, and from when its worth is counted. In unix ms.
///
/// Apple sees when a push leaves, when it expires and when the attempts end. Where a template has slots or jitter all of these follow
/// from the first, so that none says more about the knock's time than it does.
struct JobTimes {
    /// What is decided for one knock, and kept with its job.
    struct Plan: Equatable {
        /// 0: at once.
        let notBefore: UInt64
        let deadline: UInt64
        /// When the side is taken to have been knocked at, for the throttle.
        let knocked: UInt64
    }

    private let timing: SendTiming
    /// The longest that is tried: no longer than the push is worth delivering; one that is tried once only has the whole deadline
    /// for it.
    private let lifeMs: UInt64
    private let throttleMs: UInt64

    init(_ template: Template) {
        timing = template.timing
        let limits = template.jobs
        throttleMs = limits.throttleMs
        let ttl = UInt64(clamping: template.ttlSeconds) * 1_000
        // Also a knock that the grace after a start holds back ends by its deadline.
        let longest = timing.isAtOnce ? limits.deadlineMs : limits.deadlineMs - limits.startGraceMs
        lifeMs = ttl == 0 ? longest : min(ttl, longest)
    }

    /// - Parameters:
    ///   - heldUntil: before this nothing leaves; 0 for no such time.
    ///   - tokenExpires: when the token ends, and the room with it.
    /// - Returns: nil if the token ends before the push is certain to have left.
    func plan(now: UInt64, heldUntil: UInt64, tokenExpires: UInt64) -> Plan? {
        guard !timing.isAtOnce else {
            return Plan(notBefore: heldUntil, deadline: min(now + lifeMs, tokenExpires), knocked: now)
        }
        let boundary = timing.boundary(after: max(now, heldUntil))
        // Not what the draw comes to: pushes would crowd before the end.
        guard boundary + timing.jitterMs < tokenExpires else { return nil }
        let leaves = timing.departure(boundary: boundary)
        // As if every push had waited the longest: `now` would give the knock away by its distance.
        let counted = leaves - timing.longestWaitMs
        return Plan(
            notBefore: leaves, deadline: min(counted + lifeMs, tokenExpires),
            knocked: timing.nextKnock(after: leaves, throttleMs: throttleMs) - throttleMs)
    }

    /// From when the push's worth is counted, so that each attempt carries the same headers. A deadline that the token's end cut short
    /// does not tell; then the push is worth delivering until that end anyway.
    func counted(deadline: UInt64, tokenExpires: UInt64) -> UInt64 {
        deadline < tokenExpires ? deadline - min(deadline, lifeMs) : tokenExpires
    }
}

extension Policy {
    /// What a policy is for. At most one of each is in force.
    public enum Kind: String, Sendable, CaseIterable {
        /// Anonymous rooms of two.
        case rooms
        /// Sessions, approvals and Live Activities of apps with accounts.
        case companion
        /// Devices that watch something.
        case monitor
        /// Phones that ring.
        case calls
    }
}

/// A policy's numbers.
public enum PolicyLimits: Sendable, Equatable {
    case rooms(Limits)
    case audience(AudienceLimits)

    /// The longest life of anything that is sealed: how far ahead keys must reach.
    public var longestLifeSeconds: Int {
        switch self {
        case .rooms(let limits): limits.longestLifeSeconds
        case .audience(let limits): limits.longestLifeSeconds
        }
    }

    var jobs: JobLimits {
        switch self {
        case .rooms(let limits):
            JobLimits(
                deadlineMs: limits.jobDeadlineMs, startGraceMs: limits.startGraceMs, throttleMs: limits.knockThrottleMs)
        case .audience(let limits): JobLimits(deadlineMs: limits.jobDeadlineMs, startGraceMs: 0, throttleMs: 0)
        }
    }
}

/// What a policy's limits come to for one job. In ms.
public struct JobLimits: Sendable, Equatable {
    /// How long it may try to reach Apple.
    public let deadlineMs: UInt64
    /// How long after a start it may be held back.
    public let startGraceMs: UInt64
    /// The shortest time to the next one for the same side; 0 where the job does not decide that.
    public let throttleMs: UInt64
}

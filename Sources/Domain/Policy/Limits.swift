/// The limits of a policy for rooms. Lives that a caller can choose are in seconds, all other durations in milliseconds.
public struct Limits: Sendable, Equatable {
    /// The allowed lives of a room.
    public let roomLifeSeconds: ClosedRange<Int>
    /// The default life of a room.
    public let roomLifeDefaultSeconds: Int
    /// The allowed lives of a join code.
    public let codeLifeSeconds: ClosedRange<Int>
    /// The default life of a code. A code never outlives its room.
    public let codeLifeDefaultSeconds: Int

    /// The least number of characters in a join code.
    public let shortestCode: Int
    /// Codes with fewer characters are short.
    public let shortCodeBelow: Int
    /// The most pending rooms with a short code.
    public let pendingShortCodes: Int
    /// How long a code can't be reused after its accept.
    public let codeKeptAfterAcceptMs: UInt64
    /// How long a lost answer to an accept can be repeated.
    public let retryWindowMs: UInt64

    /// The least time between two knocks of one side.
    public let knockThrottleMs: UInt64
    /// The quota of pushes to one token, over all rooms.
    public let tokenKnocks: Budget
    /// How long a reported presence is valid.
    public let presenceMs: UInt64
    /// The timeout for a pinged socket. Its side counts as absent after that.
    public let presenceProbeMs: UInt64
    /// How long a disconnected peer still counts as present.
    public let peerGraceMs: UInt64
    /// How long after a start a knock waits for the peer to reconnect.
    public let startGraceMs: UInt64
    /// The time limit for sending a push.
    public let jobDeadlineMs: UInt64

    /// The prefix length of an address. Addresses with the same prefix share a budget.
    public let ipv4Bits: Int
    public let ipv6Bits: Int
    public let creations: Budgets
    public let wrongCodes: Budgets

    /// `tokenKnocks` of a policy that doesn't set it.
    static let tokenKnocksDefault = Budget(count: 30, windowMs: 300_000)
    /// `presenceProbeSeconds` of a policy that doesn't set it.
    static let presenceProbeDefaultSeconds = 2

    /// The overall budget of rooms with a short code. Each creation reveals whether its code was free.
    public var shortCreations: Budget { Budget(count: pendingShortCodes, windowMs: wrongCodes.overall.windowMs) }

    /// The longest life of anything sealed. Keys must reach that far ahead.
    public var longestLifeSeconds: Int { roomLifeSeconds.upperBound }

    /// Returns the life of a code whose room lives `roomSeconds`.
    /// - Parameter asked: the life that the caller asked for, within `codeLifeSeconds`. Nil for the default.
    public func codeLifeSeconds(asked: Int?, roomSeconds: Int) -> Int {
        min(asked ?? codeLifeDefaultSeconds, roomSeconds)
    }

    /// The longest time a join code is stored, pending and used.
    public var codeRetentionMs: UInt64 { UInt64(codeLifeSeconds.upperBound) * 1_000 + codeKeptAfterAcceptMs }

    public func isShort(codeOf count: Int) -> Bool { count < shortCodeBelow }
}

/// A number of uses in a time window.
public struct Budget: Sendable, Equatable {
    public let count: Int
    public let windowMs: UInt64

    /// Returns how many uses one of several nodes may grant, at least one.
    public func count(over nodes: Int) -> Int { nodes == 1 ? count : max(1, (count + nodes - 1) / nodes) }

    /// The most uses in a day.
    public var perDay: Int { Int((UInt64(count) * 86_400_000).dividedRoundingUp(by: windowMs)) }
}

extension UInt64 {
    fileprivate func dividedRoundingUp(by divisor: UInt64) -> UInt64 { (self + divisor - 1) / divisor }
}

/// A budget for each address, and one for all together.
public struct Budgets: Sendable, Equatable {
    public let perAddress: Budget
    public let overall: Budget
}

/// The limits of a policy for apps with accounts.
public struct AudienceLimits: Sendable, Equatable {
    /// The longest life of a device's registration. Registering again renews it.
    public let deviceLifeMs: UInt64
    /// How long a session's data is kept: its active client, start, progress and marks against repeats.
    public let sessionLifeMs: UInt64
    /// The most registered devices of one owner.
    public let registrationsPerOwner: Int
    /// The quota of events for one user.
    public let eventsPerUser: Budget
    /// The quota of pushes to one token, over all owners.
    public let tokenPushes: Budget
    /// The time limit for sending a push.
    public let jobDeadlineMs: UInt64
    /// Nil for a kind of app without Live Activities.
    public let activities: ActivityLimits?
    /// Nil for a kind of app without approvals.
    public let approvals: ApprovalLimits?

    /// The longest life of anything sealed. Keys must reach that far ahead.
    public var longestLifeSeconds: Int {
        Int(max(deviceLifeMs, sessionLifeMs, activities?.lifeMs ?? 0, approvals?.keptMs ?? 0) / 1_000)
    }
}

/// The limits of Live Activities.
public struct ActivityLimits: Sendable, Equatable {
    /// The longest life of a registration.
    public let lifeMs: UInt64
    /// The most registered activities of one owner.
    public let perOwner: Int
    /// The least time between two updates of one activity.
    public let updateMs: UInt64
}

/// The limits of approvals.
public struct ApprovalLimits: Sendable, Equatable {
    /// How long an approval can be answered.
    public let answerableMs: UInt64
    /// How long the answer can be read after that.
    public let answerKeptMs: UInt64

    /// How long an approval is kept in total.
    public var keptMs: UInt64 { answerableMs + answerKeptMs }
}

extension Policy {
    /// The kind of app that a policy is for. At most one policy of each kind is in force.
    public enum Kind: String, Sendable, CaseIterable {
        /// Anonymous rooms of two members.
        case rooms
        /// Sessions, approvals and Live Activities.
        case companion
        /// Monitoring of machines, such as printers.
        case monitor
        /// Incoming calls.
        case calls
    }
}

/// A policy's limits, by kind.
public enum PolicyLimits: Sendable, Equatable {
    case rooms(Limits)
    case audience(AudienceLimits)

    /// The longest life of anything sealed. Keys must reach that far ahead.
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

/// A policy's limits for one job, in ms.
public struct JobLimits: Sendable, Equatable {
    /// The time limit for sending.
    public let deadlineMs: UInt64
    /// The longest delay after a start.
    public let startGraceMs: UInt64
    /// The least time until the next job for the same side. 0 if jobs have no throttle.
    public let throttleMs: UInt64
}

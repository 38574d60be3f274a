/// The numbers of a policy for apps with accounts: how long what they register lives, and how much of it one user may have.
public struct AudienceLimits: Sendable, Equatable {
    /// The longest life of a device's registration; it is renewed by registering again.
    public let deviceLifeMs: UInt64
    /// How long what is known of a session lives: its active client, its start, how far it is, that it was heard of.
    public let sessionLifeMs: UInt64
    /// Devices that one owner may have registered at a time.
    public let registrationsPerOwner: Int
    /// Events that are taken for one user.
    public let eventsPerUser: Budget
    /// Pushes that one token is taken for, whoever registered it.
    public let tokenPushes: Budget
    /// How long a job may try to reach Apple.
    public let jobDeadlineMs: UInt64
    /// Of a kind of app that has Live Activities.
    public let activities: ActivityLimits?
    /// Of a kind of app whose users are asked something.
    public let approvals: ApprovalLimits?

    /// The longest life of anything that is sealed.
    public var longestLifeSeconds: Int {
        Int(max(deviceLifeMs, sessionLifeMs, activities?.lifeMs ?? 0, approvals?.keptMs ?? 0) / 1_000)
    }
}

/// What a policy says of Live Activities.
public struct ActivityLimits: Sendable, Equatable {
    /// The longest life of one's registration.
    public let lifeMs: UInt64
    /// So many one owner may have registered at a time.
    public let perOwner: Int
    /// The shortest time between two updates of one.
    public let updateMs: UInt64
}

/// What a policy says of approvals.
public struct ApprovalLimits: Sendable, Equatable {
    /// How long one can be answered.
    public let answerableMs: UInt64
    /// How long its answer can be asked for after that.
    public let answerKeptMs: UInt64

    /// How long it is kept in all.
    public var keptMs: UInt64 { answerableMs + answerKeptMs }
}

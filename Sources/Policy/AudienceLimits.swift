/// The numbers of a policy for apps with accounts: how long what they register lives, and how much of it one user may have.
public struct AudienceLimits: Sendable, Equatable {
    /// The longest life of a device's registration; it is renewed by registering again.
    public let deviceLifeMs: UInt64
    /// Likewise of a Live Activity's.
    public let activityLifeMs: UInt64
    /// How long what is known of a session lives: its active client, its start.
    public let sessionLifeMs: UInt64

    /// Devices that one owner may have registered at a time.
    public let registrationsPerOwner: Int
    /// Live Activities likewise.
    public let activitiesPerOwner: Int

    /// The shortest time between two updates of one Live Activity.
    public let activityUpdateMs: UInt64
    /// How long an approval can be answered.
    public let approvalMs: UInt64
    /// How long its answer can be asked for.
    public let answerKeptMs: UInt64
    /// Events that are taken for one user.
    public let eventsPerUser: Budget
    /// Pushes that one token is taken for, whoever registered it.
    public let tokenPushes: Budget
    /// How long a job may try to reach Apple.
    public let jobDeadlineMs: UInt64

    /// The longest life of anything that is sealed.
    public var longestLifeSeconds: Int {
        Int(max(deviceLifeMs, activityLifeMs, sessionLifeMs, approvalMs + answerKeptMs) / 1_000)
    }
}

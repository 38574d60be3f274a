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

    init(_ values: LimitValues) {
        roomLifeSeconds = values.range("roomLifeSeconds")
        roomLifeDefaultSeconds = values["roomLifeSeconds.default"]
        codeLifeSeconds = values.range("joinCode.lifeSeconds")
        codeLifeDefaultSeconds = values["joinCode.lifeSeconds.default"]
        shortestCode = values["joinCode.shortest"]
        shortCodeBelow = values["joinCode.shortBelow"]
        pendingShortCodes = values["joinCode.pendingShort"]
        codeKeptAfterAcceptMs = values.ms("joinCode.keptAfterAcceptSeconds")
        retryWindowMs = values.ms("retryWindowSeconds")
        knockThrottleMs = values.ms("knockThrottleSeconds")
        tokenKnocks = values.budget("tokenKnocks")
        presenceMs = values.ms("presenceSeconds")
        presenceProbeMs = values.ms("presenceProbeSeconds")
        peerGraceMs = values.ms("peerGraceSeconds")
        startGraceMs = values.ms("startGraceSeconds")
        jobDeadlineMs = values.ms("jobDeadlineSeconds")
        ipv4Bits = values["addressBits.ipv4"]
        ipv6Bits = values["addressBits.ipv6"]
        creations = values.budgets("creations")
        wrongCodes = values.budgets("wrongCodes")
    }

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

    /// The limit of test pushes to one address, across rooms and apps. Each of several nodes grants its part, at least one. It is fixed, because no app
    /// needs more.
    public static let testPushes = Budget(count: 3, windowMs: 3_600_000)

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

    init(_ values: LimitValues, of kind: Policy.Kind) {
        deviceLifeMs = values.ms("deviceLifeSeconds")
        sessionLifeMs = values.ms("sessionLifeSeconds")
        registrationsPerOwner = values["registrationsPerOwner"]
        eventsPerUser = values.budget("eventsPerUser")
        tokenPushes = values.budget("tokenPushes")
        jobDeadlineMs = values.ms("jobDeadlineSeconds")
        let isCompanion = kind == .companion
        activities =
            isCompanion
            ? ActivityLimits(
                lifeMs: values.ms("activityLifeSeconds"), perOwner: values["activitiesPerOwner"],
                updateMs: values.ms("activityUpdateSeconds")) : nil
        approvals =
            isCompanion
            ? ApprovalLimits(answerableMs: values.ms("approvalSeconds"), answerKeptMs: values.ms("answerKeptSeconds")) : nil
    }

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

extension Policy.Kind {
    /// The numbers in `limits` of a policy of this kind, in the order of `policy show`.
    public var limitRows: [LimitRow] { self == .rooms ? Limits.rows : AudienceLimits.rows(self) }
}

private let jobDeadline = LimitRow.number(
    "jobDeadlineSeconds", 1...120, "how long a push is tried", show: "a job may try for",
    why: "the key of a waiting job is destroyed; two minutes is the limit")

extension Limits {
    static let rows: [LimitRow] = lives + codes + knocks + addresses

    private static let lives = LimitRow.lives(
        of: "a room", "roomLifeSeconds", 1...2_592_000, default: 86_400, show: "room life",
        why: "a key must be kept for a room's whole life, and 30 days is the limit for keys")

    private static let codes: [LimitRow] =
        LimitRow.lives(
            of: "a join code", "joinCode.lifeSeconds", 1...86_400, show: "join code life", or: " or the room's life",
            why: "the keys for looking up codes are per day, and a code that lives longer than a day would outlive its key")
        + LimitRow.number(
            "joinCode.shortest", 4...64, "characters of the shortest join code", show: "shortest join code", as: "{} characters",
            why: "fewer than 4 characters are guessed in minutes, and requests allow no more than 64")
        + LimitRow.number(
            "joinCode.shortBelow", 4...64, "codes of fewer characters are short", why: "a join code has 4 to 64 characters")
        + LimitRow.number(
            "joinCode.pendingShort", 1...1_000_000,
            "most rooms that wait with a short code, and most that are made in a window of `wrongCodes.overall`",
            show: "rooms waiting with a short code", as: "at most {} (short: fewer than {joinCode.shortBelow} characters)",
            why: "the more rooms have short codes, the likelier a guess is right")
        + LimitRow.number(
            "joinCode.keptAfterAcceptSeconds", 1...3600, "how long a code can't be used again after its accept",
            show: "join code kept after its accept", why: "a used code is kept only to report it as used")
        + LimitRow.number(
            "retryWindowSeconds", 1...120, "how long an accept's answer can be asked for again",
            show: "repeat of an accept answered for",
            why: "the copy for repeated answers is sealed for 120 seconds at most")

    private static let knocks: [LimitRow] =
        LimitRow.number(
            "knockThrottleSeconds", 1...3600, "least time between two pushes to one side", show: "between two knocks of one side",
            why: "without a pause one side could ring the other's phone without end")
        + LimitRow.budget(
            "tokenKnocks", default: Budget(count: 30, windowMs: 300_000), show: "knocks at one token, by all rooms",
            "pushes to one token, from all rooms")
        + LimitRow.number(
            "presenceSeconds", 5...600, "how long a reported presence counts", show: "reported presence counts for",
            why: "a shorter time reacts to every lost packet, a longer one counts absent peers as present")
        + LimitRow.number(
            "presenceProbeSeconds", 1...5, default: 2, "how long a pinged socket may take before its side counts as absent",
            show: "a pinged socket must answer within",
            why: "a shorter wait treats a slow network as absence, a longer one delays the push")
        + LimitRow.number(
            "peerGraceSeconds", 0...60, "how long a side that left still counts", show: "a peer gone counts as present for",
            why: "a longer grace suppresses knocks at a peer who is really absent")
        + LimitRow.number(
            "startGraceSeconds", 0...120, "how long a knock waits after a start", show: "knocks wait after a start for",
            why: "a longer grace exceeds the job's deadline")
        + jobDeadline

    private static let addresses: [LimitRow] =
        LimitRow.number(
            "addressBits.ipv4", 16...32, "IPv4 addresses that agree in so many first bits share a budget of wrong codes",
            show: "one address is",
            as: "an IPv4 /{} or an IPv6 /{addressBits.ipv6}",
            why: "with a shorter prefix one caller could use up the budget of whole countries")
        + LimitRow.number(
            "addressBits.ipv6", 32...64, "the same for IPv6 addresses",
            why: "one household has a /56 or a /64; a longer prefix would give it a budget for each address")
        + LimitRow.budgets(
            "creations", show: "rooms made",
            "rooms made, tokens replaced or registered, pushes asked for"
        )
        .showing("rooms made with a short code", "{joinCode.pendingShort} per {wrongCodes.overall.seconds} s in all")
        + LimitRow.budgets("wrongCodes", show: "wrong join codes", "wrong join codes")
}

extension AudienceLimits {
    static func rows(_ kind: Policy.Kind) -> [LimitRow] {
        lives(kind) + (kind == .companion ? activities + approvals : []) + budgets(kind) + jobDeadline
    }

    private static let ofOne =
        "one event goes to all of a user's registrations, and a bug in a back end must not make that thousands"

    // Rows of one day expire together, which hides when they were made. So lives must be longer than that.
    private static func lives(_ kind: Policy.Kind) -> [LimitRow] {
        let isCalls = kind == .calls
        let session =
            switch kind {
            case .rooms, .companion: "a session"
            case .monitor: "a print"
            case .calls: "a call"
            }
        let end = "; it expires with all records of half a day, up to 12 hours sooner"
        return LimitRow.number(
            "deviceLifeSeconds", 172_800...2_592_000, "life of a device or phone; up to a day less",
            show: "a device stays registered for", as: "at most {} s",
            why:
                "the broker alone can open a registration's token, so it must be renewed at least every 30 days; it expires with "
                + "all registrations of its day, up to a day sooner")
            + LimitRow.number(
                "sessionLifeSeconds", (isCalls ? 129_600 : 86_400)...604_800,
                "how long what is stored of a session, print or call is kept; up to 12 hours less",
                show: "\(session) is known for", as: "at most {} s",
                why: isCalls
                    ? "a call rings once, even if it is reported again within 24 hours, and its record is deleted within a week"
                        + end
                    : "a session's record is deleted within a week" + end)
            + LimitRow.number(
                "registrationsPerOwner", 1...1_000, "devices or phones of one user", show: "devices of one owner",
                as: "at most {}",
                why: ofOne)
    }

    private static let activities: [LimitRow] =
        LimitRow.number(
            "activityLifeSeconds", 7_200...43_200, "life of a Live Activity; up to an hour less",
            show: "a Live Activity stays registered for", as: "at most {} s",
            why:
                "the phone shows a Live Activity for 12 hours at most; it expires with all those of its hour, up to an hour sooner"
        )
        + LimitRow.number(
            "activitiesPerOwner", 1...1_000, "Live Activities of one user", show: "Live Activities of one owner",
            as: "at most {}",
            why: ofOne)
        + LimitRow.number(
            "activityUpdateSeconds", 1...3_600, "least time between two updates of one Live Activity",
            show: "between updates of an activity",
            why: "Apple delays updates that are too frequent, and an update of a Live Activity is rarely useful an hour later")

    private static let approvals: [LimitRow] =
        LimitRow.number(
            "approvalSeconds", 5...3_600, "how long an approval can be answered", show: "an approval can be answered for",
            why: "somebody needs time to reach the phone, and a back end waits for the answer")
        + LimitRow.number(
            "answerKeptSeconds", 1...86_400, "how long its answer can be read after that", show: "its answer can be asked for",
            as: "{} s more", why: "an answer is kept only for a back end that asks late")

    private static func budgets(_ kind: Policy.Kind) -> [LimitRow] {
        let events =
            switch kind {
            case .monitor: "events of one printer, registrations of one user"
            case .calls: "registrations of one user"
            case .companion, .rooms: "events and registrations of one user"
            }
        return LimitRow.budget(
            "eventsPerUser", show: events, "events and registrations of one user; monitor: also events of one printer")
            + LimitRow.budget("tokenPushes", show: "pushes to one token", "pushes to one token, whoever registered it")
    }
}

extension LedgerTiming {
    /// The numbers in `ledger` of a policy for rooms.
    public static let rows: [LimitRow] =
        LimitRow.number(
            "hourSeconds", 1...3_600, "a batch may be published at each multiple of it",
            why: "an owner waits for the next batch to prove a purge, at most an hour")
        + LimitRow.number(
            "daySeconds", 1...86_400,
            "buckets close, and a batch is always published, at each multiple of it; a multiple of `hourSeconds`",
            why: "a bucket is checked at the end of its day, so a day is the limit")
        + LimitRow.number(
            "batchSeals", 1...10_000, "the fewest seals of an earlier batch",
            why: "a larger number would only delay more batches until midnight")
}

/// The numbers of a policy for rooms: how long things live, how often they may be asked for. Durations in milliseconds are what the broker
/// measures; lives in seconds are what a caller asks for.
public struct Limits: Sendable, Equatable {
    /// Lives a room may be asked to have.
    public let roomLifeSeconds: ClosedRange<Int>
    /// A room's life when none is asked for.
    public let roomLifeDefaultSeconds: Int
    /// Lives a join code may be asked to have.
    public let codeLifeSeconds: ClosedRange<Int>
    /// A code's life when none is asked for; never longer than its room's.
    public let codeLifeDefaultSeconds: Int

    /// Characters of the shortest join code.
    public let shortestCode: Int
    /// Codes of fewer characters than this are short.
    public let shortCodeBelow: Int
    /// Rooms that may wait with a short code at a time.
    public let pendingShortCodes: Int
    /// How long a code stays taken after its accept.
    public let codeKeptAfterAcceptMs: UInt64
    /// How long a lost answer to an accept can be asked for again.
    public let retryWindowMs: UInt64

    /// The shortest time between two knocks of one side.
    public let knockThrottleMs: UInt64
    /// Pushes that one token is taken for, whichever rooms ask for them.
    public let tokenKnocks: Budget
    /// How long a reported presence counts.
    public let presenceMs: UInt64
    /// How long a pinged socket may take to answer before its side counts as absent.
    public let presenceProbeMs: UInt64
    /// How long a peer who is gone still counts as present.
    public let peerGraceMs: UInt64
    /// How long after a start a knock waits for the peer to come back.
    public let startGraceMs: UInt64
    /// How long a job may try to reach Apple.
    public let jobDeadlineMs: UInt64

    /// Addresses equal in these first bits share a budget of wrong codes.
    public let ipv4Bits: Int
    public let ipv6Bits: Int
    public let creations: Budgets
    public let wrongCodes: Budgets

    /// `tokenKnocks` of a policy that says nothing of it.
    static let tokenKnocksDefault = Budget(count: 30, windowMs: 300_000)
    /// `presenceProbeSeconds` of a policy that doesn't set it.
    static let presenceProbeDefaultSeconds = 2

    /// Rooms that may be made with a short code, whoever makes them: each tells its maker whether the code was free.
    public var shortCreations: Budget { Budget(count: pendingShortCodes, windowMs: wrongCodes.overall.windowMs) }

    /// The longest life of anything that is sealed: how far ahead keys must reach.
    public var longestLifeSeconds: Int { roomLifeSeconds.upperBound }

    /// The life of a code whose room lives `roomSeconds`.
    ///
    /// - Parameter asked: what the caller asked for, already found inside `codeLifeSeconds`.
    public func codeLifeSeconds(asked: Int?, roomSeconds: Int) -> Int {
        min(asked ?? codeLifeDefaultSeconds, roomSeconds)
    }

    /// How long a join code stands at most, pending and used.
    public var codeStandsMs: UInt64 { UInt64(codeLifeSeconds.upperBound) * 1_000 + codeKeptAfterAcceptMs }

    /// Whether a join code of `count` characters is short.
    public func isShort(codeOf count: Int) -> Bool { count < shortCodeBelow }
}

/// So many in a window of time.
public struct Budget: Sendable, Equatable {
    public let count: Int
    public let windowMs: UInt64

    /// The most that can pass in a day.
    public var perDay: Int { Int((UInt64(count) * 86_400_000).dividedRoundingUp(by: windowMs)) }
}

extension UInt64 {
    fileprivate func dividedRoundingUp(by divisor: UInt64) -> UInt64 { (self + divisor - 1) / divisor }
}

/// What one address may do, and what all may do together.
public struct Budgets: Sendable, Equatable {
    public let perAddress: Budget
    public let overall: Budget
}

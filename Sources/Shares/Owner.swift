/// Whom a charge is for, by a keyed hash of its name.
public struct Owner: Sendable, Hashable {
    enum Kind: UInt8, Sendable { case side, connection, network, user, backEnd, proxy }

    let kind: Kind
    var name: UInt64
    /// The /48 around an IPv6 network; 0 for others.
    var wide: UInt64 = 0

    public var isNetwork: Bool { kind == .network }

    /// A trusted proxy's own connections; its requests are charged to whom they come from.
    public var isProxy: Bool { kind == .proxy }

    public var isBackEnd: Bool { kind == .backEnd }

    /// Names below this one are rows that several owners share.
    static let firstName: UInt64 = 16
}

/// Everyone whom one request is charged to.
public struct Owners: Sendable, Hashable {
    /// The network; instead of it a user or back end, if known; for a proxy's own connection the proxy.
    public var payer: Owner
    public var connection: Owner?
    public var side: Owner?

    /// For requests that tests make in memory.
    public static let unknown = Owners(Owner(kind: .network, name: Owner.firstName))

    public init(_ payer: Owner, connection: Owner? = nil, side: Owner? = nil) {
        self.payer = payer
        self.connection = connection
        self.side = side
    }
}

/// What was charged. Refund it once. A charge with a window may be left to expire.
public struct Charge: Sendable {
    public let resource: Resource
    public internal(set) var owners: Owners
    public internal(set) var amount: Int
    /// The start of the window; 0 where there is none.
    let since: UInt64
}

/// Why a charge was refused.
public enum Shortage: Error, Sendable, Hashable {
    /// The owner is over its share: 429, or its own connection is closed.
    case overShare(Resource, retryAfterSeconds: Int)
    /// All of it is in use, and not by this owner: 503 and an alarm.
    case exhausted(Resource, retryAfterSeconds: Int)
}

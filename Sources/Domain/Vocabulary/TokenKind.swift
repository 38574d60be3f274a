/// The kind of a push token. The raw value is in rows and bound into seals.
public enum TokenKind: UInt8, Sendable, CaseIterable {
    case alert = 1
    case voip = 2
    case liveActivity = 3
}

/// The APNs service that issued a token. The raw value is in sealed addresses.
public enum PushEnvironment: UInt8, Sendable, CaseIterable {
    case production = 1
    case sandbox = 2
}

/// `apns-push-type` of pushes to tokens that Mayfly stores. Source: Apple, "Sending notification requests to APNs".
public enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity

    /// The largest payload in bytes.
    public var payloadLimit: Int { self == .voip ? 5120 : 4096 }

    /// The values of `apns-priority` that Apple allows.
    public var priorities: [Int] {
        switch self {
        case .alert, .liveactivity: [5, 10]
        case .background: [5]
        case .voip: [10]
        }
    }

    /// The suffix of its topics after the app's bundle id.
    public var topicSuffix: String {
        switch self {
        case .alert, .background: ""
        case .voip: ".voip"
        case .liveactivity: ".push-type.liveactivity"
        }
    }

    /// Apple accepts it only from providers with token authentication.
    public var needsProviderToken: Bool { self == .voip || self == .liveactivity }
}

/// Why a token was purged.
public enum PurgeCause: Sendable, Hashable {
    /// `untilMs`: the end of the day of the token's expiry, unix ms.
    case expired(untilMs: UInt64)
    case ended
    /// Reserved: no version of the broker writes it yet.
    case policy

    public var name: String {
        switch self {
        case .expired: "expired"
        case .ended: "ended"
        case .policy: "policy"
        }
    }

    public static let names = ["expired", "ended", "policy"]
}

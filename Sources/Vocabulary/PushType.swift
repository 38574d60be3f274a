/// `apns-push-type`, of the pushes that reach the tokens Mayfly keeps. Source: Apple, "Sending notification requests to APNs".
public enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity

    /// Bytes of the largest payload Apple takes.
    public var payloadLimit: Int { self == .voip ? 5120 : 4096 }

    /// What Apple allows in `apns-priority`.
    public var priorities: [Int] {
        switch self {
        case .alert, .liveactivity: [5, 10]
        case .background: [5]
        case .voip: [10]
        }
    }

    /// What its topics end in, after the app's bundle id.
    public var topicSuffix: String {
        switch self {
        case .alert, .background: ""
        case .voip: ".voip"
        case .liveactivity: ".push-type.liveactivity"
        }
    }

    /// Apple takes it only from providers with a token.
    public var needsProviderToken: Bool { self == .voip || self == .liveactivity }
}

/// The kinds of push that reach the tokens Mayfly keeps. Source: Apple, "Sending notification requests to APNs".
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
}

/// Why a token was purged.
public enum PurgeCause: Sendable, Hashable {
    /// `untilMs`: the end of the day in which the token expired, unix ms.
    case expired(untilMs: UInt64)
    case ended
    /// No version of the broker writes `policy` yet.
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

/// Why something was not sealed, opened or kept. It never says which byte, key or row was wrong.
public enum SealingError: Error, Equatable, CustomStringConvertible {
    /// All slots for secrets are taken: too much is in flight at once. Refuse the request; slots come back as others end.
    case exhausted
    /// The system refuses to lock memory.
    case cannotLock
    /// Sealed under a key that is gone, or for other circumstances, or changed: one answer for all of them.
    case doesNotOpen
    /// The generation is not one of this node's, its time is over, or the expiry lies further ahead than anything may live.
    case outOfReach

    public var description: String {
        switch self {
        case .exhausted: "no slot for another secret is free: too many requests, sockets or pushes are in flight at once"
        case .cannotLock: "the system refuses to lock memory for secrets: raise the limit (ulimit -l, LimitMEMLOCK=)"
        case .doesNotOpen: "the sealed bytes do not open"
        case .outOfReach: "no key can be made for that generation and time"
        }
    }
}

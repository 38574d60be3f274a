/// Why something was not sealed, opened or kept. It never says which byte, key or row was wrong.
public enum SealingError: Error, Equatable, CustomStringConvertible {
    /// The same call may succeed later, so this says nothing about what is sealed.
    case outOf(SlotShortage)
    /// Sealed under a key that is gone, or for other circumstances, or changed: one answer for all of them.
    case doesNotOpen
    /// The generation is not one of this node's, its time is over, or the expiry lies further ahead than anything may live.
    case outOfReach

    public var description: String {
        switch self {
        case .outOf(let shortage): "\(shortage)"
        case .doesNotOpen: "the sealed bytes can't be opened"
        case .outOfReach: "there is no key for that generation and time"
        }
    }
}

/// Why no slot for a secret can be had now. Refuse the request: slots come back as others end.
public enum SlotShortage: Error, Equatable, CustomStringConvertible {
    /// All slots are taken.
    case exhausted
    /// The system refuses to lock memory.
    case cannotLock

    public var description: String {
        switch self {
        case .exhausted: "no slot for another secret is free: too many requests, sockets or pushes are in flight"
        case .cannotLock: "the system can't lock memory for secrets. Raise the limit (ulimit -l, LimitMEMLOCK=)"
        }
    }
}

/// Opens something sealed. Returns nil if it is invalid or its key is gone.
public func opened<Value>(_ open: () throws(SealingError) -> Value) throws(SlotShortage) -> Value? {
    do throws(SealingError) {
        return try open()
    } catch {
        if case .outOf(let shortage) = error { throw shortage }
        return nil
    }
}

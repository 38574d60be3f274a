/// How long a push may be tried, and from when its worth is counted. In milliseconds.
struct JobTimes {
    /// The longest that is tried: no longer than the push is worth delivering; one that is tried once only has the whole deadline
    /// for it.
    let lifeMs: UInt64

    init(ttlSeconds: Int, jobDeadlineMs: UInt64) {
        let ttl = UInt64(clamping: ttlSeconds) * 1_000
        lifeMs = ttl == 0 ? jobDeadlineMs : min(ttl, jobDeadlineMs)
    }

    func deadline(now: UInt64, tokenExpires: UInt64) -> UInt64 { min(now + lifeMs, tokenExpires) }

    /// When the knock was, as far as it matters, so that each attempt carries the same headers. A deadline that the token's end cut
    /// short does not tell; then the push is worth delivering until that end anyway.
    func knocked(deadline: UInt64, tokenExpires: UInt64) -> UInt64 {
        deadline < tokenExpires ? deadline - min(deadline, lifeMs) : tokenExpires
    }
}

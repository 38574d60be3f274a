/// The courier's timeouts in ms, and its limits.
struct Timing: Sendable {
    /// TCP, TLS and the peer's settings together, for one address.
    var connectMs: UInt64 = 10_000
    /// True to try each address once, and to end the attempt after `connectMs`.
    var dialsOnce = false
    /// The wait before the next address is tried (RFC 8305, 5).
    var nextAddressMs: UInt64 = 250
    /// The same if TCP is connected and TLS or HTTP/2 is not.
    var nextAddressConnectedMs: UInt64 = 2_000
    /// From a request to its response.
    var requestMs: UInt64 = 10_000
    /// A request after this long without a frame is sent together with a PING.
    var quietMs: UInt64 = 1_000
    /// From a request to a PING that checks whether the peer is alive. Doubles with each acknowledgement until there is a response.
    var lateMs: UInt64 = 250
    /// From a PING to any frame. Afterwards the peer counts as dead, and its requests get their second attempt.
    var pingMs: UInt64 = 2_000
    /// The time without traffic before a PING keeps the connection alive. Load balancers and NATs drop idle ones after four minutes.
    var idleMs: UInt64 = 150_000
    /// True if an idle connection is closed then, instead of a PING.
    var closesIdle = false
    /// How often timeouts are checked while requests are in flight.
    var tickMs: UInt64 = 250
    /// Between attempts of one push.
    var retry = Backoff()
    /// The longest `Retry-After` that is respected, because no push is retried for longer.
    var longestWaitMs: UInt64 = 120_000
    /// Between attempts to connect.
    var reconnect = Backoff(firstMs: 250, longestMs: 15_000)
    /// A connection that ends before this time and this many responses counts as a failed attempt.
    var steadyMs: UInt64 = 10_000
    var steadyAnswers = 100

    /// The most streams used on a connection, even if the peer allows more.
    var streams = 1000
    /// The stream id at which a connection is replaced. Stream ids end at 2³¹ - 1.
    var lastStream: Int32 = .max - 200_000

    // See docs/decisions/0042-pool.md.
    /// The most connections of a pool.
    var connections = 6
    /// How long all streams must be in use, with pushes waiting, before the pool grows by one connection.
    var growAfterMs: UInt64 = 250
    /// How long the pool doesn't grow after the peer sent ENHANCE_YOUR_CALM.
    var calmMs: UInt64 = 60_000
    /// How long a connection beyond the first may be idle before it is closed.
    var shrinkAfterMs: UInt64 = 300_000
}

/// The wait before the next attempt. It doubles up to a limit, and its upper half is random, so that failed pushes don't retry all at once.
struct Backoff: Sendable {
    var firstMs: UInt64 = 500
    var longestMs: UInt64 = 30_000

    /// - Parameters:
    ///   - attempt: 1 after the first failure.
    ///   - leastMs: the peer's `Retry-After`.
    func delayMs(_ attempt: Int, leastMs: UInt64 = 0, using generator: inout some RandomNumberGenerator) -> UInt64 {
        precondition(attempt >= 1)
        let doublings = min(attempt - 1, 32)
        let whole = min(firstMs << UInt64(doublings), longestMs)
        // The modulo bias is far below a millisecond.
        return max(leastMs, whole / 2 + generator.next() % (whole - whole / 2 + 1))
    }
}

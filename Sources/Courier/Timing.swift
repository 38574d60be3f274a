/// The courier's time-outs, ms, and its bounds.
struct Timing: Sendable {
    /// TCP, TLS and the peer's settings together, at one address.
    var connectMs: UInt64 = 10_000
    /// From one address's attempt to the next one's: what a dead address costs (RFC 8305, 5).
    var nextAddressMs: UInt64 = 250
    /// The same where TCP has connected, and TLS or HTTP/2 take their time.
    var nextAddressConnectedMs: UInt64 = 2_000
    /// From a request to its answer.
    var requestMs: UInt64 = 10_000
    /// From a request to a PING that shows whether the peer is still there.
    var lateMs: UInt64 = 2_000
    /// From a PING to its answer: the peer is dead after that.
    var pingMs: UInt64 = 5_000
    /// Without traffic, before a PING shows whether the peer is still there.
    var idleMs: UInt64 = 3_600_000
    /// How often time-outs are looked for while something is under way.
    var tickMs: UInt64 = 250
    /// Between attempts of one push.
    var retry = Backoff()
    /// The longest wait that a peer may ask for (`Retry-After`): no push can be tried for longer, and a token is not to be held for good.
    var longestWaitMs: UInt64 = 120_000
    /// Between attempts to connect.
    var reconnect = Backoff(firstMs: 250, longestMs: 15_000)
    /// A connection that served that long, or gave that many answers, did well; one that ends sooner counts as a failed attempt.
    var steadyMs: UInt64 = 10_000
    var steadyAnswers = 100

    /// The most streams used, whatever the peer allows.
    var streams = 1000
    /// A connection whose streams have come that far is replaced before their ids end at 2³¹ - 1.
    var lastStream: Int32 = .max - 200_000

    // See docs/decisions/0042-pool.md.
    /// The most connections of a pool.
    var connections = 6
    /// All streams must have been in use for so long, with pushes waiting, before a pool grows by one connection.
    var growAfterMs: UInt64 = 250
    /// No growth for so long after the peer asked for calm.
    var calmMs: UInt64 = 60_000
    /// A connection beyond the first that nothing needed for so long is closed.
    var shrinkAfterMs: UInt64 = 300_000
}

/// The courier's time-outs, ms.
struct Timing: Sendable {
    /// TCP, TLS and the peer's settings together.
    var connectMs: UInt64 = 10_000
    /// From a request to its answer.
    var requestMs: UInt64 = 10_000
    /// From a PING to its answer: the peer is dead after that.
    var pingMs: UInt64 = 5_000
    /// Without traffic, before a PING shows whether the peer is still there.
    var idleMs: UInt64 = 3_600_000
    /// How often time-outs are looked for while something is under way.
    var tickMs: UInt64 = 250
    /// Between attempts of one push.
    var retry = Backoff()
    /// Between attempts to connect.
    var reconnect = Backoff(firstMs: 250, longestMs: 15_000)
    /// The most streams used, whatever the peer allows.
    var streams = 1000
}

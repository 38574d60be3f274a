public import HTTP1
import HTTP2
public import Linux
public import Shares
public import TLS

/// How a server listens and what it puts up with. Times are in ms.
public struct ServerConfiguration: Sendable {
    public var address: SocketAddress
    /// Serves TLS in place of plain text.
    public var tls: TLSContext?
    /// Who may read and write the path of a Unix-domain socket.
    public var unixMode: UInt32 = 0o660
    public var limits = MessageLimits()
    /// What callers may hold of connections, sockets that have not joined, streams and turns.
    public var shares = Shares()
    /// Who pays for what a peer's connection holds. Nil: the peer's network.
    public var payer: @Sendable (SocketAddress) -> Owner? = { _ in nil }
    /// Where a request comes from that a trusted proxy passed on.
    public var origin: @Sendable (HTTPRequest) -> SocketAddress = { $0.remote }

    public var handshakeMs: UInt64 = 10_000
    /// From the first byte of a request to the end of its head, and from there to the end of its body.
    public var headerMs: UInt64 = 10_000
    public var bodyMs: UInt64 = 10_000
    public var idleMs: UInt64 = 60_000
    /// Without the peer taking a byte.
    public var writeMs: UInt64 = 30_000
    /// How long an HTTP/2 answer stalls before it may make room for others.
    public var stallMs: UInt64 = 1_000
    /// For the peer to close, after the last answer.
    public var lingerMs: UInt64 = 2_000
    /// How often the age of an HTTP/2 connection's requests is looked at.
    public var streamCheckMs: UInt64 = 1_000
    /// How long a drain leaves idle connections open. HTTP/1.1 can't announce a close, so closing at once would lose requests that are already
    /// on their way.
    public var drainIdleMs: UInt64 = 1_000

    /// From the opening of a WebSocket to its first message; then it is closed with 1008.
    public var firstMessageMs: UInt64 = 10_000
    public var pingMs: UInt64 = 30_000
    public var pongMs: UInt64 = 30_000
    public var closeMs: UInt64 = 10_000
    public var maximumMessageBytes = 16_384
    /// What may wait for a WebSocket's peer to read it.
    public var maximumQueuedBytes = 65_536

    /// Words the engine's own answers, so that all errors look alike.
    public var refuse: @Sendable (Refusal) -> HTTPResponse = { $0.problem }

    public init(address: SocketAddress) { self.address = address }

    /// Of one HTTP/2 connection.
    var streamLimits: HTTP2Limits {
        var streamLimits = HTTP2Limits(
            bodyBytes: limits.bodyBytes, concurrentStreams: UInt32(shares.table[.streams].connection?.cap ?? 128))
        // Every field counts 32 bytes more than it is long (RFC 9113 section 6.5.2), and the target is one of them.
        streamLimits.headerListBytes = limits.targetBytes + limits.headerBytes + 32 * (limits.headerCount + 4)
        streamLimits.headerFields = limits.headerCount + 4
        // Capabilities must not stay behind in a table of the connection.
        streamLimits.headerTableBytes = 0
        return streamLimits
    }

    func lengthMs(_ kind: Deadlines.Kind) -> UInt64 {
        switch kind {
        case .handshake: handshakeMs
        case .header: headerMs
        case .body: bodyMs
        case .idle: idleMs
        case .write: writeMs
        case .linger: lingerMs
        case .streams: streamCheckMs
        case .firstMessage: firstMessageMs
        case .ping: pingMs
        case .pong: pongMs
        case .close: closeMs
        }
    }
}

public import HTTP1
import HTTP2
public import Linux
public import Shares
public import TLS

/// A server's address, limits and timeouts. Times are in ms.
public struct ServerConfiguration: Sendable {
    public var address: SocketAddress
    /// A socket that already listens on `address`. At a drain the server leaves waiting connections in it, for the next process.
    public var activated: ActivatedSocket?
    /// If set, the server uses TLS.
    public var tls: TLSContext?
    /// The permissions of a Unix-domain socket.
    public var unixMode: UInt32 = 0o660
    public var limits = MessageLimits()
    /// Quotas of connections, unjoined sockets, streams and requests in a turn.
    public var shares = Shares()
    /// The owner charged for a peer's connection. Nil: the peer's network.
    public var payer: @Sendable (SocketAddress) -> Owner? = { _ in nil }
    /// The origin of a request that a trusted proxy forwarded.
    public var origin: @Sendable (HTTPRequest) -> SocketAddress = { $0.remote }

    public var handshakeMs: UInt64 = 10_000
    /// The timeout from the first byte of a request to the end of its head, and from there to the end of its body.
    public var headerMs: UInt64 = 10_000
    public var bodyMs: UInt64 = 10_000
    public var idleMs: UInt64 = 60_000
    /// The timeout while the peer reads nothing.
    public var writeMs: UInt64 = 30_000
    /// How long an HTTP/2 response may stall before it can be ended to make room for others.
    public var stallMs: UInt64 = 1_000
    /// The timeout for the peer to close after the last response.
    public var lingerMs: UInt64 = 2_000
    /// The interval of checks of an HTTP/2 connection's requests.
    public var streamCheckMs: UInt64 = 1_000
    /// How long a drain keeps idle connections open. HTTP/1.1 can't announce a close, so closing at once would lose requests already on their way.
    public var drainIdleMs: UInt64 = 1_000

    /// The timeout from the opening of a WebSocket to its first message. Then it is closed with 1008.
    public var firstMessageMs: UInt64 = 10_000
    public var pingMs: UInt64 = 30_000
    public var pongMs: UInt64 = 30_000
    public var closeMs: UInt64 = 10_000
    /// The limit of a message, unless the handler raises it for a socket that has joined.
    public var maximumMessageBytes = 16_384
    /// The limit on unsent bytes of a WebSocket.
    public var maximumQueuedBytes = 65_536

    /// Creates the server's own responses, so that all errors look alike.
    public var refuse: @Sendable (Refusal) -> HTTPResponse = { $0.problem }

    public init(address: SocketAddress) { self.address = address }

    /// The limits of one HTTP/2 connection.
    var streamLimits: HTTP2Limits {
        var streamLimits = HTTP2Limits(
            bodyBytes: limits.longestBodyBytes, concurrentStreams: UInt32(shares.table[.streams].connection?.cap ?? 128))
        // A client may send all its requests at once, byte by byte in turn.
        streamLimits.bytesBetweenRequests = max(
            streamLimits.bytesBetweenRequests, 2 * Int(streamLimits.concurrentStreams) * limits.longestBodyBytes)
        // Every field counts 32 bytes more than its length (RFC 9113 section 6.5.2), and the target is a field.
        streamLimits.headerListBytes = limits.targetBytes + limits.headerBytes + 32 * (limits.headerCount + 4)
        streamLimits.headerFields = limits.headerCount + 4
        // Capabilities must not stay in a connection's table.
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

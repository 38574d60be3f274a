import HTTP2

/// The client's side of a connection, after TLS has settled its protocol.
enum PushSession {
    case http2(HTTP2Session)
    case http1(HTTP1ClientSession)

    /// The longest body of a response that is read.
    private static let bodyBytes = 16 * 1024

    static func http2() throws(HTTP2Error) -> PushSession {
        .http2(try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: bodyBytes)))
    }

    static func http1() -> PushSession { .http1(HTTP1ClientSession(bodyBytes: bodyBytes)) }

    /// True if a PING finds out whether the peer is alive.
    var hasPings: Bool { if case .http2 = self { true } else { false } }

    var openStreams: Int {
        switch self {
        case .http2(let session): session.openStreams
        case .http1(let session): session.openStreams
        }
    }

    var remoteConcurrentStreams: Int {
        switch self {
        case .http2(let session): session.remoteConcurrentStreams
        case .http1: 1
        }
    }

    var wantsWrite: Bool {
        switch self {
        case .http2(let session): session.wantsWrite
        case .http1(let session): session.wantsWrite
        }
    }

    var isFinished: Bool {
        switch self {
        case .http2(let session): session.isFinished
        case .http1(let session): session.isFinished
        }
    }

    func receive(_ bytes: Span<UInt8>) throws(HTTP2Error) {
        switch self {
        case .http2(let session): try session.receive(bytes)
        case .http1(let session): try session.receive(bytes)
        }
    }

    /// The peer has closed its end in an orderly way.
    func peerClosed() { if case .http1(let session) = self { session.peerClosed() } }

    func takeEvents() -> [HTTP2Event] {
        switch self {
        case .http2(let session): session.takeEvents()
        case .http1(let session): session.takeEvents()
        }
    }

    func takeOutbound(into buffer: inout [UInt8], limit: Int) throws(HTTP2Error) {
        switch self {
        case .http2(let session): try session.takeOutbound(into: &buffer, limit: limit)
        case .http1(let session): session.takeOutbound(into: &buffer)
        }
    }

    /// Gives up a request. Its response is ignored.
    func reset(stream: Int32) {
        switch self {
        case .http2(let session): try? session.reset(stream: stream, .cancel)
        case .http1(let session): session.abandon()
        }
    }

    func terminate() { if case .http2(let session) = self { session.terminate(.noError) } }

    func submitPing(_ payload: UInt64) { if case .http2(let session) = self { try? session.submitPing(payload) } }
}

import Foundation

/// Sends requests and opens WebSockets. On Apple's systems the default is `URLSessionTransport`.
///
/// A transport throws ``MayflyError/unreachable(_:)`` if nothing was sent, and ``MayflyError/noAnswer(_:)`` if the answer was lost. It follows no redirects,
/// keeps no cookies, caches nothing and writes nothing to disk.
public protocol Transport: Sendable {
    /// Returns any answer, whatever its status.
    func send(_ request: TransportRequest) async throws -> TransportResponse
    /// Opens a WebSocket at a `ws` or `wss` URL.
    ///
    /// - Throws: ``WebSocketRefused`` if the answer to the handshake is not 101. The first `send` or `receive` may throw it instead.
    func connect(_ url: URL) async throws -> any WebSocket
}

/// One HTTP request. Its headers and body contain secrets, so neither is printed.
public struct TransportRequest: Sendable {
    public var method: String
    public var url: URL
    public var headers: [String: String]
    public var body: Data?
}

/// One HTTP answer. Its body may contain secrets, so it is not printed.
public struct TransportResponse: Sendable {
    public var status: Int
    /// `Content-Type`.
    public var contentType: String?
    /// `Retry-After`.
    public var retryAfter: String?
    public var body: Data

    public init(status: Int, contentType: String?, retryAfter: String?, body: Data) {
        self.status = status
        self.contentType = contentType
        self.retryAfter = retryAfter
        self.body = body
    }

    /// `Retry-After` in seconds: one to an hour.
    var retryDelay: Duration? { retryAfter.flatMap { Int64($0) }.map { .retry(afterSeconds: $0) } }
}

extension Duration {
    /// A wait that a broker asked for. A wrong clock or a hostile server must not silence the app for ever.
    static func retry(afterSeconds seconds: Int64) -> Duration { .seconds(min(max(seconds, 1), 3600)) }
}

/// An open WebSocket. It answers the peer's pings by itself: that is how the broker learns that this side is alive.
public protocol WebSocket: Sendable {
    func send(_ text: String) async throws
    /// Returns the next text message.
    ///
    /// - Throws: any error once the connection has ended, by either side.
    func receive() async throws -> String
    /// Closes with a code of RFC 6455, or with nil drops the connection without a close frame. A call of `receive` that waits then throws.
    func close(code: Int?) async
}

/// The answer to a WebSocket handshake was not 101.
public struct WebSocketRefused: Error {
    public let response: TransportResponse

    public init(_ response: TransportResponse) { self.response = response }
}

extension TransportRequest: CustomStringConvertible, CustomReflectable {
    public var description: String { "\(method) \(url.path)" }
    public var customMirror: Mirror { Mirror(self, children: ["method": method, "path": url.path]) }
}

extension TransportResponse: CustomStringConvertible, CustomReflectable {
    public var description: String { "status \(status)" }
    public var customMirror: Mirror { Mirror(self, children: ["status": status]) }
}

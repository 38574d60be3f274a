import Foundation

/// Sends requests and opens WebSockets. The default is ``URLSessionTransport``.
///
/// A transport throws ``MayflyError/unreachable(_:)`` if nothing was sent, and ``MayflyError/noAnswer(_:)`` if the answer was lost. It follows no redirects,
/// keeps no cookies, caches nothing and writes nothing to disk. It reads no more than ``TransportResponse/largestBody`` bytes of an answer or a message, and
/// throws ``MayflyError/unexpectedAnswer(status:)`` for a longer one.
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

    /// The most bytes of an answer or a message that are read. A broker's are far below.
    public static let largestBody = 65_536

    public init(status: Int, contentType: String?, retryAfter: String?, body: Data) {
        self.status = status
        self.contentType = contentType
        self.retryAfter = retryAfter
        self.body = body
    }

    /// `Retry-After` (RFC 9110, section 10.2.3), one second to an hour from now.
    var retryDelay: Duration? {
        guard let retryAfter else { return nil }
        if !retryAfter.isEmpty, retryAfter.allSatisfy({ ("0"..."9").contains($0) }) {
            return .retry(afterSeconds: Double(retryAfter) ?? .infinity)
        }
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = TimeZone(secondsFromGMT: 0)
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return format.date(from: retryAfter).map { .retry(afterSeconds: $0.timeIntervalSinceNow) }
    }

    /// Whether this is the type of the body, with or without parameters.
    func isOf(type: String) -> Bool {
        guard let contentType else { return false }
        return contentType.prefix { $0 != ";" }.trimmingCharacters(in: .whitespaces).lowercased() == type
    }
}

extension Duration {
    /// A wait that a broker asked for. A wrong clock or a hostile server must not silence the app for ever.
    static func retry(afterSeconds seconds: Double) -> Duration { .seconds(min(max(seconds, 1), 3600)) }
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

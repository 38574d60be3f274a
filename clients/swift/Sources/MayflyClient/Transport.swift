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

    /// `Retry-After` as a wait of one second to an hour: seconds or a date (RFC 9110 section 10.2.3). Nil if it is neither.
    var retryDelay: Duration? {
        guard let retryAfter else { return nil }
        if !retryAfter.isEmpty, retryAfter.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            return .retry(afterSeconds: Double(retryAfter) ?? .infinity)
        }
        return Self.date(retryAfter).map { .retry(afterSeconds: $0.timeIntervalSinceNow) }
    }

    /// Reads a date in one of the three forms of RFC 9110 section 5.6.7.
    private static func date(_ text: String) -> Date? {
        let words = text.split(separator: " ").joined(separator: " ")
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        // A year of two digits is at most 50 years ahead.
        formatter.twoDigitStartDate = Date(timeIntervalSinceNow: -50 * 365.25 * 86_400)
        for format in ["EEE, dd MMM yyyy HH:mm:ss 'GMT'", "EEEE, dd-MMM-yy HH:mm:ss 'GMT'", "EEE MMM d HH:mm:ss yyyy"] {
            formatter.dateFormat = format
            if let date = formatter.date(from: words) { return date }
        }
        return nil
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
    // The path may name a session or a printer.
    public var description: String { "\(method) \(url.host ?? "")" }
    public var customMirror: Mirror { Mirror(self, children: ["method": method, "host": url.host ?? ""]) }
}

extension TransportResponse: CustomStringConvertible, CustomReflectable {
    public var description: String { "status \(status)" }
    public var customMirror: Mirror { Mirror(self, children: ["status": status]) }
}

public import EventLoop
public import HTTP1
public import Linux
public import TLS

/// The response to a client's request.
public struct ClientResponse: Sendable {
    public let status: UInt16
    public let contentType: String?
    public let body: [UInt8]
}

/// A small HTTP/1.1 client. One request at a time per connection; connections are reused. Doesn't follow redirects.
public actor HTTPClient: LoopActor {
    public nonisolated let loop: EventLoop
    private let tls: TLSContext?
    private var idle: [Origin: ClientStream] = [:]

    /// - Parameter tls: the context for https, with ALPN `http/1.1`.
    public init(loop: EventLoop, tls: TLSContext? = nil) {
        self.loop = loop
        self.tls = tls
    }

    /// True if the client can call this URL. It must be absolute.
    public static func accepts(_ url: String) -> Bool { (try? Origin.parse(url)) != nil }

    /// Sends a request and waits for the complete response, whatever its status.
    /// - Parameters:
    ///   - url: absolute, http or https.
    ///   - timeoutMs: the total timeout, from name resolution to the last byte.
    ///   - maximumBytes: the largest body accepted.
    public func send(
        _ url: String, method: HTTP1.Method = .get, headers: [HTTPResponse.Header] = [], body: [UInt8] = [],
        timeoutMs: UInt64 = 10_000, maximumBytes: Int = 16 << 20
    ) async throws(ClientError) -> ClientResponse {
        let (origin, target) = try Origin.parse(url)
        let request = Self.write(method, target, origin, headers, body)
        let deadlineMs = Clock.monotonicMs + timeoutMs
        let limits = MessageLimits(headerBytes: 65_536, bodyBytes: maximumBytes)
        if let stale = idle[origin], !stale.isReusable() {
            stale.close()
            idle[origin] = nil
        }
        if let stream = idle.removeValue(forKey: origin) {
            stream.deadlineMs = deadlineMs
            do throws(ClientError) {
                return try await exchange(request, method, limits, stream, origin)
            } catch {
                // The server may have closed the idle connection. Only safe methods may be repeated.
                guard error.isConnectionLost, method == .get || method == .head else { throw error }
            }
        }
        let stream = try await ClientStream.open(origin, tls: tls, loop: loop, deadlineMs: deadlineMs)
        return try await exchange(request, method, limits, stream, origin)
    }

    /// Closes idle connections.
    public func close() {
        for stream in idle.values { stream.close() }
        idle = [:]
    }

    private func exchange(
        _ request: [UInt8], _ method: HTTP1.Method, _ limits: MessageLimits, _ stream: ClientStream, _ origin: Origin
    ) async throws(ClientError) -> ClientResponse {
        do throws(ClientError) {
            try stream.write(request)
            let message = try await answer(stream, method, limits)
            if message.keepsAlive, !stream.hasEnded, idle[origin] == nil {
                stream.deadlineMs = .max
                idle[origin] = stream
            } else {
                stream.close()
            }
            return ClientResponse(
                status: message.status, contentType: message.header("content-type"),
                body: message.withBody { body in body.indices.map { body[$0] } })
        } catch {
            stream.close()
            throw error
        }
    }

    private func answer(_ stream: ClientStream, _ method: HTTP1.Method, _ limits: MessageLimits) async throws(ClientError)
        -> Message
    {
        let parser = ResponseParser(limits: limits)
        parser.expectNoBody(method == .head)
        while true {
            let bytes = try await stream.read()
            switch bytes.isEmpty ? parser.finish() : parser.parse(bytes.span) {
            // A peer that sends without end must not keep the loop from its other work.
            case .incomplete: await loop.nextTurn()
            case .complete: return parser.takeMessage()
            case .failed(let failure): throw bytes.isEmpty ? .closedEarly : .badAnswer(failure)
            }
        }
    }

    private static func write(
        _ method: HTTP1.Method, _ target: String, _ origin: Origin, _ headers: [HTTPResponse.Header], _ body: [UInt8]
    ) -> [UInt8] {
        var text = "\(method.name) \(target) HTTP/1.1\r\nHost: \(origin.authority)\r\n"
        for header in headers { text += "\(header.name): \(header.value)\r\n" }
        if !body.isEmpty || method == .post || method == .put { text += "Content-Length: \(body.count)\r\n" }
        return Array((text + "\r\n").utf8) + body
    }
}

/// Why a client got no response.
public enum ClientError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Not an absolute http, https, ws or wss URL.
    case badURL(String)
    case unresolved(ResolutionError)
    case unreachable(Errno)
    case tls(TLSError)
    /// An https or wss URL, but the client has no TLS context.
    case noTrust
    case timedOut
    /// The peer closed before its response was complete.
    case closedEarly
    case badAnswer(ParseFailure)
    /// The peer answered with this status, which the caller can't use.
    case refused(UInt16)
    /// The peer answered with a redirect, which the caller doesn't follow.
    case redirected(UInt16)
    /// The peer refused the WebSocket with this status.
    case notUpgraded(UInt16)

    public var description: String {
        switch self {
        case .badURL: "not an absolute http(s) or ws(s) URL without user name and password"
        case .unresolved(let error): "\(error)"
        case .unreachable(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .noTrust: "the URL asks for TLS, but no trusted certificates were given"
        case .timedOut: "no answer in time"
        case .closedEarly: "the peer closed the connection before its answer was complete"
        case .badAnswer(.bodyTooLarge): "the answer is larger than expected"
        case .badAnswer: "the answer is not HTTP/1.1"
        case .refused(let status): "the peer answered \(status)"
        case .redirected(let status): "the peer answered \(status), and redirects are not followed. Set the URL where they end"
        case .notUpgraded(let status): "the peer answered \(status) instead of opening a WebSocket"
        }
    }

    var isConnectionLost: Bool {
        switch self {
        case .closedEarly: true
        case .unreachable(let error): error.isConnectionLost
        default: false
        }
    }
}

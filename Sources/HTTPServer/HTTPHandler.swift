public import WebSocket

/// The application behind a server. All calls arrive on the server's loop, those of one WebSocket one after the other.
public protocol HTTPHandler: Sendable {
    /// Answers a request. Requests of different connections run concurrently, those of one HTTP/1.1 connection in order.
    func respond(to request: HTTPRequest) async -> HTTPResponse

    /// Whether to accept a WebSocket request. Otherwise `respond` answers it.
    func shouldUpgrade(_ request: HTTPRequest) -> Bool

    /// A WebSocket was opened. The request's bytes are zeroed after this call.
    func opened(_ socket: WebSocketHandle, request: HTTPRequest) async

    /// A message arrived. The next one is delivered after this call returns, and this message is zeroed then.
    func received(_ message: TextMessage, on socket: WebSocketHandle) async

    /// The peer answered the ping with this number for the first time.
    func ponged(_ socket: WebSocketHandle, number: UInt64) async

    /// The WebSocket was closed for any reason. No more calls follow.
    /// - Parameter code: the code of the peer's close frame; `abnormal` without one.
    func closed(_ socket: WebSocketHandle, code: CloseCode) async
}

/// A handler without WebSockets only implements `respond`.
extension HTTPHandler {
    public func shouldUpgrade(_ request: HTTPRequest) -> Bool { false }
    public func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {}
    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {}
    public func ponged(_ socket: WebSocketHandle, number: UInt64) async {}
    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {}
}

/// Identifies a WebSocket of a server. Calls have no effect once it is closed.
public struct WebSocketHandle: Sendable, Hashable {
    let id: ConnectionID
    let server: HTTPServer

    /// Queues a text message.
    /// - Returns: false if the message was dropped: the socket is closed or closing, or the peer reads too slowly.
    @discardableResult public func send(_ text: [UInt8]) async -> Bool { await server.send(text, to: id) }

    /// Call it once the peer has authenticated. The socket no longer counts as unjoined.
    /// - Parameter maximumBytes: a higher limit for its messages. Those in memory are then charged as `streamBytes`.
    public func markJoined(maximumBytes: Int? = nil) async { await server.markJoined(id, maximumBytes) }

    /// Pings the peer in addition to the server's periodic pings. `HTTPHandler.ponged` reports the answer.
    public func ping(_ number: UInt64) async { await server.ping(id, number: number) }

    /// Starts the closing handshake. Undelivered messages are dropped.
    public func close(_ code: CloseCode) async { await server.close(id, code) }

    public static func == (a: WebSocketHandle, b: WebSocketHandle) -> Bool { a.id == b.id && a.server === b.server }
    public func hash(into hasher: inout Hasher) { hasher.combine(id) }
}

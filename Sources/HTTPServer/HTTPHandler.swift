public import WebSocket

/// What a server serves. All calls come on the server's loop; those of one WebSocket come one after the other.
public protocol HTTPHandler: Sendable {
    /// Answers one request. Several connections' requests are answered at the same time, one connection's in order.
    func respond(to request: HTTPRequest) async -> HTTPResponse

    /// Whether a request that asks for a WebSocket gets one. If not, `respond` answers it.
    func shouldUpgrade(_ request: HTTPRequest) -> Bool

    /// A WebSocket is open. The request's bytes are gone after this call.
    func opened(_ socket: WebSocketHandle, request: HTTPRequest) async

    /// The next message. The one after it comes when this call has returned, and this one's bytes are zeroed then.
    func received(_ message: TextMessage, on socket: WebSocketHandle) async

    /// The peer answered the ping with this number for the first time.
    func ponged(_ socket: WebSocketHandle, number: UInt64) async

    /// The WebSocket is gone, for whatever reason; nothing more comes from it.
    /// - Parameter code: of the peer's close frame; `abnormal` without one.
    func closed(_ socket: WebSocketHandle, code: CloseCode) async
}

/// Without WebSockets, a handler is one method.
extension HTTPHandler {
    public func shouldUpgrade(_ request: HTTPRequest) -> Bool { false }
    public func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {}
    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {}
    public func ponged(_ socket: WebSocketHandle, number: UInt64) async {}
    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {}
}

/// Names one open WebSocket of a server. Harmless once it is gone.
public struct WebSocketHandle: Sendable, Hashable {
    let id: ConnectionID
    let server: HTTPServer

    /// Queues a text message.
    /// - Returns: false when the socket is gone or closing, or when the peer reads too slowly: then it is dropped.
    @discardableResult public func send(_ text: [UInt8]) async -> Bool { await server.send(text, to: id) }

    /// The peer has said who it is, and no longer counts as a socket that has not joined.
    public func markJoined() async { await server.markJoined(id) }

    /// Pings the peer, besides the server's own pings, which go on as before. `HTTPHandler.ponged` reports the answer.
    public func ping(_ number: UInt64) async { await server.ping(id, number: number) }

    /// Starts the closing handshake; messages not yet delivered to the handler are dropped.
    public func close(_ code: CloseCode) async { await server.close(id, code) }

    public static func == (a: WebSocketHandle, b: WebSocketHandle) -> Bool { a.id == b.id && a.server === b.server }
    public func hash(into hasher: inout Hasher) { hasher.combine(id) }
}

public import HTTPServer
public import WebSocket

/// What the public listener serves: the calls, and rooms' WebSockets under `/ws`.
public struct PublicHandler: HTTPHandler {
    private let api: API
    private let edge: SocketEdge

    public init(api: API, edge: SocketEdge) {
        self.api = api
        self.edge = edge
    }

    public func respond(to request: HTTPRequest) async -> HTTPResponse { await api.respond(to: request) }
    public func shouldUpgrade(_ request: HTTPRequest) -> Bool { request.path == "/ws" }
    public func received(_ message: TextMessage, on socket: WebSocketHandle) async { await edge.received(message, on: socket) }
    public func closed(_ socket: WebSocketHandle, code: CloseCode) async { await edge.closed(socket) }
}

public import HTTPServer
public import WebSocket

/// What the public listener serves: the calls, rooms' WebSockets under `/ws`, and the companion's under `/ws/sessions`.
public struct PublicHandler: HTTPHandler {
    private let api: API
    private let edge: SocketEdge
    /// Nil where only rooms are served.
    private let sessions: SessionSocketEdge?

    public init(api: API, edge: SocketEdge, sessions: SessionSocketEdge?) {
        self.api = api
        self.edge = edge
        self.sessions = sessions
    }

    public func respond(to request: HTTPRequest) async -> HTTPResponse { await api.respond(to: request) }

    public func shouldUpgrade(_ request: HTTPRequest) -> Bool {
        let path = request.path
        return path == "/ws" || path == "/ws/sessions" && sessions != nil
    }

    public func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {
        if let sessions, request.path == "/ws/sessions" { await sessions.opened(socket) }
    }

    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        if let sessions, await sessions.has(socket) { return await sessions.received(message, on: socket) }
        await edge.received(message, on: socket)
    }

    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        if let sessions, await sessions.has(socket) { return await sessions.closed(socket) }
        await edge.closed(socket)
    }
}

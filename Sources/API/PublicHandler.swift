import Broker
public import HTTPServer
import Shares
import Synchronization
public import WebSocket

/// What the public listener serves: the calls, rooms' WebSockets under `/ws`, and the companion's under `/ws/sessions`.
public struct PublicHandler: HTTPHandler {
    private let api: API
    private let edge: SocketEdge
    /// Nil where only rooms are served.
    private let sessions: SessionSocketEdge?
    private let owners = SocketOwners()

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
        owners.add(socket, request.owners)
        if let sessions, request.path == "/ws/sessions" { await sessions.opened(socket) }
    }

    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        let charges = owners[socket].map { RequestCharges(api.broker.shares, ofSocket: $0) }
        await RequestCharges.$current.withValue(charges) {
            if let sessions, await sessions.has(socket) { return await sessions.received(message, on: socket) }
            await edge.received(message, on: socket)
        }
    }

    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        owners.remove(socket)
        if let sessions, await sessions.has(socket) { return await sessions.closed(socket) }
        await edge.closed(socket, code: code)
    }

    public func ponged(_ socket: WebSocketHandle, number: UInt64) async { await edge.ponged(socket, number: number) }
}

/// Whom the messages of each open socket are charged to.
private final class SocketOwners: Sendable {
    private let owners = Mutex<[WebSocketHandle: Owners]>([:])

    subscript(socket: WebSocketHandle) -> Owners? { owners.withLock { $0[socket] } }
    func add(_ socket: WebSocketHandle, _ owners: Owners) { self.owners.withLock { $0[socket] = owners } }
    func remove(_ socket: WebSocketHandle) { owners.withLock { $0[socket] = nil } }
}

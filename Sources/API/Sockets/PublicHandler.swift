import Broker
public import HTTPServer
import Shares
import Synchronization
public import WebSocket

/// Serves the public listener: the API, the WebSockets of rooms under `/ws`, and those of companions under `/ws/sessions`.
public struct PublicHandler: HTTPHandler {
    private let api: API
    private let edge: SocketEdge
    /// Nil if the broker serves only rooms.
    private let sessions: SessionSocketEdge?
    private let sockets = OpenSockets()

    public init(api: API, edge: SocketEdge, sessions: SessionSocketEdge?) {
        self.api = api
        self.edge = edge
        self.sessions = sessions
    }

    public func respond(to request: HTTPRequest) async -> HTTPResponse { await api.respond(to: request) }

    public func shouldUpgrade(_ request: HTTPRequest) -> Bool {
        switch SocketPath(rawValue: request.path) {
        case .rooms: true
        case .sessions: sessions != nil
        case nil: false
        }
    }

    public func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {
        guard let path = SocketPath(rawValue: request.path) else { return }
        sockets.add(socket, path, request.owners)
        if path == .sessions { await sessions?.opened(socket) }
    }

    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        guard let (path, owners) = sockets[socket] else { return }
        await RequestCharges.$current.withValue(RequestCharges(api.broker.shares, ofSocket: owners)) {
            switch path {
            case .rooms: await edge.received(message, on: socket)
            case .sessions: await sessions?.received(message, on: socket)
            }
        }
    }

    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        switch sockets.remove(socket) {
        case .rooms: await edge.closed(socket, code: code)
        case .sessions: await sessions?.closed(socket)
        case nil: break
        }
    }

    public func ponged(_ socket: WebSocketHandle, number: UInt64) async { await edge.ponged(socket, number: number) }
}

/// Where WebSockets are opened.
enum SocketPath: String, Sendable {
    case rooms = "/ws"
    case sessions = "/ws/sessions"
}

/// The path and the charged owners of each open WebSocket.
private final class OpenSockets: Sendable {
    private let sockets = Mutex<[WebSocketHandle: (path: SocketPath, owners: Owners)]>([:])

    subscript(socket: WebSocketHandle) -> (path: SocketPath, owners: Owners)? { sockets.withLock { $0[socket] } }

    func add(_ socket: WebSocketHandle, _ path: SocketPath, _ owners: Owners) {
        sockets.withLock { $0[socket] = (path, owners) }
    }

    func remove(_ socket: WebSocketHandle) -> SocketPath? { sockets.withLock { $0.removeValue(forKey: socket)?.path } }
}

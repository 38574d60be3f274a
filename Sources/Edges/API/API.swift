public import Broker
public import HTTP1
public import HTTPServer
import Sealing
import Shares
import Synchronization
public import WebSocket

/// The calls of the public listener. Finds the route of a request, runs it, and turns errors into answers.
public struct API: Sendable {
    let broker: Broker
    let audit: AuditFiles
    let proxies: TrustedProxies
    /// Verifies the JWTs of users. A broker that serves only rooms has none.
    let authenticator: Authenticator?
    let apps: AudienceApps
    /// The secrets that sign webhooks of calls. Not nil if calls are served.
    let webhookSecrets: WebhookSecrets?

    public init(
        broker: Broker, audit: AuditFiles, proxies: TrustedProxies, authenticator: Authenticator?, apps: AudienceApps,
        webhookSecrets: WebhookSecrets? = nil
    ) {
        self.broker = broker
        self.audit = audit
        self.proxies = proxies
        self.authenticator = authenticator
        self.apps = apps
        self.webhookSecrets = webhookSecrets
    }

    private static let routes = RouteTable<API>([
        Route([.post], "/api/rooms") { try await $0.createRoom($1) },
        Route([.post], "/api/rooms/accept") { try await $0.acceptRoom($1) },
        Route([.get], "/api/room") { try await $0.roomStatus($1) },
        Route([.delete], "/api/room") { try await $0.closeRoom($1) },
        Route([.put], "/api/room/token") { try await $0.replaceToken($1) },
        Route([.delete], "/api/room/token") { try await $0.withdrawToken($1) },
        Route([.post], "/api/room/presence") { try await $0.reportPresence($1) },
        Route(nil, SocketPath.rooms.rawValue) { _, _ in throw BrokerError.upgradeRequired },

        Route([.get], "/api/push") { api, _ in api.pushServices() },
        Route([.post], "/api/push/test") { try await $0.testPush($1) },
        Route([.post], "/api/push/register") { try await $0.registerDevice($1) },
        Route([.get], "/api/push/status") { try await $0.pushStatus($1) },
        Route([.post], "/api/push/clear-approval") { try await $0.clearApproval($1) },
        Route([.post], "/api/push/live-activity/register") { try await $0.registerActivity($1) },
        Route([.delete], "/api/push/token/:id") { try await $0.deleteToken($1) },
        Route([.delete], "/api/push/session/:session/notifications") { try await $0.clearSession($1) },
        Route([.get], "/api/approval/:request") { try await $0.approval($1) },
        Route([.post], "/api/approval/:request/respond") { try await $0.respond($1) },
        Route([.post], "/api/sessions/:session/events", hasLongBody: true) { try await $0.takeEvent($1) },
        Route(nil, SocketPath.sessions.rawValue) { api, _ in
            throw api.apps.companion == nil ? BrokerError.audiencesOff : BrokerError.upgradeRequired
        },

        Route([.post], "/api/devices/register") { try await $0.registerMonitor($1) },
        Route([.delete], "/api/devices/:id") { try await $0.deleteMonitor($1) },
        // No device id equals `by-printer`: ids are longer.
        Route([.get], "/api/devices/by-printer/:prefix") { try await $0.monitors($1) },
        Route([.patch], "/api/devices/:id/settings") { try await $0.setMonitor($1) },
        Route([.post], "/api/monitors/:prefix/status", hasLongBody: true) { try await $0.takeStatus($1) },
        Route([.post], "/api/monitors/:prefix/progress", hasLongBody: true) { try await $0.takeProgress($1) },

        Route([.post], "/api/voip/token") { try await $0.registerPhone($1) },
        Route([.delete], "/api/voip/token") { try await $0.deletePhone($1) },
        Route([.post], "/webhooks/call", hasLongBody: true) { try await $0.ring($1) },

        // They use no store. Their reads have shares of their own.
        Route([.get, .head], "/audit", isCharged: false) { try await $0.audit.respond(to: $1.request) },
        Route([.get, .head], "/audit/*", isCharged: false) { try await $0.audit.respond(to: $1.request) },
    ])

    /// The limit of the body of events and webhooks, and of messages of authenticated sockets: their content is dropped, however long it is.
    public static let longBodyBytes = 262_144

    /// True if a request with this target may have a body of that size.
    public static func allowsLongBody(_ method: HTTP1.Method, target: Span<UInt8>) -> Bool {
        guard let path = HTTPRequest.path(ofTarget: target) else { return false }
        return routes.find(path)?.allowsLongBody(method) ?? false
    }

    /// Answers one request.
    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        do {
            let found = Self.routes.find(request.path)
            if let found, !found.isCharged { return try await found.answer(request, self) }
            let charges = try RequestCharges(broker.shares, request.owners)
            defer { charges.end() }
            guard let found else { throw BrokerError.notFound }
            return try await found.answer(request, self, charging: charges)
        } catch let error as InvalidRequest {
            broker.recordRefusal(error.errors[0])
            return HTTPResponse(error)
        } catch {
            if let error = BrokerError(thrown: error) { return refuse(error) }
            // A file of the log can't be read.
            broker.reportFault("requests: \(error)")
            return HTTPResponse(.storageUnavailable)
        }
    }

    func refuse(_ error: BrokerError) -> HTTPResponse {
        broker.recordRefusal(error)
        return HTTPResponse(error)
    }

    /// Authenticates the caller of a route for apps with accounts, and charges the request to that user.
    /// - Throws: `.audiencesOff`, `.noJWT`, `.invalidJWT`, `.jwtExpired`, `.keysUnavailable`, or the refusal of a share.
    func principal(_ call: Call) async throws -> Principal {
        guard let authenticator else { throw BrokerError.audiencesOff }
        let principal = try await authenticator.principal(call.request) { broker.wallMs }
        try call.charges?.charge(principal)
        return principal
    }
}

/// Serves the public listener: the API, the WebSockets of rooms under `/ws`, and those of companions under `/ws/sessions`.
public struct PublicHandler: HTTPHandler {
    private let api: API
    private let rooms: RoomSocketHandler
    /// Serves the sockets of users. A broker that serves only rooms has none.
    private let sessions: SessionSocketHandler?
    /// The web pages that may call the API from a browser. Without it none may.
    private let origins: AllowedOrigins?
    private let sockets = OpenSockets()

    public init(api: API, rooms: RoomSocketHandler, sessions: SessionSocketHandler?, origins: AllowedOrigins?) {
        self.api = api
        self.rooms = rooms
        self.sessions = sessions
        self.origins = origins
    }

    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        guard let origins, let origin = request.header("origin") else { return await api.respond(to: request) }
        return await respond(to: request, from: origin, origins)
    }

    /// Answers a browser's request. The log under `/audit/` needs no permission for any page.
    private func respond(to request: HTTPRequest, from origin: String, _ origins: AllowedOrigins) async -> HTTPResponse {
        let path = request.path
        if SocketPath(rawValue: path) != nil, !origins.allowsSocket(request) { return api.refuse(.foreignOrigin) }
        guard path.hasPrefix("/api/") else { return await api.respond(to: request) }
        if let answer = origins.preflight(request, from: origin) { return answer }
        var answer = await api.respond(to: request)
        origins.mark(&answer, for: origin)
        return answer
    }

    public func shouldUpgrade(_ request: HTTPRequest) -> Bool {
        switch SocketPath(rawValue: request.path) {
        case .rooms: origins?.allowsSocket(request) ?? true
        case .sessions: sessions != nil && origins?.allowsSocket(request) ?? true
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
        let charges = RequestCharges(api.broker.shares, ofSocket: owners)
        switch path {
        case .rooms: await rooms.received(message, on: socket, charging: charges)
        case .sessions: await sessions?.received(message, on: socket, charging: charges)
        }
    }

    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        switch sockets.remove(socket) {
        case .rooms: await rooms.closed(socket, code: code)
        case .sessions: await sessions?.closed(socket)
        case nil: break
        }
    }

    public func ponged(_ socket: WebSocketHandle, number: UInt64) async { await rooms.ponged(socket, number: number) }
}

/// The paths of WebSockets.
enum SocketPath: String, Sendable {
    case rooms = "/ws"
    case sessions = "/ws/sessions"
}

/// The path and owners of each open WebSocket.
private final class OpenSockets: Sendable {
    private let sockets = Mutex<[WebSocketHandle: (path: SocketPath, owners: Owners)]>([:])

    subscript(socket: WebSocketHandle) -> (path: SocketPath, owners: Owners)? { sockets.withLock { $0[socket] } }

    func add(_ socket: WebSocketHandle, _ path: SocketPath, _ owners: Owners) {
        sockets.withLock { $0[socket] = (path, owners) }
    }

    func remove(_ socket: WebSocketHandle) -> SocketPath? { sockets.withLock { $0.removeValue(forKey: socket)?.path } }
}

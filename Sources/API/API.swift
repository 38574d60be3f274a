public import Broker
import HTTP1
public import HTTPServer
import Linux
import Sealing

/// The public listener's calls: one place that finds the route, runs it, and turns errors into answers.
public struct API: Sendable {
    let broker: Broker
    let audit: AuditFiles
    let proxies: TrustedProxies
    /// Nil where only rooms are served.
    let authenticator: Authenticator?

    /// Each nil where no policy of its kind is in force.
    let companion: Companion?
    let monitor: Monitor?
    let calls: Calls?
    /// What calls are signed by; not nil where they are served.
    let webhookSecrets: WebhookSecrets?

    public init(
        broker: Broker, audit: AuditFiles, proxies: TrustedProxies, authenticator: Authenticator?, companion: Companion? = nil,
        monitor: Monitor? = nil, calls: Calls? = nil, webhookSecrets: WebhookSecrets? = nil
    ) {
        self.broker = broker
        self.audit = audit
        self.proxies = proxies
        self.authenticator = authenticator
        self.companion = companion
        self.monitor = monitor
        self.calls = calls
        self.webhookSecrets = webhookSecrets
    }

    typealias Call = @Sendable (API, HTTPRequest) async throws -> HTTPResponse

    /// Every path with the methods it takes.
    private static let routes: [String: [(method: Method, call: Call)]] = [
        "/api/rooms": [(.post, { try await $0.createRoom($1) })],
        "/api/rooms/accept": [(.post, { try await $0.acceptRoom($1) })],
        "/api/room": [(.get, { try await $0.roomStatus($1) }), (.delete, { try await $0.closeRoom($1) })],
        "/api/room/token": [(.put, { try await $0.replaceToken($1) }), (.delete, { try await $0.withdrawToken($1) })],
        "/api/room/presence": [(.post, { try await $0.reportPresence($1) })],
    ]

    /// Answers one request.
    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        do {
            // The engine charges reads of the log's files.
            if Self.isAudit(request.path) { return try audited(request) }
            let charges = try RequestCharges(broker.shares, request.owners)
            defer { charges.end() }
            return try await RequestCharges.$current.withValue(charges) { try await route(request) }
        } catch let error as BrokerError {
            return await refuse(error)
        } catch let error as InvalidRequest {
            broker.noteRefusal(error.errors[0])
            return HTTPResponse(error)
        } catch let error as SealingError {
            return await refuse(BrokerError(error))
        } catch {
            // A file of the log that can't be read.
            broker.noteTrouble("requests: \(error)")
            return HTTPResponse(.storageUnavailable)
        }
    }

    private func refuse(_ error: BrokerError) async -> HTTPResponse {
        broker.noteRefusal(error)
        return HTTPResponse(error)
    }

    private static func isAudit(_ path: String) -> Bool { path == "/audit" || path.hasPrefix("/audit/") }

    private func audited(_ request: HTTPRequest) throws -> HTTPResponse {
        guard request.method == .get || request.method == .head else {
            throw BrokerError.methodNotAllowed(allowed: "GET, HEAD")
        }
        return try audit.respond(path: request.path)
    }

    private func route(_ request: HTTPRequest) async throws -> HTTPResponse {
        let path = request.path
        if path == "/ws/sessions", companion == nil { throw BrokerError.audiencesOff }
        if path == "/ws" || path == "/ws/sessions" { throw BrokerError.upgradeRequired }
        guard
            let route = Self.routes[path] ?? Self.companionRoute(path) ?? Self.monitorRoute(path) ?? Self.callsRoute(path)
        else { throw BrokerError.notFound }
        // HEAD asks for GET's answer without its body, which the engine leaves out.
        let method = request.method == .head ? .get : request.method
        guard let call = route.first(where: { $0.method == method })?.call else {
            throw BrokerError.methodNotAllowed(allowed: route.map { "\($0.method.name)" }.joined(separator: ", "))
        }
        return try await call(self, request)
    }
}

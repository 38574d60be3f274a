public import Broker
import HTTP1
public import HTTPServer
import Sealing

/// The public listener's calls: one place that finds the route, runs it, and turns errors into answers.
public struct API: Sendable {
    let broker: Broker
    let audit: AuditFiles
    let proxies: TrustedProxies
    /// Nil if the broker serves only rooms.
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

    private static let routes = RouteTable<API>([
        Route([.post], "/api/rooms") { try await $0.createRoom($1) },
        Route([.post], "/api/rooms/accept") { try await $0.acceptRoom($1) },
        Route([.get], "/api/room") { try await $0.roomStatus($1) },
        Route([.delete], "/api/room") { try await $0.closeRoom($1) },
        Route([.put], "/api/room/token") { try await $0.replaceToken($1) },
        Route([.delete], "/api/room/token") { try await $0.withdrawToken($1) },
        Route([.post], "/api/room/presence") { try await $0.reportPresence($1) },
        Route(nil, SocketPath.rooms.rawValue) { _, _ in throw BrokerError.upgradeRequired },

        Route([.post], "/api/push/register") { try await $0.registerDevice($1) },
        Route([.get], "/api/push/status") { try await $0.pushStatus($1) },
        Route([.post], "/api/push/clear-approval") { try await $0.clearApproval($1) },
        Route([.post], "/api/push/live-activity/register") { try await $0.registerActivity($1) },
        Route([.delete], "/api/push/token/:id") { try await $0.deleteToken($1, $2) },
        Route([.delete], "/api/push/session/:session/notifications") { try await $0.clearSession($1, $2) },
        Route([.get], "/api/approval/:request") { try await $0.approval($1, $2) },
        Route([.post], "/api/approval/:request/respond") { try await $0.respond($1, $2) },
        Route([.post], "/api/sessions/:session/events") { try await $0.takeEvent($1, $2) },
        Route(nil, SocketPath.sessions.rawValue) { api, _ in
            throw api.companion == nil ? BrokerError.audiencesOff : BrokerError.upgradeRequired
        },

        Route([.post], "/api/devices/register") { try await $0.registerMonitor($1) },
        Route([.delete], "/api/devices/:id") { try await $0.deleteMonitor($1, $2) },
        // No id is so short.
        Route([.get], "/api/devices/by-printer/:prefix") { try await $0.monitors($1, $2) },
        Route([.patch], "/api/devices/:id/settings") { try await $0.setMonitor($1, $2) },
        Route([.post], "/api/monitors/:prefix/status") { try await $0.takeStatus($1, $2) },
        Route([.post], "/api/monitors/:prefix/progress") { try await $0.takeProgress($1, $2) },

        Route([.post], "/api/voip/token") { try await $0.registerPhone($1) },
        Route([.delete], "/api/voip/token") { try await $0.deletePhone($1) },
        Route([.post], "/webhooks/call") { try await $0.ring($1) },

        // The engine charges reads of the log's files.
        Route([.get, .head], "/audit", isCharged: false) { try $0.audit.respond(path: $1.path) },
        Route([.get, .head], "/audit/*", isCharged: false) { try $0.audit.respond(path: $1.path) },
    ])

    /// Answers one request.
    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        do {
            let found = Self.routes.find(request.path)
            if let found, !found.isCharged { return try await found.answer(request, self) }
            let charges = try RequestCharges(broker.shares, request.owners)
            defer { charges.end() }
            return try await RequestCharges.$current.withValue(charges) {
                guard let found else { throw BrokerError.notFound }
                return try await found.answer(request, self)
            }
        } catch let error as InvalidRequest {
            broker.noteRefusal(error.errors[0])
            return HTTPResponse(error)
        } catch let error as BrokerError {
            return await refuse(error)
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

    /// The caller of a call for apps with accounts.
    /// - Throws: `.audiencesOff`, `.noJWT`, `.invalidJWT` and `.jwtExpired`.
    func principal(_ request: HTTPRequest) throws(BrokerError) -> Principal {
        guard let authenticator else { throw .audiencesOff }
        let principal = try authenticator.principal(request, nowMs: broker.wallMs)
        try RequestCharges.current?.become(principal)
        return principal
    }
}

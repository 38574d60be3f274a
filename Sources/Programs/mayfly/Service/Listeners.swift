import API
import Broker
import Courier
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Shares
import Vocabulary

/// The two HTTP servers: one for apps, one for the operator.
struct Listeners: Sendable {
    let publicServer: HTTPServer
    let operatorServer: HTTPServer
    let operatorHandler: OperatorHandler
    /// Nil if no companion is served.
    let sessions: SessionSocketHandler?

    private static let operatorConnections = 32
    /// Descriptors that apps' connections must leave free: connections beyond the limits, the operator's, other nodes', files and pushes.
    static let reservedDescriptors = 3 * HTTPServer.overflow + operatorConnections + NodeServer.mostConnections + 64

    /// Creates both servers. They don't listen yet.
    init(
        _ settings: ServiceSettings, _ parts: ServiceParts, _ handler: (PublicHandler) -> any HTTPHandler
    ) async throws {
        let broker = parts.broker
        let rooms = RoomSocketHandler(broker: broker, table: parts.roomSockets)
        if let companion = parts.apps.companion, let authenticator = settings.authenticator {
            sessions = SessionSocketHandler(companion: companion, authenticator: authenticator, table: parts.sessionSockets)
        } else {
            sessions = nil
        }
        let api = API(
            broker: broker,
            audit: AuditFiles(
                LedgerFolder(settings.state.ledger), loop: broker.loop, shares: broker.shares,
                key: parts.state.ledgerKey.verifierKey,
                isCurrent: { [member = parts.state.member] in member.map { $0.lease.reasonNotReady == nil } ?? true }),
            proxies: settings.proxies, authenticator: settings.authenticator, apps: parts.apps,
            webhookSecrets: settings.webhooks?.secrets)
        let configured = try Self.publicConfiguration(settings, broker.shares)
        parts.expiries.replace("tls", by: Certificates.expiries(configured.tls))
        publicServer = HTTPServer(
            loop: broker.loop, configuration: configured,
            handler: handler(PublicHandler(api: api, rooms: rooms, sessions: sessions, origins: settings.corsOrigins)))

        var renew: (@Sendable () async -> APNsControl.Renewal)?
        if let renewal = parts.renewal { renew = { await renewal.renew() } }
        let apns = APNsControl(
            bundleID: settings.apns.topic, isProduction: settings.apns.environment == .production,
            whatToSet: APNsSettings.whatToSet, renew: renew)
        let lease = parts.state.member?.lease
        operatorHandler = OperatorHandler(
            broker: broker, apns: apns, version: Mayfly.version, publicServer: publicServer,
            reasonNotReady: { lease?.reasonNotReady },
            leads: { [state = parts.state] in state.leads }, hasLoneKeys: { [keys = parts.loneKeys] in keys.isTrue },
            expiries: parts.expiries, webPush: { [webPush = parts.webPush] in (await webPush?.figures ?? .init()).samples },
            keysFault: { [refresh = parts.keyRefresh] in refresh?.fault })
        var table = ShareTable.standard
        table[.connections] = Quota(Self.operatorConnections)
        var configuration = ServerConfiguration(address: settings.operatorListen)
        configuration.activated = settings.activated.operator
        configuration.shares = Shares(table)
        operatorServer = HTTPServer(loop: broker.loop, configuration: configuration, handler: operatorHandler)
    }

    private static func publicConfiguration(_ settings: ServiceSettings, _ shares: Shares) throws -> ServerConfiguration {
        var configuration = ServerConfiguration(address: settings.listen)
        configuration.activated = settings.activated.apps
        configuration.tls = try settings.certificate?.load()
        configuration.shares = shares
        configuration.limits.longBodyBytes = API.longBodyBytes
        configuration.limits.allowsLongBody = { API.allowsLongBody($0, target: $1) }
        let (proxies, backEnds) = (settings.proxies, settings.backEnds)
        configuration.payer = { proxies.payer($0, shares) ?? backEnds.payer($0, shares) }
        configuration.origin = { proxies.origin(of: $0) }
        if let origins = settings.corsOrigins {
            configuration.refuse = { [refuse = configuration.refuse] in origins.unlock(refuse($0)) }
        }
        return configuration
    }

    /// Listens for the operator, resumes the stored jobs, then listens for apps. Returns both addresses.
    func start(_ settings: ServiceSettings, _ parts: ServiceParts) async throws -> (apps: SocketAddress, operator: SocketAddress)
    {
        let operatorAddress = try await operatorServer.start(settings.operatorListen, Setting.operatorListen.named)
        do {
            try await parts.resumeJobs()
            return (try await publicServer.start(settings.listen, Setting.listen.named), operatorAddress)
        } catch {
            await operatorServer.drain(deadlineMs: 0)
            throw error
        }
    }

}

extension HTTPServer {
    /// Starts to listen.
    /// - Parameters:
    ///   - address: the configured one.
    ///   - name: its setting, for errors.
    func start(_ address: SocketAddress, _ name: String) async throws -> SocketAddress {
        do {
            return try start()
        } catch {
            throw CommandFailed("\(name): \(Self.fault(error, at: address))")
        }
    }

    /// Explains why nobody can listen on an address.
    static func fault(_ error: Errno, at address: SocketAddress) -> String {
        let isPath = address.port == nil
        if error.isAddressInUse {
            let find = isPath ? "Stop it, or choose another path" : "Find it with `ss -ltnp`, or choose another port"
            return "\(address.shown) is in use: another program listens there. \(find)"
        }
        if error.isNoSocket { return "\(address.shown): the path exists and is not a socket; nothing was replaced" }
        if error.isNoOwnAddress {
            return "can't listen on \(address.shown): this machine doesn't have that address. `ip address` lists those it has"
        }
        if isPath, error.isMissing {
            return "can't listen on \(address.shown): its folder doesn't exist. Make it, or correct the path"
        }
        return "can't listen on \(address.shown): \(error.reason)"
    }
}

/// Warns the operator about exhausted resources, and if one address that is no trusted proxy sends most requests. Never logs addresses.
struct ShareWatch {
    private static let roundMs: UInt64 = 10_000
    /// Rounds per window of requests, and windows between two warnings of the same kind.
    private static let roundsPerWindow = 30
    private static let windowsBetween = 288

    private let shares: Shares
    private let proxies: TrustedProxies
    private let server: HTTPServer
    private let metrics: Metrics
    private var reported = Resource.allCases.map { _ in 0 }
    private var hasReportedUnnamed = false

    init(_ shares: Shares, _ proxies: TrustedProxies, _ server: HTTPServer, _ metrics: Metrics) {
        self.shares = shares
        self.proxies = proxies
        self.server = server
        self.metrics = metrics
    }

    mutating func run() async {
        var quietWindows = Self.windowsBetween
        for round in 1... {
            do { try await server.loop.sleep(Self.roundMs) } catch { return }
            shares.forget([.presenceChanges], now: Clock.monotonicMs)
            reportExhausted()
            reportUnnamed()
            guard round % Self.roundsPerWindow == 0 else { continue }
            quietWindows += 1
            guard await server.endRequestWindow(), quietWindows > Self.windowsBetween else { continue }
            quietWindows = 0
            Terminal.log(
                .warning,
                "most requests come from one address and use up its share. If that is a proxy, name it in \(Setting.trustedProxies.named)"
            )
        }
    }

    /// Raises one alarm in the life of the process, since nothing but a change of the proxy's configuration helps.
    private mutating func reportUnnamed() {
        guard !hasReportedUnnamed, proxies.hasUnnamedCallers else { return }
        hasReportedUnnamed = true
        metrics.add(.alarms)
        Terminal.log(
            .error,
            "shares: a trusted proxy forwards callers without a readable address (unknown, a hidden name or other text). All of them share the limits of one network. "
                + "Have the proxy write addresses in X-Forwarded-For"
        )
    }

    private mutating func reportExhausted() {
        for resource in Resource.allCases {
            let count = shares.refusals(resource).exhausted
            defer { reported[resource.rawValue] = count }
            guard count > reported[resource.rawValue] else { continue }
            metrics.add(.alarms)
            Terminal.log(.error, "shares: \(resource.name) ran out, and callers that used none of it were refused")
        }
    }
}

extension WebPushCourier.Figures {
    /// The counters of Web Push. None names a host.
    fileprivate var samples: [Metrics.Sample] {
        [
            .init(
                "mayfly_web_push_refused_total",
                "Web Push messages that Apple, Google or Mozilla refused because of this deployment's key, contact or clock.",
                refused
            ),
            .init(
                "mayfly_web_push_failed_elsewhere_total",
                "Failed Web Push messages to other hosts than those of Apple, Google and Mozilla. They raise no alarm.",
                failedElsewhere),
            .init(
                "mayfly_web_push_inward_total",
                "Look-ups of hosts that have only addresses of private networks. Name one with `private` in --web-push-hosts to allow it.",
                inward),
        ]
    }
}

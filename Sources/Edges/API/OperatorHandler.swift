public import Broker
import HTTP1
public import HTTPServer
import JSON
import Shares
import Synchronization

/// Serves the operator's listener on loopback: health, readiness, metrics and the credentials for APNs.
public final class OperatorHandler: HTTPHandler {
    private let broker: Broker
    private let apns: APNsControl
    private let version: String
    private let publicServer: HTTPServer
    private let reasonNotReady: @Sendable () -> String?
    private let leads: @Sendable () -> Bool
    private let hasLoneKeys: @Sendable () -> Bool
    private let expiries: Expiries
    private let webPush: @Sendable () async -> [Metrics.Sample]
    private let keysFault: @Sendable () -> String?
    private let ready = Mutex(false)

    /// - Parameters:
    ///   - version: the program's version, for the metrics.
    ///   - publicServer: the server for apps, whose connections the metrics count.
    ///   - reasonNotReady: returns why this node can't serve, e.g. without its term. Nil if it can.
    ///   - leads: returns true if this node publishes the log.
    ///   - hasLoneKeys: returns true if a stop of this node would forget everything sealed.
    ///   - expiries: when certificates in use expire.
    ///   - webPush: returns the counters of Web Push.
    ///   - keysFault: returns why JWTs may be refused with 503, or nil. Rooms are served all the same.
    public init(
        broker: Broker, apns: APNsControl, version: String, publicServer: HTTPServer,
        reasonNotReady: @escaping @Sendable () -> String? = { nil }, leads: @escaping @Sendable () -> Bool = { true },
        hasLoneKeys: @escaping @Sendable () -> Bool = { false }, expiries: Expiries,
        webPush: @escaping @Sendable () async -> [Metrics.Sample] = { [] },
        keysFault: @escaping @Sendable () -> String? = { nil }
    ) {
        self.keysFault = keysFault
        self.webPush = webPush
        self.hasLoneKeys = hasLoneKeys
        self.expiries = expiries
        self.reasonNotReady = reasonNotReady
        self.leads = leads
        self.broker = broker
        self.apns = apns
        self.version = version
        self.publicServer = publicServer
    }

    /// Sets whether the public listener accepts requests.
    public func setReady(_ value: Bool) { ready.withLock { $0 = value } }

    private static let routes = RouteTable<OperatorHandler>([
        Route([.get, .head], "/healthz") { _, _ in text(200, "ok\n") },
        Route([.get, .head], "/readyz") { handler, _ in handler.readiness },
        Route([.get, .head], "/metrics") { handler, _ in await handler.metrics() },
        Route([.get, .head], "/api/config/apns/status") { handler, _ in handler.apns.status },
        Route([.post], "/api/config/apns/init") { await $0.apns.renewal($1.request) },
    ])

    private var readiness: HTTPResponse {
        guard ready.withLock(\.self) else { return Self.text(503, "not ready\n") }
        if let reasonNotReady = reasonNotReady() { return Self.text(503, "not ready: \(reasonNotReady)\n") }
        let lines = ["ready", broker.timeLead, keysFault()].compactMap(\.self)
        return Self.text(200, lines.joined(separator: "\n") + "\n")
    }

    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        guard request.namesLoopback else { return HTTPResponse(.foreignHost) }
        guard let found = Self.routes.find(request.path) else { return HTTPResponse(.notFound) }
        do {
            return try await found.answer(request, self)
        } catch {
            return HTTPResponse(BrokerError(thrown: error) ?? .storageUnavailable)
        }
    }

    private func metrics() async -> HTTPResponse {
        let engine = await publicServer.statistics
        let text = broker.metrics.exposition(
            version: version,
            gauges: await broker.gauges() + [
                .init("mayfly_connections", "Open connections of the public listener.", engine.openConnections),
                .init("mayfly_leads", "1 if this node publishes the log, else 0.", leads() ? 1 : 0, isExact: true),
                .init(
                    "mayfly_keys_alone",
                    "1 if a stop of this node forgets everything sealed, since it alone has the keys, else 0.",
                    hasLoneKeys() ? 1 : 0, isExact: true),
            ],
            counters: [
                .init(
                    "mayfly_connections_accepted_total", "Connections that the public listener accepted.", engine.accepted),
                .init("mayfly_http_requests_total", "Complete requests at the public listener.", engine.requests),
                .init(
                    "mayfly_http_refused_total", "Requests that the HTTP engine of the public listener refused.",
                    engine.refusals),
            ] + (await webPush()))
        return HTTPResponse(
            status: 200, contentType: .other("text/plain; version=0.0.4; charset=utf-8"),
            body: Array((text + refusals + expiries.exposition).utf8))
    }

    private var refusals: String {
        var text = Metrics.head(
            "mayfly_share_refusals_total", "counter", "What was refused for lack of a resource, by resource and reason.")
        for resource in Resource.allCases {
            let refusals = broker.shares.refusals(resource)
            for (reason, count) in [("over_share", refusals.overShare), ("exhausted", refusals.exhausted)] {
                let labels = "resource=\"\(resource.name)\",reason=\"\(reason)\""
                text += "mayfly_share_refusals_total{\(labels)} \(Metrics.rounded(count))\n"
            }
        }
        return text
    }

    private static func text(_ status: UInt16, _ text: String) -> HTTPResponse {
        HTTPResponse(status: status, contentType: .text, body: Array(text.utf8))
    }
}

/// The operator's calls about APNs: the configuration, and a reload of keys and certificates. Their shapes are those of the printer
/// monitor's own server.
public struct APNsControl: Sendable {
    /// The result of a reload. In the last two cases the previous credentials stay in use.
    public enum Renewal: Sendable {
        case inUse
        /// A file is invalid, or Apple refuses its credentials. The text explains why.
        case refused(String)
        /// Apple could not be reached. The text explains why.
        case unknown(String)
    }

    private let bundleID: String
    private let isProduction: Bool
    private let whatToSet: String
    private let renew: (@Sendable () async -> Renewal)?

    /// - Parameters:
    ///   - bundleID: the default app's bundle id.
    ///   - isProduction: true if the default environment is production.
    ///   - whatToSet: the names of the settings, for an error.
    ///   - renew: reloads keys and certificates. Nil if none are configured.
    public init(bundleID: String, isProduction: Bool, whatToSet: String, renew: (@Sendable () async -> Renewal)?) {
        self.bundleID = bundleID
        self.isProduction = isProduction
        self.whatToSet = whatToSet
        self.renew = renew
    }

    var status: HTTPResponse {
        .json(200) { json in
            json.add("configured", renew != nil)
            json.add("bundleId", bundleID)
            json.add("production", isProduction)
        }
    }

    func renewal(_ request: HTTPRequest) async -> HTTPResponse {
        // Web pages in a browser on this machine can reach loopback. Browsers always send this header with a POST.
        guard request.header("origin") == nil else {
            return Self.failure(403, "Browsers may not call this. Call it without an Origin header.")
        }
        guard let renew else { return Self.failure(400, "APNs is not configured. Set \(whatToSet), and restart.") }
        switch await renew() {
        case .inUse:
            return .json(200) { json in
                json.add("success", true)
                json.add("message", "APNs configured")
            }
        case .refused(let fault): return Self.failure(400, fault)
        case .unknown(let fault):
            var response = Self.failure(503, fault)
            response.headers.append(HTTPResponse.Header("Retry-After", "30"))
            return response
        }
    }

    private static func failure(_ status: UInt16, _ error: String) -> HTTPResponse {
        .json(status) { json in
            json.add("success", false)
            json.add("error", error)
        }
    }
}

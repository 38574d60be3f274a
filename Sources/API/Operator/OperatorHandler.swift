public import Broker
import HTTP1
public import HTTPServer
public import Shares
import Synchronization

/// The operator's listener, on loopback: whether the broker is alive and ready, what it did, and its credentials for APNs.
public final class OperatorHandler: HTTPHandler {
    private let broker: Broker
    private let apns: APNsControl
    private let version: String
    private let ready = Mutex(false)
    private let watched = Mutex<(server: HTTPServer, shares: Shares)?>(nil)

    /// - Parameter version: the program's.
    public init(broker: Broker, apns: APNsControl, version: String) {
        self.broker = broker
        self.apns = apns
        self.version = version
    }

    /// Ready from when the public listener takes requests until it drains.
    public func setReady(_ value: Bool) { ready.withLock { $0 = value } }

    /// Sets the public server and its shares, whose connections and refusals the metrics count.
    public func watch(_ server: HTTPServer, _ shares: Shares) { watched.withLock { $0 = (server, shares) } }

    private static let routes = RouteTable<OperatorHandler>([
        Route([.get, .head], "/healthz") { _, _ in text(200, "ok\n") },
        Route([.get, .head], "/readyz") { handler, _ in
            handler.ready.withLock(\.self) ? text(200, "ready\n") : text(503, "not ready\n")
        },
        Route([.get, .head], "/metrics") { handler, _ in await handler.metrics() },
        Route([.get, .head], "/api/config/apns/status") { handler, _ in handler.apns.status },
        Route([.post], "/api/config/apns/init") { await $0.apns.renewal($1) },
    ])

    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        guard request.namesLoopback else { return HTTPResponse(.foreignHost) }
        guard let found = Self.routes.find(request.path) else { return HTTPResponse(.notFound) }
        do {
            return try await found.answer(request, self)
        } catch let error as BrokerError {
            return HTTPResponse(error)
        } catch {
            // No route here throws anything else.
            return HTTPResponse(.storageUnavailable)
        }
    }

    private func metrics() async -> HTTPResponse {
        let watched = watched.withLock(\.self)
        let engine = await watched?.server.statistics
        var text = broker.metrics.exposition(
            version: version,
            gauges: await broker.gauges() + [
                .init("mayfly_connections", "Open connections of the public listener.", engine?.openConnections ?? 0)
            ],
            counters: [
                .init(
                    "mayfly_connections_accepted_total", "Connections that the public listener accepted.",
                    engine?.accepted ?? 0),
                .init("mayfly_http_requests_total", "Complete requests at the public listener.", engine?.requests ?? 0),
                .init(
                    "mayfly_http_refused_total", "Requests that the HTTP engine of the public listener refused.",
                    engine?.refusals ?? 0),
            ])
        if let shares = watched?.shares { text += Self.refusals(shares) }
        return HTTPResponse(
            status: 200, contentType: .other("text/plain; version=0.0.4; charset=utf-8"), body: Array(text.utf8))
    }

    private static func refusals(_ shares: Shares) -> String {
        var text = Metrics.head(
            "mayfly_share_refusals_total", "counter", "What was refused for lack of a resource, by resource and reason.")
        for resource in Resource.allCases {
            let refusals = shares.refusals(resource)
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

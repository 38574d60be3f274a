public import Broker
import HTTP1
public import HTTPServer
import Synchronization

/// The operator's listener, on loopback: is it alive, is it ready, what did it do; and by what it pushes.
public final class OperatorHandler: HTTPHandler {
    private let broker: Broker
    private let apns: APNsControl
    private let ready = Mutex(false)
    private let publicServer = Mutex<HTTPServer?>(nil)

    public init(broker: Broker, apns: APNsControl) {
        self.broker = broker
        self.apns = apns
    }

    /// Ready from when the public listener takes requests until it drains.
    public func setReady(_ value: Bool) { ready.withLock { $0 = value } }

    /// Whose connections and refusals are counted.
    public func watch(_ server: HTTPServer) { publicServer.withLock { $0 = server } }

    public func respond(to request: HTTPRequest) async -> HTTPResponse {
        let path = request.path
        if path == APNsControl.renewalPath { return await apns.renewal(request) }
        guard ["/healthz", "/readyz", "/metrics", APNsControl.statusPath].contains(path) else { return HTTPResponse(.notFound) }
        guard request.method == .get || request.method == .head else {
            return HTTPResponse(.methodNotAllowed(allowed: "GET, HEAD"))
        }
        switch path {
        case "/healthz": return Self.text(200, "ok\n")
        case APNsControl.statusPath: return apns.status
        case "/readyz": return ready.withLock(\.self) ? Self.text(200, "ready\n") : Self.text(503, "not ready\n")
        default:
            let engine = await publicServer.withLock(\.self)?.statistics
            let text = broker.metrics.exposition(
                gauges: await broker.gauges() + [("mayfly_connections", engine?.openConnections ?? 0)],
                counters: [
                    ("mayfly_connections_accepted_total", engine?.accepted ?? 0),
                    ("mayfly_http_requests_total", engine?.requests ?? 0),
                    ("mayfly_http_refused_total", engine?.refusals ?? 0),
                ])
            return HTTPResponse(
                status: 200, contentType: .other("text/plain; version=0.0.4; charset=utf-8"), body: Array(text.utf8))
        }
    }

    private static func text(_ status: UInt16, _ text: String) -> HTTPResponse {
        HTTPResponse(status: status, contentType: .text, body: Array(text.utf8))
    }
}

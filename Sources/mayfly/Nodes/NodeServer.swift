import API
import Broker
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Sealing
import Shares
import Synchronization
import Vocabulary

/// Serves keys and log to the other nodes of a deployment. TLS admits only callers with a certificate of the deployment.
///
/// `POST /keys` with the receiver's public key (32 bytes): 200 with edition (u64), steps (u64) and a sealed box; 204 if nothing has changed for
/// some seconds. The query is the caller's name and the edition it has: `NAME&EDITION`. `GET /audit/...`: the log's files.
final class NodeServer: HTTPHandler {
    private struct Caller {
        var edition: UInt64
        /// Monotonic time of the last request, ms.
        var seen: UInt64
        /// True once the caller had the latest keys.
        var hasCaughtUp = false
    }

    private let loop: EventLoop
    private let keys: KeyRing
    private let audit: AuditFiles
    private let callers = Mutex<[String: Caller]>([:])

    private static let pollMs: UInt64 = 5_000
    /// The longest time since a caller's last request for which a step waits for it.
    private static let presentMs: UInt64 = 2 * pollMs
    private static let longestWaitMs: UInt64 = 5_000
    private static let mostCallers = 64
    static let mostConnections = 128

    init(loop: EventLoop, keys: KeyRing, audit: AuditFiles) {
        (self.loop, self.keys, self.audit) = (loop, keys, audit)
        keys.beforeStep { [weak self] in self?.waitForCallers() }
    }

    /// Starts a server for this handler.
    static func start(
        _ settings: NodeSettings, loop: EventLoop, keys: KeyRing, folder: LedgerFolder, key: VerifierKey
    ) async throws -> HTTPServer {
        var configuration = ServerConfiguration(address: settings.listen)
        configuration.tls = settings.server
        var table = ShareTable.standard
        // Strangers are refused only by their handshake. Its share leaves other nodes half of the connections.
        table[.connections] = Quota(mostConnections, network: Share(16, freeDividedBy: 4))
        table[.handshakes] = Quota(mostConnections / 2, network: Share(4))
        configuration.shares = Shares(table)
        let audit = AuditFiles(folder, loop: loop, shares: configuration.shares, key: key)
        let server = HTTPServer(
            loop: loop, configuration: configuration, handler: NodeServer(loop: loop, keys: keys, audit: audit))
        _ = try await server.start(settings.listen, Key.nodeListen.named)
        return server
    }

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        let path = request.path
        if path.hasPrefix("/audit/"), request.method == .get {
            do { return try await audit.respond(to: request) } catch {
                // Only a missing file is 404: the other node would take it for a gap in the log.
                return HTTPResponse(status: UInt16((error as? BrokerError)?.status ?? 503))
            }
        }
        guard path == "/keys", request.method == .post else { return HTTPResponse(status: 404) }
        let words = (request.query ?? "").split(separator: "&")
        guard words.count == 2, let edition = UInt64(words[1]) else {
            return HTTPResponse(status: 400)
        }
        guard let name = EntryText(String(words[0])) else { return HTTPResponse(status: 400) }
        let publicKey = request.withBody { body in body.indices.map { body[$0] } }
        note(name.description, edition)
        let deadline = Clock.monotonicMs + Self.pollMs
        while keys.edition == edition, Clock.monotonicMs < deadline {
            guard (try? await loop.sleep(50)) != nil else { break }
        }
        if keys.edition == edition { return HTTPResponse(status: 204) }
        guard let sealed = keys.sealed(for: publicKey) else { return HTTPResponse(status: 400) }
        return HTTPResponse(
            status: 200, contentType: .other("application/octet-stream"),
            body: [UInt8](bigEndian: sealed.edition) + [UInt8](bigEndian: sealed.steps) + sealed.box)
    }

    private func note(_ name: String, _ edition: UInt64) {
        let now = Clock.monotonicMs
        callers.withLock { callers in
            callers = callers.filter { now - $0.value.seen < Self.presentMs }
            let (isCurrent, known) = (edition == keys.edition, callers[name]?.hasCaughtUp ?? false)
            if isCurrent, !known { Terminal.log("nodes: \(name) has the latest keys") }
            if callers.count < Self.mostCallers || callers[name] != nil {
                callers[name] = Caller(edition: edition, seen: now, hasCaughtUp: known || isCurrent)
            }
        }
    }

    /// Blocks until all present callers have the edition that is offered, for some seconds at most.
    private func waitForCallers() {
        let (edition, start) = (keys.edition, Clock.monotonicMs)
        while Clock.monotonicMs - start < Self.longestWaitMs {
            let isWaiting = callers.withLock { callers in
                callers.values.contains { $0.edition != edition && Clock.monotonicMs - $0.seen < Self.presentMs }
            }
            if !isWaiting { return }
            // Waits for no descriptor: this only sleeps.
            _ = Poll.wait(-1, .read, until: Clock.monotonicMs + 20)
        }
    }
}

import API
import Broker
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Sealing
import Shares
import Vocabulary

/// Serves keys and log to the other nodes of a deployment. TLS admits only callers with a certificate of the deployment.
///
/// `POST /keys` with the receiver's public key (32 bytes): 200 with edition (u64), steps (u64) and a sealed box; 204 if nothing has changed for
/// some seconds. The query is the caller's name and the edition it has: `NAME&EDITION`. `GET /audit/...`: the log's files.
final class NodeServer: HTTPHandler {
    private let offers: KeyOffers
    private let audit: AuditFiles

    static let mostConnections = 128

    init(offers: KeyOffers, audit: AuditFiles) { (self.offers, self.audit) = (offers, audit) }

    /// Starts a server for this handler.
    static func start(
        _ settings: NodeSettings, loop: EventLoop, offers: KeyOffers, folder: LedgerFolder, key: VerifierKey
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
            loop: loop, configuration: configuration, handler: NodeServer(offers: offers, audit: audit))
        _ = try await server.start(settings.listen, Setting.nodeListen.named)
        return server
    }

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        let path = request.path
        if path.hasPrefix("/audit/"), request.method == .get {
            do { return try await audit.respond(to: request) } catch {
                // Only a missing file is 404: the other node would take it for a gap in the log.
                return HTTPResponse(status: UInt16(BrokerError(thrown: error)?.status ?? 503))
            }
        }
        guard path == "/keys", request.method == .post else { return HTTPResponse(status: 404) }
        let words = (request.query ?? "").split(separator: "&")
        guard words.count == 2, let edition = UInt64(words[1]) else {
            return HTTPResponse(status: 400)
        }
        guard let name = EntryText(String(words[0])) else { return HTTPResponse(status: 400) }
        let publicKey = request.withBody { body in body.indices.map { body[$0] } }
        switch await offers.answer(KeyRequest(name: name, edition: edition, publicKey: publicKey)) {
        case nil: return HTTPResponse(status: 400)
        case .unchanged: return HTTPResponse(status: 204)
        case .changed(let sealed):
            return HTTPResponse(
                status: 200, contentType: .other("application/octet-stream"),
                body: [UInt8](bigEndian: sealed.edition) + [UInt8](bigEndian: sealed.steps) + sealed.box)
        }
    }
}

/// Reaches other nodes' `NodeServer` by HTTPS, with this node's certificate.
struct HTTPNodeLink: NodeLink {
    private let client: HTTPClient

    init(_ settings: NodeSettings, loop: EventLoop) { client = HTTPClient(loop: loop, tls: settings.client) }

    func keys(of address: String, _ request: KeyRequest) async throws(LinkFailure) -> KeyAnswer {
        let url = "https://\(address)/keys?\(request.name)&\(request.edition)"
        let answer: ClientResponse
        do throws(ClientError) {
            answer = try await client.send(
                url, method: .post, body: request.publicKey, timeoutMs: 15_000, maximumBytes: 65_536)
        } catch { throw LinkFailure("\(error)") }
        switch answer.status {
        case 204: return .unchanged
        case 200 where answer.body.count > 16:
            let (edition, steps) = (answer.body.span.bigEndian64(at: 0), answer.body.span.bigEndian64(at: 8))
            return .changed(SealedKeys(edition: edition, steps: steps, box: Array(answer.body[16...])))
        default: throw LinkFailure("\(ClientError.refused(answer.status))")
        }
    }

    func log(of address: String) -> any LogSource {
        FunctionSource { [client] path in
            let answer: ClientResponse
            do throws(ClientError) {
                answer = try await client.send(
                    "https://\(address)/audit/\(path)", timeoutMs: 30_000, maximumBytes: 17_000_000)
            } catch { throw LinkFailure("\(error)") }
            if answer.status == 404 { return nil }
            guard answer.status == 200 else { throw LinkFailure("\(ClientError.refused(answer.status))") }
            return answer.body
        }
    }
}

extension NodeProcess {
    /// This process.
    static let own = NodeProcess(
        wallMs: { Clock.wallMs }, bootMs: { Clock.boottimeMs }, log: Logger { Terminal.log($0, $1) },
        end: { ProcessControl.exit(1) })
}

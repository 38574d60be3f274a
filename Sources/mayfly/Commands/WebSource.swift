import EventLoop
import HTTPServer
import Ledger
import TLS

/// A published log behind HTTP.
struct WebSource: LogSource {
    private let client: HTTPClient
    private let prefix: String

    init(_ url: String) throws {
        let loop = try EventLoop(name: "client")
        try loop.start()
        client = HTTPClient(loop: loop, tls: try TLSContext.client(trust: .system, alpn: ["http/1.1"]))
        prefix = url.hasSuffix("/") ? url : url + "/"
    }

    func read(_ path: String) async throws -> [UInt8]? {
        let answer = try await client.send(prefix + path, timeoutMs: 30_000, maximumBytes: 17_000_000)
        switch answer.status {
        case 200: return answer.body
        case 404, 410: return nil
        default: throw CheckFailed("\(prefix)\(path) answered \(answer.status)")
        }
    }
}

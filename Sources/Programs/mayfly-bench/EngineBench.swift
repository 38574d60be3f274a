import EventLoop
import HTTPServer
import Linux
import Shares
import TLS

/// Runs the HTTP server with a constant answer, for comparison with nginx's `return 200`.
enum EngineBench {
    static func run(_ flags: Flags) async throws {
        let listen = try flags.required("listen")
        guard let address = SocketAddress(parsing: listen), address.isLoopback else {
            throw UsageError("--listen must be ADDRESS:PORT on loopback")
        }
        var configuration = ServerConfiguration(address: address)
        // Benchmarks count idle connections, so none may time out.
        configuration.idleMs = 3_600_000
        // One load generator represents many callers, so limits per network and connection must not apply.
        var table = ShareTable.standard
        table[.streams].network = nil
        table[.requestsInTurn].network = nil
        table[.requestsInTurn].connection = nil
        configuration.shares = Shares(table)
        switch (flags["tls-certificate"], flags["tls-key"]) {
        case (nil, nil): break
        case (let certificate?, let key?):
            let chain = try File.read(certificate, limit: 1_048_576)
            let privateKey = try File.read(key, limit: 1_048_576)
            configuration.tls = try TLSContext.server(
                certificateChain: chain, privateKey: privateKey.span, alpn: ["h2", "http/1.1"])
        default: throw UsageError("--tls-certificate and --tls-key need each other: set both or neither")
        }
        _ = try? ProcessControl.raiseDescriptorLimit()
        let loop = try EventLoop(name: "main")
        try loop.start()
        let server = HTTPServer(loop: loop, configuration: configuration, handler: ConstantAnswer())
        Standard.error("ready: \(try await server.start())\n")
        while true { try await loop.sleep(3_600_000) }
    }
}

private struct ConstantAnswer: HTTPHandler {
    private let answer = HTTPResponse(status: 200, contentType: .json, body: Array(#"{"delivery":"queued"}"#.utf8))

    func respond(to request: HTTPRequest) async -> HTTPResponse { answer }
}

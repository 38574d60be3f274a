import EventLoop
import HTTP1
import Linux
import Shares
import TLS
import Testing
import WebSocket

@testable import HTTPServer

/// Accepts one connection and writes prepared responses.
final class ScriptedServer {
    let listener: Socket
    let address: SocketAddress
    var url: String { "http://\(address)/" }

    init() throws {
        listener = try Socket.listen(on: .v4(0x7F00_0001, port: 0))
        address = try listener.localAddress()
    }

    /// Waits for a connection and its request.
    func accept() async throws -> Socket {
        while true {
            if let accepted = try listener.accept() {
                let socket = accepted.take()
                var buffer = [UInt8](repeating: 0, count: 4096)
                while true {
                    var span = buffer.mutableSpan
                    if try socket.read(into: &span) != nil { return socket }
                    try await Task.sleep(for: .milliseconds(1))
                }
            }
            try await Task.sleep(for: .milliseconds(1))
        }
    }
}

func text(_ response: ClientResponse) -> String { "\(response.status) \(String(decoding: response.body, as: UTF8.self))" }

@Suite struct ClientTests {
    static func failure(_ call: () async throws -> ClientResponse) async -> ClientError? {
        do {
            _ = try await call()
            return nil
        } catch {
            return error as? ClientError
        }
    }

    @Test func requestsAreAnsweredOnOneConnection() async throws {
        try await withServer { server, address, _ in
            let client = HTTPClient(loop: server.loop)
            let first = try await client.send("http://\(address)/a?b#c")
            #expect(text(first) == "200 get /a?b ")
            #expect(text(try await client.send("http://\(address)/p", method: .post, body: [0x68, 0x69])) == "200 post /p hi")
            #expect(try await client.send("http://\(address)/", method: .head).body.isEmpty)
            #expect(text(try await client.send("http://localhost:\(address.port!)", method: .delete)) == "200 delete / ")
            #expect(try await client.send("http://\(address)/large").body.count == 4_000_000)
            #expect(text(try await client.send("http://\(address)/none")) == "204 ")
            // One for 127.0.0.1, one for localhost.
            #expect(await server.statistics.accepted == 2)
            await client.close()
        }
    }

    @Test func aConnectionClosedWhileIdleIsReplaced() async throws {
        let loop = try EventLoop(name: "client")
        try loop.start()
        let client = HTTPClient(loop: loop)
        let server = try ScriptedServer()
        let url = server.url
        for round in 1...2 {
            // A GET may be sent twice, so the result is the same whether or not the client has seen the end of the first connection.
            async let answer = client.send(url)
            let socket = try await server.accept()
            _ = try socket.write(Array("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\(round)".utf8).span)
            #expect(text(try await answer) == "200 \(round)")
        }
        await client.close()
        loop.stop()
        loop.join()
    }

    @Test func slowResponsesAreAwaited() async throws {
        try await withServer { server, address, handler in
            let client = HTTPClient(loop: server.loop)
            #expect(await Self.failure { try await client.send("http://\(address)/held", timeoutMs: 50) } == .timedOut)
            handler.release()
        }
    }

    @Test(
        arguments: [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", .closedEarly),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", .closedEarly),
            ("", .closedEarly),
            ("220 mail\r\n", .badAnswer(.malformed)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n", .badAnswer(.bodyTooLarge)),
            ("HTTP/1.1 200 OK\r\n\r\nhello", nil),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", nil),
        ] as [(String, ClientError?)])
    func responsesMustBeComplete(_ answer: String, _ expected: ClientError?) async throws {
        let loop = try EventLoop(name: "client")
        try loop.start()
        let server = try ScriptedServer()
        let url = server.url
        async let failure = Self.failure {
            let response = try await HTTPClient(loop: loop).send(url, maximumBytes: 100)
            #expect(text(response) == "200 hello")
            return response
        }
        do {
            let socket = try await server.accept()
            _ = try socket.write(Array(answer.utf8).span)
            socket.finishWriting()
        }
        #expect(await failure == expected)
        loop.stop()
        loop.join()
    }

    @Test func unreachableServersAreReported() async throws {
        let loop = try EventLoop(name: "client")
        try loop.start()
        let client = HTTPClient(loop: loop)
        let port = try ScriptedServer().address.port!
        guard case .unreachable(let error)? = await Self.failure({ try await client.send("http://127.0.0.1:\(port)/") }) else {
            return #expect(Bool(false))
        }
        #expect(error.isRefused)
        #expect(await Self.failure { try await client.send("https://127.0.0.1:\(port)/") } == .noTrust)
        // The first bytes of TLS are not written before the connection is made.
        let secure = HTTPClient(loop: loop, tls: try TLSContext.client(trust: .system, alpn: ["http/1.1"]))
        guard case .unreachable(let error)? = await Self.failure({ try await secure.send("https://127.0.0.1:\(port)/") }) else {
            return #expect(Bool(false))
        }
        #expect(error.isRefused)
        loop.stop()
        loop.join()
    }

    @Test(arguments: [
        ("http://a", "a:80:false", "/", "a"), ("HTTPS://a/b?c#d", "a:443:true", "/b?c", "a"),
        ("ws://[::1]:8/x", "::1:8:false", "/x", "[::1]:8"),
        ("wss://a:443?x", "a:443:true", "/?x", "a"),
    ])
    func urls(_ url: String, _ origin: String, _ target: String, _ authority: String) throws {
        let parsed = try Origin.parse(url)
        #expect("\(parsed.origin.host):\(parsed.origin.port):\(parsed.origin.isSecure)" == origin)
        #expect(parsed.target == target)
        #expect(parsed.origin.authority == authority)
    }

    @Test(arguments: [
        "", "a", "ftp://a/", "http://", "http:///x", "http://a:/", "http://a:99999/", "http://u@a/", "http://a/b c",
        "http://a/\r\nX: y",
    ])
    func badURLs(_ url: String) {
        #expect(throws: ClientError.badURL(url)) { try Origin.parse(url) }
    }

    @Test func webSocketsExchangeMessages() async throws {
        try await withServer {
            $0.pingMs = 10
        } _: { server, address, handler in
            let client = WebSocketClient(loop: server.loop)
            try await client.connect("ws://\(address)/ws")
            for text in ["a", "b"] {
                try await client.send(Array(text.utf8))
                #expect(try await client.receive() == Array(text.utf8))
            }
            // Pings are answered without any messages.
            await #expect(throws: ClientError.timedOut) { try await client.receive(timeoutMs: 100) }
            try await client.send(Array("c".utf8))
            #expect(try await client.receive() == Array("c".utf8))
            await client.close()
            #expect(await client.closeCode == .normal)
            try await eventually { handler.log.last == "closed 1000" }
        }
    }

    @Test func aRefusedWebSocketIsReported() async throws {
        try await withServer { server, address, _ in
            let client = WebSocketClient(loop: server.loop)
            await #expect(throws: ClientError.notUpgraded(200)) { try await client.connect("ws://\(address)/other") }
            await #expect(throws: ClientError.closedEarly) { try await client.send([]) }
        }
    }

    @Test func theServersCloseEndsReceiving() async throws {
        try await withServer { server, address, _ in
            let client = WebSocketClient(loop: server.loop)
            try await client.connect("ws://\(address)/ws")
            try await client.send(Array("close".utf8))
            #expect(try await client.receive() == nil)
            #expect(await client.closeCode == .normal)
        }
    }
}

@Suite struct TLSTests {
    func withSecureServer(
        _ configure: (inout ServerConfiguration) -> Void = { _ in },
        _ use: (HTTPServer, SocketAddress, EchoHandler, TLSContext) async throws -> Void
    ) async throws {
        let pair = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1)
        let context = try TLSContext.server(
            certificateChain: pair.certificate, privateKey: pair.privateKey.span, alpn: ["http/1.1"])
        let trust = try TLSContext.client(trust: .authorities(pair.certificate), alpn: ["http/1.1"])
        try await withServer {
            $0.tls = context
            configure(&$0)
        } _: { server, address, handler in
            try await use(server, address, handler, trust)
        }
    }

    @Test func requestsAndWebSocketsWorkOverTLS() async throws {
        try await withSecureServer { server, address, handler, trust in
            let client = HTTPClient(loop: server.loop, tls: trust)
            for count in 0..<3 { #expect(text(try await client.send("https://\(address)/\(count)")) == "200 get /\(count) ") }
            #expect(try await client.send("https://\(address)/large").body == Array(repeating: 0x78, count: 4_000_000))
            #expect(
                text(try await client.send("https://\(address)/", method: .post, body: Array(repeating: 0x61, count: 16384)))
                    .hasPrefix("200 post / aa"))
            #expect(
                try await client.send("https://\(address)/", method: .post, body: Array(repeating: 0x61, count: 16385)).status
                    == 413)
            #expect(await server.statistics.accepted == 1)

            let socket = WebSocketClient(loop: server.loop, tls: trust)
            try await socket.connect("wss://\(address)/ws")
            try await socket.send(Array("hi".utf8))
            #expect(try await socket.receive() == Array("hi".utf8))
            async let drain: Void = server.drain(deadlineMs: 60_000)
            #expect(try await socket.receive() == nil)
            #expect(await socket.closeCode == .goingAway)
            await socket.close()
            await drain
            #expect(handler.log.last == "closed 1001")
        }
    }

    @Test func aStalledHandshakeIsClosed() async throws {
        try await withSecureServer {
            $0.handshakeMs = 50
        } _: { server, address, _, _ in
            let client = try await RawClient(address)
            try await client.write([0x16, 3, 1])
            #expect(try await client.answersUntilEnd() == [])
            #expect(await server.statistics.openConnections == 0)
        }
    }

    @Test func plaintextIsNotAnswered() async throws {
        try await withSecureServer { server, address, _, _ in
            let client = try await RawClient(address, writing: "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await client.answersUntilEnd() == [])
            #expect(await server.statistics.requests == 0)
            #expect(await server.statistics.refusals == 1)
        }
    }

    /// Single bytes must not restart the deadlines of the handshake and of lingering.
    @Test func slowGarbageMeetsTheDeadline() async throws {
        try await withSecureServer {
            $0.lingerMs = 100
        } _: { server, address, _, _ in
            let client = try await RawClient(address)
            client.closesInTurn = false
            try await client.write("GET / HTTP/1.1\r\n\r\n")
            try await eventually { await server.statistics.accepted == 1 }
            try await eventually {
                _ = try? client.socket.write([0x78].span)
                client.read()
                return await server.statistics.openConnections == 0
            }
            #expect(await server.statistics.openConnections == 0)
        }
    }

    @Test func aClientWithoutTrustFails() async throws {
        try await withSecureServer { server, address, _, _ in
            let other = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1)
            let trust = try TLSContext.client(trust: .authorities(other.certificate), alpn: [])
            let client = HTTPClient(loop: server.loop, tls: trust)
            let failure = await ClientTests.failure { try await client.send("https://\(address)/") }
            guard case .tls = failure else { return #expect(failure == .tls(.untrusted)) }
            #expect(await server.statistics.requests == 0)
        }
    }

    @Test func excessConnectionsAreRefusedOverTLS() async throws {
        try await withSecureServer {
            $0.setQuota(.connections, Quota(1))
        } _: { server, address, _, trust in
            let first = HTTPClient(loop: server.loop, tls: trust)
            let statuses = [
                try await first.send("https://\(address)/").status,
                try await HTTPClient(loop: server.loop, tls: trust).send("https://\(address)/").status,
            ]
            #expect(statuses == [200, 503])
        }
    }
}

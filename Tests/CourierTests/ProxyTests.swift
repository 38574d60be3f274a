import Linux
import Sealing
import TLS
import Testing
import Vocabulary

@testable import Courier

/// The way to APNs through an HTTP proxy.
@Suite struct ProxyTests {
    private static let endlessLine = "HTTP/1.1 200 OK\r\nX: " + String(repeating: "x", count: 1 << 20)
    private static let manyLines = "HTTP/1.1 200 OK\r\n" + String(repeating: "X: y\r\n", count: 10_000)
    private static let unreachable = Outcome.failed(status: 0, reason: .unreachable, verdict: .keep)

    @Test func pushesGoThroughATunnel() async throws {
        try await ScriptedProxy.play(ScriptedProxy.opening) { proxy in
            try await Stage.play(script: ScriptedServer.accepting, proxy: Proxy(proxy.endpoint)) { stage in
                let outcomes = await stage.send((1...50).map { Push.sample($0) })
                #expect(outcomes.allSatisfy { $0 == .delivered })
                let authority = "127.0.0.1:\(stage.server.port)"
                #expect(await proxy.requests == ["CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n\r\n"])
                #expect(await stage.server.requests.first?.fields[":authority"] == authority)
                #expect(stage.alarms.all.isEmpty)
            }
        }
    }

    @Test func theProxyGetsUserAndPassword() async throws {
        // RFC 7617 section 2.
        let secret = try Secret(copying: Array("Aladdin:open sesame".utf8).span)
        try await ScriptedProxy.play(ScriptedProxy.opening) { proxy in
            let options = Proxy(proxy.endpoint, credentials: secret)
            try await Stage.play(script: ScriptedServer.accepting, proxy: options) { stage in
                #expect(await stage.courier.send(Push.sample()) == .delivered)
                #expect(await proxy.requests[0].contains("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"))
                // It stays between courier and proxy.
                #expect(await stage.server.requests[0].fields["proxy-authorization"] == nil)
            }
        }
    }

    /// Only the proxy may be able to.
    @Test func theProxyResolvesApplesName() async throws {
        let looked = Counter()
        let resolver: Stage.Resolver = { endpoint in
            if endpoint.host == "localhost" { looked.add() }
            return [.v4(0x7f00_0001, port: endpoint.port)]
        }
        try await ScriptedProxy.play(ScriptedProxy.opening) { proxy in
            let named = Endpoint(host: "proxy.test", port: proxy.port)
            try await Stage.play(host: "localhost", resolver: resolver, script: ScriptedServer.accepting, proxy: Proxy(named)) {
                stage in
                #expect(await stage.courier.send(Push.sample()) == .delivered)
                #expect(await proxy.requests[0].hasPrefix("CONNECT localhost:"))
                #expect(looked.value == 0)
            }
        }
    }

    /// A proxy that opens TLS has no certificate for Apple's name, and gets no push.
    @Test func tlsInTheTunnelIsWithApple() async throws {
        try await ScriptedProxy.play(ScriptedProxy.opening) { proxy in
            try await Stage.play(host: "api.push.apple.com", script: ScriptedServer.accepting, proxy: Proxy(proxy.endpoint)) {
                stage in
                #expect(await stage.courier.send(Push.sample(deadlineInMs: 250)) == Self.unreachable)
                #expect(await stage.server.requests.isEmpty)
                #expect("\(stage.alarms.all)".contains("name"), "\(stage.alarms.all)")
            }
            let other = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1).certificate
            try await Stage.play(trust: other, script: ScriptedServer.accepting, proxy: Proxy(proxy.endpoint)) { stage in
                #expect(await stage.courier.send(Push.sample(deadlineInMs: 250)) == Self.unreachable)
                #expect("\(stage.alarms.all)".contains("trusted authority"))
            }
        }
    }

    /// RFC 9110 section 9.3.6: after 2xx the tunnel begins behind the head, whatever it says.
    @Test(arguments: [
        ScriptedProxy.Manner.opens("HTTP/1.0 200 OK\r\n\r\n"), .opens("HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"),
        .opens("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nProxy-Agent: x\r\n\r\n"),
        .opens("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
        .opensSlowly("HTTP/1.1 200 OK\r\nVia: 1.1 x\r\n\r\n"),
    ])
    func everyAnswer2xxOpensATunnel(manner: ScriptedProxy.Manner) async throws {
        try await ScriptedProxy.play(manner) { proxy in
            try await Stage.play(script: ScriptedServer.accepting, proxy: Proxy(proxy.endpoint)) { stage in
                #expect(await stage.courier.send(Push.sample()) == .delivered)
                #expect(stage.alarms.all.isEmpty)
            }
        }
    }

    @Test(arguments: [
        (
            ScriptedProxy.Manner.says("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"),
            "password"
        ),
        (.says("HTTP/1.0 401 Unauthorized\r\n\r\n"), "password"),
        (.says("HTTP/1.1 403 Forbidden\r\nContent-Length: 99999\r\n\r\n"), "forbids"),
        (.says("HTTP/1.1 502 Bad Gateway\r\n\r\nx"), "(502)"),
        (.says("HTTP/1.0 503 x\r\n\r\n"), "(503)"), (.says("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"), "(302)"),
        (.says("HTTP/1.1 101 Switching Protocols\r\n\r\n"), "(101)"), (.says("SSH-2.0-OpenSSH_9.2\r\n"), "not HTTP"),
        (.says("\u{15}\u{3}\u{3}"), "not HTTP"), (.says("HTTP/1.1 200 OK\nX: y\n\n"), "not HTTP"),
        (.says(endlessLine), "too long"), (.says(manyLines), "too long"), (.hangsUp, "closed"),
        (.mute, "in time"), (.says("HTTP/1.1 200 OK\r\nX: "), "in time"), (.says("HTTP/1.1 100 Continue\r\n\r\n"), "in time"),
    ])
    func aRefusalIsReportedAndNotHammered(manner: ScriptedProxy.Manner, cause: String) async throws {
        var timing = Stage.timing
        // On a busy machine, an answer can take longer than that.
        if cause == "in time" { timing.connectMs = 60 }
        let secret = try Secret(copying: Array("mallory:Tr0ub4dor".utf8).span)
        try await ScriptedProxy.play(manner) { proxy in
            let options = Proxy(proxy.endpoint, credentials: secret)
            try await Stage.play(timing: timing, script: ScriptedServer.accepting, proxy: options) { stage in
                let outcomes = await stage.send((1...20).map { Push.sample($0, deadlineInMs: 250) })
                #expect(outcomes.allSatisfy { $0 == Self.unreachable })
                #expect((1...FaultyPeerTests.mostConnections).contains(await proxy.requests.count))
                #expect(await stage.server.connections == 0)
                let told = stage.alarms.all.map(\.description)
                #expect(told.count == 1 && told[0].contains("the proxy") && told[0].contains(cause), "\(told)")
                for secret in ["mallory", "Tr0ub4dor", "bWFsbG9yeTpUcjB1YjRkb3I", "127.0.0.1", "\(proxy.port)"] {
                    #expect(!told.joined().contains(secret))
                }
            }
        }
    }

    @Test func aProxyThatIsDownIsReported() async throws {
        let port = try Socket.listen(on: .v4(0x7f00_0001, port: 0)).localAddress().port!
        let down = Proxy(Endpoint(host: "127.0.0.1", port: port))
        try await Stage.play(script: ScriptedServer.accepting, proxy: down) { stage in
            #expect(await stage.courier.send(Push.sample(deadlineInMs: 250)) == Self.unreachable)
            #expect(
                "\(stage.alarms.all)".contains("the proxy can't be reached (connect: Connection refused)"), "\(stage.alarms.all)")
        }
        let unknown = Proxy(Endpoint(host: "proxy.test", port: port))
        let nowhere: Stage.Resolver = { _ in [] }
        try await Stage.play(resolver: nowhere, script: ScriptedServer.accepting, proxy: unknown) { stage in
            #expect(await stage.courier.send(Push.sample(deadlineInMs: 250)) == Self.unreachable)
            #expect("\(stage.alarms.all)".contains("the proxy's host name can't be resolved"))
        }
    }
}

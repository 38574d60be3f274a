import HTTP1
import Linux
import Shares
import Testing
import WebSocket

@testable import HTTPServer

extension HTTPServer {
    fileprivate var turnsSoFar: UInt64 { turn.number }
}

/// Bodies and messages over the usual limit: where they are allowed, and who is charged for them.
@Suite struct LongBodyTests {
    private let withStreams = StreamTests().withStreams
    private static let most = 262_144

    private static func allow(_ configuration: inout ServerConfiguration, _ quota: Quota = Quota(128 << 20)) {
        configuration.limits.longBodyBytes = most
        configuration.limits.allowsLongBody = { method, target in
            method == .post && ["/held", "/long"].contains(HTTPRequest.path(ofTarget: target))
        }
        configuration.setQuota(.streamBytes, quota)
    }

    private static func head(_ path: String, _ length: Int, method: String = "POST") -> String {
        "\(method) \(path) HTTP/1.1\r\nHost: a\r\nContent-Length: \(length)\r\n\r\n"
    }

    private static func body(_ count: Int) -> String { String(repeating: "x", count: count) }

    private static func chunks(_ count: Int) -> String {
        let whole = String(repeating: "1000\r\n\(body(4_096))\r\n", count: count / 4_096)
        let rest = count % 4_096
        return whole + (rest > 0 ? "\(String(rest, radix: 16))\r\n\(body(rest))\r\n" : "") + "0\r\n\r\n"
    }

    @Test(arguments: ["/long", "/long?a=/b", "http://a/long"]) func someRequestsHaveLongBodies(path: String) async throws {
        try await withServer {
            Self.allow(&$0)
        } _: { server, address, _ in
            let client = try await RawClient(address)
            try await client.write(Self.head(path, Self.most) + Self.body(Self.most))
            try await client.write(
                "POST \(path) HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + Self.chunks(Self.most))
            let answers = try await client.answers(2)
            #expect(answers.count == 2 && answers.allSatisfy { $0.hasPrefix("200 ") && $0.utf8.count > Self.most })
            #expect(await server.streamBytes == 0)
        }
    }

    @Test(arguments: [
        (head("/long", 262_145), 413), (head("/other", 16_385), 413), (head("/long", 16_385, method: "PUT"), 413),
        (head("/long/", 16_385), 413), (head("/other?/long", 16_385), 413),
        ("POST /long HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(262_145), 413),
        ("POST /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(16_385), 413),
    ])
    func othersDoNot(request: String, status: Int) async throws {
        try await withServer {
            Self.allow(&$0)
        } _: { server, address, _ in
            let client = try await RawClient(address)
            // The server may close before all is written.
            try? await client.write(request)
            #expect(try await client.answers(1).first?.hasPrefix("\(status) ") == true)
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func longBodiesOfHTTP2AreLimitedByPathToo() async throws {
        try await withStreams {
            Self.allow(&$0)
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust)
            let long = try client.request("POST", "/long", body: [UInt8](repeating: 0x78, count: Self.most))
            #expect(try await client.answer(long).utf8.count == 4 + 11 + Self.most)
            for (path, count) in [("/long", Self.most + 1), ("/other", 16_385), ("/other", 100_000)] {
                let refused = try client.request("POST", path, body: [UInt8](repeating: 0x78, count: count))
                #expect(try await client.answer(refused).hasPrefix("413 "), "\(path) \(count)")
            }
            let short = try client.request("POST", "/other", body: [UInt8](repeating: 0x78, count: 16_384))
            #expect(try await client.answer(short).hasPrefix("200 "))
            try await eventually { await server.streamBytes == 0 }
        }
    }

    /// Until the handler has answered, also if the connection has closed by then. Usual bodies aren't charged.
    @Test func aLongBodyIsChargedWhileItIsInMemory() async throws {
        try await withServer {
            Self.allow(&$0)
        } _: { server, address, handler in
            for closes in [false, true] {
                var client: RawClient? = try await RawClient(address)
                try await client?.write(Self.head("/held", 200_000) + Self.body(100_000))
                try await eventually { await server.streamBytes == 100_000 }
                try await client?.write(Self.body(100_000))
                try await eventually { handler.heldCount == 1 }
                if closes {
                    client?.socket.resetOnClose()
                    client = nil
                    try await eventually { await server.statistics.openConnections == 0 }
                }
                #expect(await server.streamBytes == 200_000)
                handler.release()
                try await eventually { await server.streamBytes == 0 }
                client = nil
                try await eventually { await server.statistics.openConnections == 0 }
            }
            let short = try await RawClient(address, writing: Self.head("/held", 16_384) + Self.body(16_384))
            try await eventually { handler.heldCount == 1 }
            #expect(await server.streamBytes == 0)
            handler.release()
            #expect(try await short.answers(1).count == 1)
        }
    }

    @Test func aBrokenOffLongBodyIsRefunded() async throws {
        try await withServer {
            Self.allow(&$0)
        } _: { server, address, _ in
            do {
                let client = try await RawClient(address, writing: Self.head("/long", 200_000) + Self.body(150_000))
                try await eventually { await server.streamBytes == 150_000 }
                client.socket.finishWriting()
            }
            try await eventually { await server.streamBytes == 0 }
            try await eventually { await server.statistics.openConnections == 0 }
        }
    }

    @Test func aNetworkOverItsShareIsRefusedAndOthersAreNot() async throws {
        try await withServer {
            Self.allow(&$0, Quota(1 << 20, network: Share(250_000)))
            let proxy = $0.shares.proxy(.v4(9, port: 0))
            $0.payer = { $0 == .v4(1, port: 0) || $0 == .v4(2, port: 0) ? nil : proxy }
            $0.origin = { .v4($0.query == "greedy" ? 1 : 2, port: 0) }
        } _: { server, address, handler in
            let first = try await RawClient(address, writing: Self.head("/held?greedy", 200_000) + Self.body(200_000))
            try await eventually { handler.heldCount == 1 }
            let second = try await RawClient(address, writing: Self.head("/long?greedy", 60_000) + Self.body(60_000))
            let refused = try await second.answers(1)
            #expect(refused.first?.hasPrefix("429 ") == true && refused.first?.contains("too_many_requests") == true)
            let other = try await RawClient(address, writing: Self.head("/long?other", 60_000) + Self.body(60_000))
            #expect(try await other.answers(1).first?.hasPrefix("200 ") == true)
            #expect(await server.streamBytes == 200_000)
            handler.release()
            #expect(try await first.answers(1).first?.hasPrefix("200 ") == true)
            try await eventually { await server.streamBytes == 0 }
        }
    }

    @Test func aConnectionOverItsShareIsRefusedMidway() async throws {
        try await withServer {
            Self.allow(&$0, Quota(1 << 20, connection: Share(100_000)))
        } _: { server, address, _ in
            let client = try await RawClient(address)
            try? await client.write(Self.head("/long", 200_000) + Self.body(150_000))
            #expect(try await client.answers(1).first?.hasPrefix("429 ") == true)
            try await eventually { await server.streamBytes == 0 }
        }
    }

    /// A body of 256 KiB counts as sixteen requests.
    @Test func longBodiesTakeMoreOfATurn() async throws {
        try await withServer {
            Self.allow(&$0)
            $0.setQuota(.requestsInTurn, Quota(network: Share(17), windowMs: 1))
        } _: { server, address, handler in
            var clients: [RawClient] = []
            for _ in 0..<3 {
                clients.append(try await RawClient(address, writing: Self.head("/held", Self.most) + Self.body(Self.most - 1)))
            }
            try await eventually { await server.streamBytes == 3 * (Self.most - 1) }
            let before = await server.turnsSoFar
            try await atOnce(server) { for client in clients { try await client.write("x") } }
            try await eventually { handler.heldCount == 3 }
            #expect(await server.turnsSoFar >= before + 2)
            handler.release()
            for client in clients { #expect(try await client.answers(1).count == 1) }
        }
    }

    // MARK: WebSockets

    @Test func longMessagesAreAllowedAfterJoining() async throws {
        try await withServer {
            $0.setQuota(.streamBytes, Quota(128 << 20, connection: Share(1 << 20)))
        } _: { server, address, _ in
            let early = try await RawWebSocket(address)
            try? await early.send(Self.body(16_385))
            #expect(try await early.closeCode() == 1009)
            let socket = try await RawWebSocket(address)
            try await socket.send("join long")
            #expect(try await socket.messages(1) == ["join long"])
            for _ in 0..<20 { try await socket.send("count" + Self.body(Self.most - 5)) }
            #expect(try await socket.messages(20) == Array(repeating: "\(Self.most)", count: 20))
            try await eventually { await server.streamBytes == 0 }
            // The server may close before all is written.
            try? await socket.send(Self.body(Self.most + 1))
            #expect(try await socket.closeCode() == 1009)
        }
    }

    /// Also if they had to wait for their turn.
    @Test func longMessagesTakeMoreOfATurn() async throws {
        try await withServer {
            $0.setQuota(.requestsInTurn, Quota(network: Share(17), windowMs: 1))
        } _: { server, address, _ in
            var sockets: [RawWebSocket] = []
            for _ in 0..<3 {
                let socket = try await RawWebSocket(address)
                try await socket.send("join long")
                _ = try await socket.messages(1)
                sockets.append(socket)
            }
            let frames = sockets.map { _ in RawWebSocket.text("count" + Self.body(Self.most - 5)) }
            for (socket, frame) in zip(sockets, frames) { try await socket.client.write(Array(frame.dropLast())) }
            try await eventually { await server.streamBytes >= 3 * (Self.most - 1) }
            let before = await server.turnsSoFar
            try await atOnce(server) {
                for (socket, frame) in zip(sockets, frames) { try await socket.client.write([frame[frame.count - 1]]) }
            }
            for socket in sockets { #expect(try await socket.messages(1) == ["\(Self.most)"]) }
            // One for each message, and the end of the last.
            try await eventually { await server.turnsSoFar >= before + 3 }
        }
    }

    @Test func messagesAreChargedWhileTheyAreInMemory() async throws {
        try await withServer {
            $0.setQuota(.streamBytes, Quota(128 << 20, network: Share(300_000)))
        } _: { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("join long")
            _ = try await socket.messages(1)
            try await socket.send("hold")
            try await eventually { handler.heldCount == 1 }
            try await socket.send("count" + Self.body(200_000))
            try await eventually { await server.streamBytes >= 200_005 }
            handler.release()
            #expect(try await socket.messages(1) == ["200005"])
            try await eventually { await server.streamBytes == 0 }
            // Over its share.
            try await socket.send("hold")
            try await eventually { handler.heldCount == 1 }
            for _ in 0..<2 { try? await socket.send(Self.body(200_000)) }
            try await eventually {
                try? await socket.read()
                return socket.machine.peerCloseCode == .policyViolation
            }
            handler.release()
            try await eventually { await server.streamBytes == 0 }
        }
    }

    /// Messages that wait when the socket joins are charged then, for the first time.
    @Test func messagesThatWaitForTheJoinAreCharged() async throws {
        try await withServer {
            $0.setQuota(.streamBytes, Quota(10_000_000, connection: Share(20_000)))
        } _: { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("hold")
            try await eventually { handler.heldCount == 1 }
            try await socket.send("join long")
            for _ in 0..<5 { try await socket.send("count" + Self.body(10_000)) }
            // The answer to a ping shows that all have arrived.
            socket.machine.sendPing()
            try await socket.flush()
            try await eventually {
                try await socket.read()
                return socket.machine.pongCount == 1
            }
            handler.release()
            try await eventually {
                try? await socket.read()
                return socket.machine.peerCloseCode == .policyViolation
            }
            try await eventually { await server.streamBytes == 0 }
        }
    }

    @Test func messagesOfAClosedSocketAreRefunded() async throws {
        try await withServer { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("join long")
            _ = try await socket.messages(1)
            try await socket.send("hold")
            try await eventually { handler.heldCount == 1 }
            try await socket.client.write(Array(RawWebSocket.text(Self.body(200_000)).prefix(150_000)))
            try await eventually { await server.streamBytes >= 150_000 }
            socket.client.socket.finishWriting()
            handler.release()
            try await eventually { await server.streamBytes == 0 }
            try await eventually { await server.statistics.openWebSockets == 0 }
        }
    }
}

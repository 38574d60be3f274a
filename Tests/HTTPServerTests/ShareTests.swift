import EventLoop
import HTTP2
import Linux
import Shares
import Synchronization
import Testing
import WebSocket

@testable import HTTPServer

/// The limits of one client, and the effect on others.
@Suite struct ShareTests {
    private let withStreams = StreamTests().withStreams

    private static let noWindow = Frames.preface + Frames.frame(type: 4, flags: 0, stream: 0, [0, 4, 0, 0, 0, 0])

    private func asks(_ streams: Range<Int>, _ path: String) -> [UInt8] {
        streams.reduce(into: []) { bytes, number in
            bytes += Frames.frame(type: 1, flags: 5, stream: UInt8(2 * number + 1), Frames.request(path: path))
        }
    }

    // Promise: own-connection-closed
    @Test func aConnectionThatReadsNothingIsClosedAtItsShare() async throws {
        try await withStreams {
            $0.setQuota(.streamBytes, Quota(1 << 20, connection: Share(20_000)))
        } _: { server, address, _, trust in
            let greedy = try await StreamClient(address, trust, raw: true)
            try greedy.write(Self.noWindow + asks(0..<20, "/a"))
            try await greedy.untilEnd()
            #expect(await server.statistics.refusals == HTTP2Connection.mostUncharged + 1)
            #expect(greedy.frames.contains(sequence: [0, 0, 0, 11]))
            try await eventually { await server.streamBytes == 0 }
            #expect(await server.configuration.shares.used(.streams) == 0)
        }
    }

    @Test func aReadingPeerOverItsShareIsRefused() async throws {
        try await withStreams {
            $0.setQuota(.streams, Quota(100, connection: Share(64), network: Share(2)))
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let held = [try client.request("GET", "/held"), try client.request("GET", "/held")]
            try await client.eventually { handler.heldCount == 2 }
            for _ in 0..<10 {
                let refused = try client.request("GET", "/a")
                let answer = try await client.answer(refused)
                #expect(answer.hasPrefix("429 ") && answer.contains("too_many_requests"))
                #expect(client.headers(refused)?["retry-after"] == "5")
            }
            handler.release()
            for stream in held { #expect(try await client.answer(stream) == "200 get /held ") }
            #expect(try await client.answer(try client.request("GET", "/a")) == "200 get /a ")
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func theLongestStalledStreamEndsFirst() async throws {
        try await withStreams {
            $0.setQuota(.streams, Quota(100, connection: Share(64), network: Share(6)))
            $0.stallMs = 1
            $0.streamCheckMs = 5
        } _: { server, address, _, trust in
            let stalled = try await StreamClient(address, trust, raw: true)
            try stalled.write(Self.noWindow + asks(0..<6, "/a"))
            try await eventually { await !server.stalled.isEmpty }
            let other = try await StreamClient(address, trust)
            for _ in 0..<6 { #expect(try await other.answer(try other.request("GET", "/b")) == "200 get /b ") }
            // RST_STREAM with CANCEL, of the first.
            try await stalled.eventually { stalled.frames.contains(sequence: [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]) }
            #expect(!stalled.frames.contains(sequence: [0, 0, 4, 3, 0, 0, 0, 0, 11, 0, 0, 0, 8]))
            #expect(await server.statistics.refusals == 0)
        }
    }

    @Test func sharedBodiesAreNotCharged() async throws {
        try await withStreams {
            $0.setQuota(.streamBytes, Quota(1 << 20, connection: Share(100_000)))
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(Self.noWindow + asks(0..<10, "/shared"))
            try await client.eventually { await server.statistics.requests == 10 }
            #expect(await server.statistics.refusals == 0)
            #expect(await server.streamBytes < 50_000)
            #expect(handler.shared.allSatisfy { $0 == 0x78 })
        }
    }

    @Test(arguments: [false, true]) func requestsOverATurnsShareWait(acrossConnections: Bool) async throws {
        try await withStreams {
            $0.setQuota(
                .requestsInTurn,
                Quota(connection: Share(acrossConnections ? 100 : 2), network: Share(acrossConnections ? 2 : 100), windowMs: 1))
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let streams = try (0..<20).map { try client.request("GET", "/\($0)") }
            for (number, stream) in streams.enumerated() {
                #expect(try await client.answer(stream) == "200 get /\(number) ")
            }
            #expect(await server.turnNumber > 8)
            #expect(await !server.hasWaiting)
            #expect(handler.paths == (0..<20).map { "/\($0)" })
        }
    }

    @Test func pipelinedRequestsWaitInTheirOrder() async throws {
        try await withServer {
            $0.setQuota(.requestsInTurn, Quota(connection: Share(1), network: Share(1), windowMs: 1))
        } _: { server, address, _ in
            let (one, two) = (try await RawClient(address), try await RawClient(address))
            let all = (0..<10).map { "GET /\($0) HTTP/1.1\r\nHost: a\r\n\r\n" }.joined()
            for client in [one, two] { try await client.write(all) }
            for client in [one, two] { #expect(try await client.answers(10) == (0..<10).map { "200 get /\($0) " }) }
            #expect(await server.turnNumber >= 20)
        }
    }

    /// A request's path selects one of two networks behind a trusted proxy.
    private func beTwoPayers(_ configuration: inout ServerConfiguration, greedy: String) {
        configuration.setQuota(.requestsInTurn, Quota(network: Share(2 * Turn.contendedWeight), windowMs: 1))
        let proxy = configuration.shares.proxy(.v4(9, port: 0))
        configuration.payer = { $0 == .v4(1, port: 0) || $0 == .v4(2, port: 0) ? nil : proxy }
        configuration.origin = { $0.path == greedy ? .v4(1, port: 0) : .v4(2, port: 0) }
    }

    @Test func aPayerAmongOthersGetsLessOfATurnAndPauses() async throws {
        let time = Atomic<UInt64>(1_000)
        let clock: @Sendable () -> UInt64 = { time.load(ordering: .relaxed) }
        try await withServer(clock: clock) {
            beTwoPayers(&$0, greedy: "/held")
        } _: { server, address, handler in
            func passMs(_ ms: UInt64) {
                time.add(ms, ordering: .relaxed)
                server.loop.submit {}
            }
            var many: [RawClient] = []
            for _ in 0..<7 { many.append(try await RawClient(address)) }
            let other = try await RawClient(address)
            var asked = 0
            func bystander() async throws {
                asked += 1
                try await other.write("GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(try await other.answers(asked).count == asked)
            }
            try await bystander()
            try await atOnce(server) { for client in many { try await client.write("GET /held HTTP/1.1\r\nHost: a\r\n\r\n") } }
            for started in [2, 4, 6] {
                try await eventually { handler.heldCount == started }
                // No other payer waits.
                try await bystander()
                #expect(handler.heldCount == started)
                try await eventually { await server.isPausing }
                passMs(Turn.pauseMs)
            }
            try await eventually { handler.heldCount == 7 }
            #expect(await !server.hasWaiting)

            // Alone again, it has its whole share of a turn and no pause.
            handler.release()
            for client in many { #expect(try await client.answers(1) == ["200 get /held "]) }
            passMs(Turn.contentionMs)
            try await atOnce(server) { for client in many { try await client.write("GET /held HTTP/1.1\r\nHost: a\r\n\r\n") } }
            try await eventually { handler.heldCount == 7 }
        }
    }

    @Test func messagesOfSocketsTakeTurnsToo() async throws {
        let time = Atomic<UInt64>(1_000)
        let clock: @Sendable () -> UInt64 = { time.load(ordering: .relaxed) }
        try await withServer(clock: clock) {
            beTwoPayers(&$0, greedy: "/ws")
        } _: { server, address, handler in
            var sockets: [RawWebSocket] = []
            for _ in 0..<5 { sockets.append(try await RawWebSocket(address)) }
            let other = try await RawClient(address, writing: "GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await other.answers(1).count == 1)
            try await atOnce(server) {
                for socket in sockets { try await socket.client.write(RawWebSocket.text("hold")) }
            }
            for started in [2, 4] {
                try await eventually { handler.heldCount == started }
                // The clock must not advance before the pause has begun.
                try await eventually { await server.isPausing }
                time.add(Turn.pauseMs, ordering: .relaxed)
                server.loop.submit {}
            }
            try await eventually { handler.heldCount == 5 }
            #expect(await !server.hasWaiting)
        }
    }

    // Promise: strangers-stop-no-node
    @Test func theOldestHandshakeOfWhoeverHasMostMakesRoom() async throws {
        let network = Atomic<UInt32>(1)
        try await withStreams {
            $0.setQuota(.handshakes, Quota(4, network: Share(2)))
            $0.lingerMs = 60_000
            let shares = $0.shares
            $0.payer = { _ in shares.network(.v4(network.load(ordering: .relaxed), port: 0)) }
        } _: { server, address, _, trust in
            let shares = await server.configuration.shares
            func stranger(_ number: UInt32, writing text: String = "") async throws -> RawClient {
                network.store(number, ordering: .relaxed)
                let before = await server.statistics.accepted
                let client = try await RawClient(address, writing: text)
                try await eventually { await server.statistics.accepted > before }
                return client
            }
            func member() async throws -> StreamClient {
                network.store(9, ordering: .relaxed)
                return try await StreamClient(address, trust)
            }
            // A network's third one is closed. A failed handshake counts until its connection is closed.
            let own = [try await stranger(1), try await stranger(1, writing: "no TLS at all\r\n\r\n"), try await stranger(1)]
            try await own[2].eventually { own[2].hasEnded }
            let others = [try await stranger(2), try await stranger(2)]
            #expect(shares.used(.handshakes) == 4)
            var members: [StreamClient] = []
            for number in 1...3 {
                let client = try await member()
                members.append(client)
                #expect(try await client.answer(client.request("GET", "/a")) == "200 get /a ")
                // The first one made room, and a member's handshake is over.
                #expect(shares.used(.handshakes) == 3)
                #expect(await server.statistics.openConnections == 3 + number)
            }
            try await own[0].eventually { own[0].hasEnded }
            let late = try await stranger(3)
            members.append(try await member())
            // The older one of the first network is its only one.
            try await others[0].eventually { others[0].hasEnded }
            #expect(!own[1].hasEnded)
            withExtendedLifetime((others, late, members)) {}
        }
    }

    @Test func handshakesTakeTurnsToo() async throws {
        try await withStreams {
            $0.setQuota(.requestsInTurn, Quota(network: Share(Turn.handshakeCost), windowMs: 1))
        } _: { server, address, _, trust in
            let before = await server.turnNumber
            var clients: [StreamClient] = []
            for _ in 0..<6 { clients.append(try await StreamClient(address, trust)) }
            for client in clients { #expect(try await client.answer(client.request("GET", "/a")) == "200 get /a ") }
            #expect(await server.turnNumber >= before + 6)
            #expect(await !server.hasWaiting)
        }
    }

    @Test func aWaitingRequestIsDroppedWithItsConnection() async throws {
        try await withServer {
            $0.setQuota(.requestsInTurn, Quota(network: Share(0), windowMs: 1))
        } _: { server, address, handler in
            var client: RawClient? = try await RawClient(address)
            try await client?.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            try await eventually { await server.hasWaiting }
            client?.socket.resetOnClose()
            client = nil
            try await eventually { await server.statistics.openConnections == 0 }
            try await eventually { await !server.hasWaiting }
            #expect(handler.paths.isEmpty)
        }
    }

    @Test func unjoinedSocketsHaveAShare() async throws {
        try await withServer {
            $0.setQuota(.unjoinedSockets, Quota(100, network: Share(2)))
        } _: { server, address, _ in
            let first = try await RawWebSocket(address)
            let second = try await RawWebSocket(address)
            func isRefused() async throws -> Bool {
                let client = try await RawClient(address, writing: RawWebSocket.handshake)
                let answers = try await client.answersUntilEnd()
                return answers.first?.hasPrefix("429 ") == true
            }
            #expect(try await isRefused())
            try await first.send("join")
            #expect(try await first.messages(1) == ["join"])
            let third = try await RawWebSocket(address)
            #expect(try await isRefused())
            second.client.socket.resetOnClose()
            second.client.socket.finishWriting()
            try await eventually { await server.statistics.openWebSockets == 2 }
            let fourth = try await RawWebSocket(address)
            #expect(try await isRefused())
            withExtendedLifetime((first, third, fourth)) {}
        }
    }

    @Test func aTrustedProxyPaysForConnectionsAndItsCallersForRequests() async throws {
        try await withServer {
            $0.setQuota(.connections, Quota(160, network: Share(1)))
            $0.setQuota(.unjoinedSockets, Quota(100, network: Share(1)))
            let shares = $0.shares
            $0.payer = { shares.proxy($0) }
            $0.origin = { SocketAddress(numeric: $0.header("x-forwarded-for") ?? "", port: 0) ?? $0.remote }
        } _: { _, address, _ in
            var answers: [String] = []
            var kept: [RawClient] = []
            for caller in ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3"] {
                let client = try await RawClient(address)
                kept.append(client)
                try await client.write(RawWebSocket.handshake.dropLast(1) + "X-Forwarded-For: \(caller)\r\n\r\n")
                try await client.eventually { client.text.contains("\r\n") }
                answers.append(String(client.text.prefix(12).suffix(3)))
            }
            #expect(answers == ["101", "101", "429", "101"])
        }
    }

    @Test func aRequestBehindATrustedProxyChargesItsCaller() async throws {
        try await withStreams {
            $0.setQuota(.streams, Quota(1_000, connection: Share(64), network: Share(2)))
            let shares = $0.shares
            $0.payer = { $0.port == 0 ? nil : shares.proxy($0) }
            $0.origin = { SocketAddress(numeric: $0.header("x-forwarded-for") ?? "", port: 0) ?? $0.remote }
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            func ask(_ path: String, _ caller: String) throws -> Int32 {
                try client.request("GET", path, [("x-forwarded-for", caller)])
            }
            _ = try (0..<2).map { _ in try ask("/held", "192.0.2.1") }
            try await client.eventually { handler.heldCount == 2 }
            #expect(try await client.answer(ask("/a", "192.0.2.1")).hasPrefix("429 "))
            #expect(try await client.answer(ask("/a", "192.0.2.2")).hasPrefix("200 "))
            handler.release()
            try await client.eventually { await server.configuration.shares.used(.streams) == 0 }
            #expect(try await client.answer(ask("/a", "192.0.2.1")).hasPrefix("200 "))
            #expect(await server.streamBytes == 0)
        }
    }

    private static let large = String(repeating: "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", count: 20)

    @Test func anUnreadResponseStaysCharged() async throws {
        try await withServer { server, address, _ in
            let client = try await RawClient(address, writing: Self.large)
            try await eventually { await server.streamBytes > 0 }
            #expect(try await client.answers(20).count == 20)
            try await eventually { await server.streamBytes == 0 }
        }
    }

    @Test func anUnreadResponseOverTheShareEndsTheConnection() async throws {
        try await withServer {
            $0.setQuota(.streamBytes, Quota(1 << 30, network: Share(1)))
        } _: { server, address, _ in
            let client = try await RawClient(address, writing: Self.large)
            // Before the server has accepted it, no connection is open either.
            try await eventually { await server.statistics.refusals == 1 }
            try await eventually { await server.statistics.openConnections == 0 }
            #expect(await server.streamBytes == 0)
            withExtendedLifetime(client) {}
        }
    }

    @Test func stalledConnectionsKeepTheirOrder() {
        let shares = Shares()
        let (a, b) = (shares.network(.v4(1, port: 0)), shares.network(.v4(2, port: 0)))
        var stalled = StalledConnections()
        for (slot, payer) in [(4, a), (2, b), (7, a), (0, a)] as [(Int32, Owner)] {
            stalled.add(slot, payer, nowMs: UInt64(10 - slot))
            stalled.add(slot, payer, nowMs: 99)
        }
        #expect(stalled.longest(of: a) == 4 && stalled.longest(of: b) == 2 && stalled.longest() == 4)
        stalled.remove(7)
        stalled.remove(7)
        stalled.remove(4)
        #expect(stalled.longest(of: a) == 0 && stalled.longest() == 2)
        stalled.remove(0)
        #expect(stalled.longest(of: a) == nil)
        stalled.remove(2)
        #expect(stalled.isEmpty && stalled.longest() == nil)
    }

    @Test func aDominantNetworkIsFoundInTheSecondWindow() {
        let shares = Shares()
        let (one, proxy) = (shares.network(.v4(1, port: 0)), shares.proxy(.v4(2, port: 0)))
        func windows(_ share: Int, _ payer: Owner, _ count: Int = 2_000) -> [Bool] {
            var dominance = Dominance()
            return (0..<3).map { _ in
                for number in 0..<count {
                    dominance.add(number % 100 < share ? payer : shares.network(.v4(UInt32(100 + number), port: 0)))
                }
                return dominance.endWindow()
            }
        }
        #expect(windows(60, one) == [false, true, true])
        #expect(windows(40, one) == [false, false, false])
        #expect(windows(60, proxy) == [false, false, false])
        #expect(windows(60, one, 900) == [false, false, false])
    }
}

extension HTTPServer {
    fileprivate var turnNumber: UInt64 { turn.number }
    fileprivate var isPausing: Bool { !turn.paused.isEmpty }
    fileprivate var hasWaiting: Bool { !turn.waiting.isEmpty }
}

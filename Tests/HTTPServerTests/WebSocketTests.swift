import Linux
import Testing
import WebSocket

@testable import HTTPServer

/// A WebSocket client over raw bytes.
final class RawWebSocket {
    let client: RawClient
    let machine = WebSocketMachine(role: .client)
    private var consumed = 0

    static let handshake =
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
        + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

    init(_ address: SocketAddress, alongWith bytes: [UInt8] = []) async throws {
        client = try await RawClient(address)
        try await client.write(Array(Self.handshake.utf8) + bytes)
        try await client.eventually { client.text.contains("\r\n\r\n") }
        #expect(client.text.hasPrefix("HTTP/1.1 101 "))
        // The example of RFC 6455, section 1.3.
        #expect(client.text.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"))
        let bytes = client.received
        consumed = bytes.indices.first { bytes[$0...].starts(with: [0x0D, 0x0A, 0x0D, 0x0A]) }! + 4
    }

    static func text(_ text: String) -> [UInt8] {
        let machine = WebSocketMachine(role: .client)
        machine.send(text.utf8.span)
        var bytes: [UInt8] = []
        machine.takeOutput(into: &bytes)
        return bytes
    }

    func send(_ text: String) async throws {
        machine.send(text.utf8.span)
        try await flush()
    }

    func flush() async throws {
        var bytes: [UInt8] = []
        machine.takeOutput(into: &bytes)
        if !bytes.isEmpty { try await client.write(bytes) }
    }

    /// - Parameter answering: pings and close frames are answered.
    func read(answering: Bool = true) async throws {
        client.read()
        let bytes = client.received
        machine.receive(bytes.span.extracting(droppingFirst: consumed), nowMs: 0)
        consumed = bytes.count
        if answering, !client.hasEnded { try await flush() }
    }

    func messages(_ count: Int) async throws -> [String] {
        var found: [String] = []
        try await eventually {
            try await read()
            while let message = machine.nextMessage() { found.append(message.withText { String(wire: $0) }) }
            return found.count >= count
        }
        return found
    }

    /// Waits until the server has closed the connection.
    func closeCode() async throws -> UInt16 {
        try await eventually {
            try? await read()
            return client.hasEnded
        }
        return machine.peerCloseCode.rawValue
    }
}

@Suite struct WebSocketTests {
    @Test func messagesArriveInOrder() async throws {
        try await withServer { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("one")
            #expect(try await socket.messages(1) == ["one"])
            for number in 0..<200 { try await socket.send("\(number)") }
            #expect(try await socket.messages(200) == (0..<200).map { "\($0)" })
            #expect(await server.statistics.openWebSockets == 1)
            socket.machine.close(.normal)
            try await socket.flush()
            #expect(try await socket.closeCode() == 1000)
            try await eventually { handler.log.last == "closed 1000" }
            #expect(handler.log.first == "opened /ws")
            #expect(handler.log.count == 203)
            #expect(await server.statistics.openWebSockets == 0)
        }
    }

    @Test func messagesMayFollowTheHandshakeAtOnce() async throws {
        try await withServer { _, address, handler in
            let socket = try await RawWebSocket(address, alongWith: RawWebSocket.text("early"))
            #expect(try await socket.messages(1) == ["early"])
            #expect(handler.log.prefix(2) == ["opened /ws", "received early"])
        }
    }

    @Test func theNextMessageWaitsForTheHandler() async throws {
        try await withServer { server, address, handler in
            let socket = try await RawWebSocket(address)
            for text in ["hold", "a", "b"] { try await socket.send(text) }
            try await eventually { handler.heldCount == 1 }
            // A flood while the handler is busy stays with its sender.
            var frames: [UInt8] = []
            let one = RawWebSocket.text(String(repeating: "x", count: 1000))
            for _ in 0..<5000 { frames += one }
            var sent = 0
            for _ in 0..<200 {
                sent += try socket.client.socket.write(frames.span.extracting(droppingFirst: sent)) ?? 0
                try await Task.sleep(for: .milliseconds(1))
            }
            #expect(handler.log == ["opened /ws", "received hold"])
            handler.release()
            try await eventually { handler.log.count >= 10 }
            #expect(handler.log[2...3] == ["received a", "received b"])
            withExtendedLifetime(server) {}
        }
    }

    @Test func theHandlerGetsMessagesSentBeforeTheEnd() async throws {
        try await withServer { _, address, handler in
            do {
                let socket = try await RawWebSocket(address)
                for text in ["hold", "last"] { try await socket.send(text) }
                try await eventually { handler.heldCount == 1 }
            }
            handler.release()
            try await eventually { handler.log.last == "closed 1006" }
            #expect(handler.log == ["opened /ws", "received hold", "received last", "closed 1006"])
        }
    }

    /// A phone may be suspended after its close frame, before its connection ends.
    @Test func theHandlerHearsOfTheCloseFrameAtOnce() async throws {
        try await withServer {
            // The connection stays open until this client ends it, however slow the machine is.
            $0.lingerMs = 600_000
        } _: { server, address, handler in
            let socket = try await RawWebSocket(address)
            socket.machine.close(.goingAway)
            try await socket.flush()
            try await eventually { handler.log.last == "closed 1001" }
            #expect(await server.statistics.openWebSockets == 1, "the connection is still open")
            socket.client.socket.finishWriting()
            try await eventually { await server.statistics.openWebSockets == 0 }
            #expect(handler.log == ["opened /ws", "closed 1001"])
        }
    }

    @Test func theServerCloses() async throws {
        try await withServer { _, address, handler in
            let socket = try await RawWebSocket(address)
            for text in ["close", "late"] { try await socket.send(text) }
            #expect(try await socket.closeCode() == 1000)
            try await eventually { handler.log == ["opened /ws", "received close", "closed 1000"] }
        }
    }

    @Test(
        arguments: [
            ([0x82, 0x81, 0, 0, 0, 0, 1], 1003), ([0x81, 0x81, 0, 0, 0, 0, 0xFF], 1007), ([0x81, 0x01, 0x61], 1002),
            ([0x81, 0xFE, 0x40, 0x01, 0, 0, 0, 0, 0x61], 1009),
            ((0..<101).flatMap { _ in [0x8A, 0x80, 0, 0, 0, 0] as [UInt8] }, 1008),
        ] as [([UInt8], UInt16)])
    func badFramesEndTheSocket(_ frame: [UInt8], _ code: UInt16) async throws {
        try await withServer { _, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.client.write(frame)
            #expect(try await socket.closeCode() == code)
            try await eventually { handler.log == ["opened /ws", "closed 1006"] }
        }
    }

    @Test func aSilentSocketIsClosed() async throws {
        try await withServer {
            $0.firstMessageMs = 50
        } _: { _, address, _ in
            let socket = try await RawWebSocket(address)
            #expect(try await socket.closeCode() == 1008)
        }
    }

    @Test func aSocketThatAnswersPingsStays() async throws {
        try await withServer {
            $0.pingMs = 20
        } _: { server, address, _ in
            let socket = try await RawWebSocket(address)
            try await socket.send("x")
            try await eventually {
                try await socket.read()
                return socket.client.received.filter { $0 == 0x89 }.count >= 3
            }
            #expect(await server.statistics.openWebSockets == 1)
        }
    }

    @Test func theHandlerGetsTheAnswerToItsPing() async throws {
        try await withServer { _, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("ping")
            try await eventually {
                try await socket.read()
                return handler.log.contains("ponged 7")
            }
        }
    }

    /// Repeated pings of a handler do not keep a silent socket open.
    @Test func aHandlersPingsDoNotMoveTheServersOwn() async throws {
        try await withServer {
            $0.pingMs = 200
            $0.pongMs = 50
        } _: { server, address, handler in
            let socket = try await RawWebSocket(address)
            let start = Clock.monotonicMs
            while !handler.log.contains("closed 1006"), Clock.monotonicMs < start + 20_000 {
                try? await socket.send("ping")
                try await Task.sleep(for: .milliseconds(5))
            }
            #expect(handler.log.last == "closed 1006")
            #expect(await server.statistics.openWebSockets == 0)
            withExtendedLifetime(socket) {}
        }
    }

    @Test func aSocketThatDoesNotAnswerPingsIsClosed() async throws {
        try await withServer {
            $0.pingMs = 20
            $0.pongMs = 50
        } _: { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("x")
            try await eventually { handler.log.last == "closed 1006" }
            #expect(await server.statistics.openWebSockets == 0)
            withExtendedLifetime(socket) {}
        }
    }

    @Test func aPeerThatDoesNotCloseIsClosed() async throws {
        try await withServer {
            $0.closeMs = 50
        } _: { server, address, _ in
            let socket = try await RawWebSocket(address)
            try await socket.send("close")
            try await eventually { await server.statistics.openConnections == 0 }
            withExtendedLifetime(socket) {}
        }
    }

    @Test func aWebSocketPeerThatDoesNotReadIsClosed() async throws {
        try await withServer { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("flood")
            try await eventually { handler.log.contains("dropped") }
            try await eventually { await server.statistics.openConnections == 0 }
            withExtendedLifetime(socket) {}
        }
    }

    @Test func drainClosesWithGoingAway() async throws {
        try await withServer { server, address, handler in
            let socket = try await RawWebSocket(address)
            try await socket.send("x")
            #expect(try await socket.messages(1) == ["x"])
            async let drain: Void = server.drain(deadlineMs: 60_000)
            #expect(try await socket.closeCode() == 1001)
            await drain
            #expect(handler.log.last == "closed 1001")
        }
    }

    /// RFC 9110 section 5.3: lines of one name are one list.
    @Test(arguments: [
        "Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: websocket",
        "Connection: Upgrade\r\nConnection: keep-alive\r\nUpgrade: websocket",
        "Connection: keep-alive\r\nX: y\r\nConnection: , upgrade,\r\nUpgrade: h2c\r\nUpgrade: WebSocket",
        "Connection: Upgrade\r\nUpgrade: foo, websocket\r\nSec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n"
            + "Sec-WebSocket-Extensions: c\r\nSec-WebSocket-Extensions: permessage-deflate",
    ])
    func listsMayHaveSeveralLines(_ lines: String) async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            try await client.write(
                "GET /ws HTTP/1.1\r\nHost: a\r\n\(lines)\r\nSec-WebSocket-Version: 13\r\n"
                    + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            try await client.eventually { client.text.contains("\r\n\r\n") }
            #expect(client.text.hasPrefix("HTTP/1.1 101 "))
        }
    }

    /// Requests with a wrong method, version or body, with a line twice, or without an upgrade.
    @Test(arguments: [
        ("POST", "1.1", "Upgrade", "", "400"),
        ("GET", "1.0", "Upgrade", "", "400"),
        ("GET", "1.1", "Upgrade", "Content-Length: 5\r\n\r\n12345", "400"),
        ("GET", "1.1", "Upgrade", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", "400"),
        ("GET", "1.1", "Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "400"),
        ("GET", "1.1", "Upgrade", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", "400"),
        ("GET", "1.1", "Upgrade", "Sec-WebSocket-Version: 13\r\n\r\n", "400"),
        ("GET", "1.1", "Upgrade", "Sec-WebSocket-Version: 8\r\n\r\n", "400"),
        ("GET", "1.1", "Upgrade", "Origin: https://a\r\nOrigin: https://b\r\n\r\n", "400"),
        ("GET", "1.1", "keep-alive", "", "200"),
    ])
    func invalidHandshakesAreRefused(
        _ method: String, _ version: String, _ connection: String, _ more: String, _ status: String
    ) async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            try await client.write(
                "\(method) /ws HTTP/\(version)\r\nHost: a\r\nConnection: \(connection)\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                    + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + (more.isEmpty ? "\r\n" : more))
            #expect(try await client.answers(1).first?.prefix(3) == status[...])
        }
    }

    @Test(arguments: [
        ("/other", "websocket", "13", "dGhlIHNhbXBsZSBub25jZQ==", "200"),
        ("/ws", "h2c", "13", "dGhlIHNhbXBsZSBub25jZQ==", "400"),
        ("/ws", "websocket", "8", "dGhlIHNhbXBsZSBub25jZQ==", "426"),
        ("/ws", "websocket", "13, 8", "dGhlIHNhbXBsZSBub25jZQ==", "426"),
        ("/ws", "websocket", "13", "short", "400"),
        ("/ws", "websocket", "13", "dGhlIHNhbXBsZSBub25jZ!==", "400"),
        ("/ws", "websocket", "13", "", "400"),
    ])
    func badHandshakesAreAnswered(
        _ path: String, _ upgrade: String, _ version: String, _ key: String, _ status: String
    ) async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            try await client.write(
                "GET \(path) HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: \(upgrade)\r\nSec-WebSocket-Version: \(version)\r\n"
                    + "Sec-WebSocket-Key: \(key)\r\n\r\n")
            #expect(try await client.answers(1).first?.prefix(3) == status[...])
            #expect(status != "426" || client.text.contains("Sec-WebSocket-Version: 13\r\n"))
        }
    }
}

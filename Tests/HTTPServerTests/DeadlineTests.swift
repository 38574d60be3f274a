import Linux
import Testing

@testable import HTTPServer

@Suite struct DeadlineTests {
    @Test func deadlinesExpireInOrderAndOnce() {
        var deadlines = Deadlines { $0 == .idle ? 100 : 10 }
        deadlines.set(3, .idle, nowMs: 1000)
        deadlines.set(1, .idle, nowMs: 1010)
        deadlines.set(7, .idle, nowMs: 1020)
        deadlines.set(2, .body, nowMs: 1000)
        #expect(deadlines.nextDue(.idle) == 1100)
        #expect(deadlines.nextDue(.body) == 1010)
        #expect(deadlines.nextDue(.header) == nil)
        deadlines.clear(1)
        deadlines.clear(1)
        deadlines.clear(99)
        #expect(deadlines.takeExpired(.idle, nowMs: 1099) == nil)
        #expect(deadlines.takeExpired(.idle, nowMs: 1120) == 3)
        #expect(deadlines.takeExpired(.idle, nowMs: 1120) == 7)
        #expect(deadlines.takeExpired(.idle, nowMs: 9999) == nil)
        #expect(deadlines.kind(2) == .body)
        #expect(deadlines.kind(7) == nil)
    }

    @Test func settingAgainMovesToTheEnd() {
        var deadlines = Deadlines { _ in 10 }
        for slot in 0..<4 { deadlines.set(slot, .idle, nowMs: UInt64(slot)) }
        deadlines.set(1, .idle, nowMs: 50)
        deadlines.set(0, .write, nowMs: 50)
        deadlines.set(3, .idle, nowMs: 51)
        var order: [Int] = []
        while let slot = deadlines.takeExpired(.idle, nowMs: 100) { order.append(slot) }
        #expect(order == [2, 1, 3])
        #expect(deadlines.takeExpired(.write, nowMs: 60) == 0)
        deadlines.set(2, .idle, nowMs: 0)
        #expect(deadlines.nextDue(.idle) == 10)
    }

    /// Compares with a list that is searched linearly.
    @Test func randomUseMatchesASimpleModel() {
        var deadlines = Deadlines { UInt64($0.rawValue * 10 + 5) }
        var model: [(slot: Int, kind: Deadlines.Kind, due: UInt64)] = []
        for step in 0..<5000 {
            let slot = Int.random(in: 0..<20)
            let kind = Deadlines.Kind.allCases.randomElement()!
            let now = UInt64(step)
            switch Int.random(in: 0..<4) {
            case 0, 1:
                deadlines.set(slot, kind, nowMs: now)
                model.removeAll { $0.slot == slot }
                model.append((slot, kind, now + UInt64(kind.rawValue * 10 + 5)))
            case 2:
                deadlines.clear(slot)
                model.removeAll { $0.slot == slot }
            default:
                let expected = model.first { $0.kind == kind && $0.due <= now }?.slot
                #expect(deadlines.takeExpired(kind, nowMs: now) == expected)
                model.removeAll { $0.slot == expected }
            }
            #expect(deadlines.nextDue(kind) == model.first { $0.kind == kind }?.due)
        }
    }

    /// The responses, if any, that a slow peer gets in each phase before it is closed.
    @Test(arguments: [
        ("", ""),
        ("GET / HTT", "408"),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "408"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel", "408"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "408"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", "200 408"),
    ])
    func slowPeersAreClosed(_ text: String, _ statuses: String) async throws {
        try await withServer {
            $0.headerMs = 50
            $0.bodyMs = 50
            $0.idleMs = 50
        } _: { server, address, _ in
            let start = Clock.monotonicMs
            let client = try await atOnce(server) {
                let client = try await RawClient(address)
                if !text.isEmpty { try await client.write(text) }
                return client
            }
            let answers = try await client.answersUntilEnd()
            #expect(answers.map { $0.prefix(3) }.joined(separator: " ") == statuses)
            #expect(Clock.monotonicMs - start >= 45)
            #expect(await server.statistics.refusals == (statuses.hasSuffix("408") ? 1 : 0))
        }
    }

    @Test func slowBytesDoNotMoveTheDeadline() async throws {
        try await withServer {
            $0.headerMs = 100
        } _: { _, address, _ in
            let client = try await RawClient(address, writing: "GET / HTTP/1.1\r\nHost: a\r\nX: ")
            let start = Clock.monotonicMs
            while !client.hasEnded, Clock.monotonicMs < start + 60_000 {
                _ = try? client.socket.write([0x78].span)
                try await Task.sleep(for: .milliseconds(5))
                client.read()
            }
            #expect(client.text.hasPrefix("HTTP/1.1 408 "))
        }
    }

    @Test func aPeerThatDoesNotReadIsClosed() async throws {
        try await withServer {
            $0.writeMs = 50
        } _: { server, address, _ in
            let client = try await RawClient(address, writing: "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET")
            try await eventually { await server.statistics.requests == 1 }
            try await eventually { await server.statistics.openConnections == 0 }
            withExtendedLifetime(client) {}
        }
    }

    @Test func aPeerThatSendsAndDoesNotReadIsClosed() async throws {
        try await withServer {
            $0.writeMs = 50
            $0.idleMs = 3_600_000
        } _: { server, address, _ in
            let client = try await RawClient(address)
            let requests = Array(String(repeating: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", count: 200_000).utf8)
            var offset = 0
            try await eventually {
                let written = try? client.socket.write(requests.span.extracting(droppingFirst: offset))
                offset += written ?? 0
                let statistics = await server.statistics
                return statistics.accepted == 1 && statistics.openConnections == 0
            }
            #expect(offset < requests.count)
            withExtendedLifetime(client) {}
        }
    }

    @Test func aPeerThatNeverClosesIsClosed() async throws {
        try await withServer {
            $0.lingerMs = 50
        } _: { server, address, _ in
            let client = try await RawClient(address)
            client.closesInTurn = false
            try await client.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            #expect(try await client.answersUntilEnd() == ["200 get /  close"])
            try await eventually { await server.statistics.openConnections == 0 }
            withExtendedLifetime(client) {}
        }
    }

    @Test func aHandlerMayTakeLongerThanAnyDeadline() async throws {
        try await withServer {
            $0.headerMs = 100
            $0.bodyMs = 100
        } _: { _, address, handler in
            let client = try await RawClient(address, writing: "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            try await eventually { handler.heldCount == 1 }
            try await Task.sleep(for: .milliseconds(200))
            handler.release()
            #expect(try await client.answers(1) == ["200 get /held "])
        }
    }
}

import Linux
import Testing

@testable import HTTPServer

@Suite struct DrainTests {
    @Test func drainAnswersPendingRequestsAndClosesTheRest() async throws {
        try await withServer { server, address, handler in
            let idle = try await RawClient(address, writing: "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await idle.answers(1) == ["200 get / "])
            let busy = try await RawClient(address, writing: "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            let partial = try await RawClient(address, writing: "GET /p HTTP/1.1\r\n")
            try await eventually { await server.statistics.openConnections == 3 && handler.heldCount == 1 }

            async let drain: Void = server.drain(deadlineMs: 60_000)
            #expect(try await idle.answersUntilEnd() == ["200 get / "])
            let late = try await RawClient(address)
            #expect(try await late.answersUntilEnd() == [])
            handler.release()
            #expect(try await busy.answersUntilEnd() == ["200 get /held  close"])
            try await partial.write("Host: a\r\n\r\n")
            #expect(try await partial.answersUntilEnd() == ["200 get /p  close"])
            await drain
            #expect(await server.statistics.openConnections == 0)
        }
    }

    @Test func drainAnswersAllPipelinedRequests() async throws {
        try await withServer { server, address, handler in
            let client = try await RawClient(address)
            try await client.write(
                "GET /held HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
            try await eventually { handler.heldCount == 1 }
            async let drain: Void = server.drain(deadlineMs: 60_000)
            try await eventually { await server.isDraining }
            // Sent while the server drains, before it has announced that.
            try await client.write("GET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
            handler.release()
            #expect(try await client.answersUntilEnd() == ["200 get /held ", "200 get /2 ", "200 get /3 ", "200 get /4  close"])
            await drain
        }
    }

    @Test func drainAnswersARequestOnAnIdleConnection() async throws {
        try await withServer {
            $0.drainIdleMs = 500
        } _: { server, address, _ in
            let used = try await RawClient(address, writing: "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await used.answers(1) == ["200 get /1 "])
            let unused = try await RawClient(address)
            try await eventually { await server.statistics.openConnections == 2 }
            async let drain: Void = server.drain(deadlineMs: 60_000)
            try await eventually { await server.isDraining }
            try await used.write("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await used.answersUntilEnd() == ["200 get /1 ", "200 get /2  close"])
            #expect(try await unused.answersUntilEnd() == [])
            await drain
        }
    }

    @Test func aSilentWebSocketDoesNotDelayTheDrain() async throws {
        try await withServer {
            $0.drainIdleMs = 50
        } _: { server, address, handler in
            let mute = try await RawClient(address)
            mute.closesInTurn = false
            try await mute.write(
                "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    + "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
            try await eventually { await server.statistics.openWebSockets == 1 }
            let start = Clock.monotonicMs
            await server.drain(deadlineMs: 60_000)
            #expect(Clock.monotonicMs - start < 30_000)
            mute.read()
            // The close frame, 1001.
            #expect(mute.received.suffix(4) == [0x88, 2, 0x03, 0xE9])
            try await eventually { handler.log.last == "closed 1006" }
        }
    }

    @Test func drainEndsAtItsDeadline() async throws {
        try await withServer { server, address, handler in
            let client = try await RawClient(address, writing: "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            try await eventually { handler.heldCount == 1 }
            let start = Clock.monotonicMs
            await server.drain(deadlineMs: 50)
            #expect(Clock.monotonicMs - start >= 50)
            #expect(await server.statistics.openConnections == 0)
            #expect(try await client.answersUntilEnd() == [])
        }
    }

    @Test func aServerWithoutConnectionsDrainsAtOnce() async throws {
        try await withServer { server, _, _ in
            await server.drain(deadlineMs: 60_000)
            await server.drain(deadlineMs: 60_000)
        }
    }
}

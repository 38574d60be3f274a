import HTTP2
import Linux
import Shares
import TLS
import Testing

@testable import HTTPServer

/// HTTP/2 of the public listener, as seen by handlers and peers.
@Suite struct StreamTests {
    func withStreams(
        _ configure: (inout ServerConfiguration) -> Void = { _ in },
        _ use: (HTTPServer, SocketAddress, EchoHandler, TLSContext) async throws -> Void
    ) async throws {
        let pair = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1)
        let context = try TLSContext.server(
            certificateChain: pair.certificate, privateKey: pair.privateKey.span, alpn: ["h2", "http/1.1"])
        let trust = try TLSContext.client(trust: .authorities(pair.certificate), alpn: ["h2"])
        try await withServer {
            $0.tls = context
            // Responses of /large exceed a connection's share.
            $0.setQuota(.streamBytes, Quota(128 << 20))
            configure(&$0)
        } _: { server, address, handler in
            try await use(server, address, handler, trust)
        }
    }

    @Test func requestsAreAnsweredConcurrently() async throws {
        try await withStreams { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            #expect(client.tls.negotiatedProtocol == "h2")
            let held = try client.request("GET", "/held")
            let get = try client.request("GET", "/a?b=c")
            #expect(try await client.answer(get) == "200 get /a?b=c ")
            let post = try client.request("POST", "/p", body: Array("hello".utf8))
            #expect(try await client.answer(post) == "200 post /p hello")
            let full = try client.request("PUT", "/f", body: Array(repeating: 0x61, count: 16_384))
            #expect(try await client.answer(full).utf8.count == 4 + 7 + 16_384)
            let large = try client.request("GET", "/large")
            #expect(try await client.answer(large).utf8.count == 4 + 4_000_000)
            #expect(!client.events.contains { $0.ends(held) })
            handler.release()
            #expect(try await client.answer(held) == "200 get /held ")
            #expect(await server.statistics.requests == 5)
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func responsesHaveTheirHeaderFields() async throws {
        try await withStreams { _, address, _, trust in
            let client = try await StreamClient(address, trust)
            func headers(_ method: String, _ path: String) async throws -> HTTP2Headers {
                let stream = try client.request(method, path)
                _ = try await client.answer(stream)
                return try await client.until { events in
                    events.compactMap { if case .headers(stream, let headers) = $0 { headers } else { nil } }.first
                }
            }
            let get = try await headers("GET", "/x")
            #expect(get.status == 200)
            #expect(get["content-length"] == "7")
            #expect(get["content-type"] == "text/plain; charset=utf-8")
            #expect(try #require(get["date"]).hasSuffix(" GMT"))
            let head = try await headers("HEAD", "/x")
            #expect(head["content-length"] == "8")
            #expect(client.answerSoFar(3) == "200 ")
            let none = try await headers("GET", "/none")
            #expect((none.status, none["content-length"]) == (204, nil))
        }
    }

    @Test(arguments: [
        ("/a", [("authorization", "Bearer a"), ("authorization", "Bearer b")], 0, 400),
        ("/a", [("origin", "https://a"), ("origin", "https://a")], 0, 400),
        ("/a", [("origin", "https://a")], 0, 200),
        ("/a", [("host", "b")], 0, 400),
        ("/a", [("host", "A")], 0, 200),
        ("/a#b", [], 0, 400),
        ("/" + String(repeating: "a", count: 8192), [], 0, 414),
        ("/" + String(repeating: "a", count: 8191), [], 0, 200),
        ("/a", [("x", String(repeating: "a", count: 16_380))], 0, 431),
        ("/a", [("x", String(repeating: "a", count: 16_379))], 0, 200),
        ("/a", Array(repeating: ("x", "y"), count: 101), 0, 431),
        ("/a", Array(repeating: ("x", "y"), count: 100), 0, 200),
        ("/a", [("expect", "a-miracle")], 0, 417),
        ("/a", [("content-encoding", "gzip")], 5, 415),
        ("/a", [], 16_385, 413),
        ("/a", [], 200_000, 413),
    ])
    func badRequestsAreAnswered(_ path: String, _ more: [(String, String)], _ body: Int, _ status: Int) async throws {
        try await withStreams { server, address, _, trust in
            let client = try await StreamClient(address, trust)
            let bad = try client.request("POST", path, more, body: [UInt8](repeating: 0x61, count: body))
            #expect(try await client.answer(bad).hasPrefix("\(status) "))
            // The connection stays open.
            #expect(try await client.answer(try client.request("GET", "/next")) == "200 get /next ")
            #expect(await server.statistics.refusals == (status == 200 ? 0 : 1))
            #expect(await server.streamBytes == 0)
        }
    }

    /// nghttp2 resets malformed messages by itself (RFC 9113 section 8.1.1).
    @Test(arguments: [("/a b", []), ("a", []), ("/a", [("connection", "close")]), ("/a", [("X", "y")]), ("/a", [("te", "gzip")])])
    func malformedMessagesAreReset(_ path: String, _ more: [(String, String)]) async throws {
        try await withStreams { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            let block = more.reduce(Frames.request(path: path)) { $0 + Frames.literal($1.0, $1.1) }
            try client.write(Frames.preface + Frames.frame(type: 1, flags: 5, stream: 1, block))
            // RST_STREAM with PROTOCOL_ERROR.
            try await client.eventually { client.frames.contains(sequence: [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1]) }
            #expect(await server.statistics.requests == 0)
        }
    }

    @Test func continueIsSentOnRequest() async throws {
        try await withStreams { _, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            let block =
                Frames.request(path: "/c") + Frames.literal("expect", "100-continue")
            try client.write(Frames.preface + Frames.frame(type: 1, flags: 4, stream: 1, block))
            // A literal `:status: 100` whose name is HPACK's entry 8.
            try await eventually {
                try client.turn()
                return client.frames.contains(sequence: [0x08, 0x03] + Array("100".utf8))
                    || client.frames.contains(sequence: [0x48, 0x03] + Array("100".utf8))
                    || client.frames.contains(sequence: [0x48, 0x82, 0x08, 0x01])
            }
        }
    }

    @Test func anIncompleteRequestTimesOut() async throws {
        try await withStreams {
            $0.bodyMs = 50
            $0.streamCheckMs = 10
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(Frames.preface + Frames.frame(type: 1, flags: 4, stream: 1, Frames.request(path: "/slow")))
            try client.write(Frames.frame(type: 0, flags: 0, stream: 1, [1, 2, 3]))
            try await client.eventually { client.frames.contains(sequence: Array("request_timeout".utf8)) }
            #expect(await server.statistics.refusals == 1)
            #expect(await server.streamBytes == 0)
            #expect(await server.statistics.openConnections == 1)
        }
    }

    @Test func anIncompleteHeaderBlockEndsTheConnection() async throws {
        try await withStreams {
            $0.headerMs = 50
            $0.streamCheckMs = 10
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(Frames.preface + Frames.frame(type: 1, flags: 1, stream: 1, Frames.request(path: "/slow")))
            try await client.untilEnd()
            try await eventually { await server.statistics.openConnections == 0 }
        }
    }

    @Test(arguments: ["", "PRI * HTTP/2.0\r\n"])
    func aMissingPrefaceEndsTheConnection(_ bytes: String) async throws {
        try await withStreams {
            $0.headerMs = 50
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(Array(bytes.utf8))
            try await client.untilEnd()
            try await eventually { await server.statistics.openConnections == 0 }
        }
    }

    @Test func pingsDoNotKeepAnIdleConnectionOpen() async throws {
        try await withStreams {
            $0.idleMs = 300
        } _: { _, address, _, trust in
            let client = try await StreamClient(address, trust)
            #expect(try await client.answer(try client.request("GET", "/")) == "200 get / ")
            var pings: UInt64 = 0
            try await eventually {
                pings += 1
                try? client.session?.submitPing(pings)
                try client.turn()
                return client.hasEnded
            }
            #expect(client.events.contains { $0.goAwayCode == .noError })
            #expect(client.events.contains { if case .pingAcknowledged = $0 { true } else { false } })
        }
    }

    @Test func anUnreadResponseTimesOut() async throws {
        try await withStreams {
            $0.writeMs = 50
            $0.streamCheckMs = 10
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            // A window of zero blocks the response's body.
            let noWindow = Frames.frame(type: 4, flags: 0, stream: 0, [0, 4, 0, 0, 0, 0])
            try client.write(
                Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + noWindow
                    + Frames.frame(type: 1, flags: 5, stream: 1, Frames.request(path: "/large")))
            // RST_STREAM with CANCEL.
            try await client.eventually { client.frames.contains(sequence: [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]) }
            #expect(await server.statistics.openConnections == 1)
        }
    }

    @Test func aPeerThatDoesNotReadIsClosed() async throws {
        try await withStreams {
            $0.writeMs = 50
            $0.setQuota(.streamBytes, Quota(400 << 20))
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            client.isNotReading = true
            // Windows larger than the kernel's buffers, so that the socket itself blocks.
            let settings = Frames.frame(type: 4, flags: 0, stream: 0, [0, 4, 0x7F, 0xFF, 0xFF, 0xFF])
            let window = Frames.frame(type: 8, flags: 0, stream: 0, [0x7F, 0, 0, 0])
            var bytes = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + settings + window
            for stream in 0..<30 as Range<UInt8> {
                bytes += Frames.frame(type: 1, flags: 5, stream: 2 * stream + 1, Frames.request(path: "/large"))
            }
            try client.write(bytes)
            try await eventually { await server.statistics.requests > 0 }
            try await eventually { await server.statistics.openConnections == 0 }
            withExtendedLifetime(client) {}
        }
    }

    @Test func aHalfClosedPeerIsAnsweredAndClosed() async throws {
        try await withStreams { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let held = try client.request("GET", "/held")
            try await client.eventually { handler.heldCount == 1 }
            try client.closeTLS()
            handler.release()
            #expect(try await client.answer(held) == "200 get /held ")
            client.socket.finishWriting()
            try await eventually { await server.statistics.openConnections == 0 }
        }
    }

    @Test func excessConnectionsAreAnswered() async throws {
        try await withStreams {
            $0.setQuota(.connections, Quota(1))
        } _: { _, address, _, trust in
            let first = try await StreamClient(address, trust)
            #expect(try await first.answer(try first.request("GET", "/")) == "200 get / ")
            let second = try await StreamClient(address, trust)
            #expect(try await second.answer(try second.request("GET", "/")).hasPrefix("503 "))
            #expect(try await second.until { $0.lazy.compactMap(\.goAwayCode).first } == .noError)
            try await second.untilEnd()
        }
    }

    @Test func memoryOfStreamsIsBounded() async throws {
        try await withStreams {
            $0.setQuota(.streamBytes, Quota(20_000))
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let held = try client.request("POST", "/held", body: [UInt8](repeating: 0x61, count: 10_000))
            try await client.eventually { handler.heldCount == 1 }
            let second = try client.request("POST", "/b", body: [UInt8](repeating: 0x61, count: 10_000))
            #expect(try await client.answer(second).hasPrefix("503 "))
            handler.release()
            #expect(try await client.answer(held).hasPrefix("200 "))
            let third = try client.request("POST", "/c", body: [UInt8](repeating: 0x61, count: 10_000))
            #expect(try await client.answer(third).hasPrefix("200 "))
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func unreadResponsesAreBounded() async throws {
        try await withStreams {
            $0.setQuota(.streamBytes, Quota(10_000_000))
            $0.writeMs = 500
            $0.streamCheckMs = 50
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            let noWindow = Frames.frame(type: 4, flags: 0, stream: 0, [0, 4, 0, 0, 0, 0])
            var bytes = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + noWindow
            for stream in [1, 3, 5] as [UInt8] {
                bytes += Frames.frame(type: 1, flags: 5, stream: stream, Frames.request(path: "/large"))
            }
            try client.write(bytes)
            try await client.eventually { await server.statistics.refusals == 1 }
            #expect(await server.streamBytes < 10_000_000)
            client.socket.finishWriting()
            try await eventually { await server.statistics.openConnections == 0 }
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func aTruncatedRequestChargesNothing() async throws {
        try await withStreams { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(
                Frames.preface + Frames.frame(type: 1, flags: 4, stream: 1, Frames.request(path: "/cut"))
                    + Frames.frame(type: 0, flags: 0, stream: 1, [1, 2, 3]))
            try await eventually { await server.streamBytes > 0 }
            client.socket.resetOnClose()
            client.socket.finishWriting()
            try await eventually { await server.statistics.openConnections == 0 }
            #expect(await server.streamBytes == 0)
        }
    }

    @Test func aResetStreamIsRemoved() async throws {
        try await withStreams { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let held = try client.request("POST", "/held", body: [UInt8](repeating: 0x61, count: 100))
            try await client.eventually { handler.heldCount == 1 }
            try client.session?.reset(stream: held, .cancel)
            #expect(try await client.answer(try client.request("GET", "/next")) == "200 get /next ")
            handler.release()
            try await eventually { await server.streamBytes == 0 }
            #expect(client.answerSoFar(held) == "")
        }
    }

    @Test func aDrainAnswersRequestsOnTheirWay() async throws {
        try await withStreams {
            $0.drainIdleMs = 60_000
        } _: { server, address, handler, trust in
            let client = try await StreamClient(address, trust)
            let held = try client.request("GET", "/held")
            try await client.eventually { handler.heldCount == 1 }
            client.isNotReading = true
            async let drain: Void = server.drain(deadlineMs: 60_000)
            try await eventually { await server.isDraining }
            // Sent before the client has read the server's notice.
            let late = try client.request("GET", "/late")
            try client.turn()
            client.isNotReading = false
            #expect(try await client.answer(late) == "200 get /late ")
            _ = try await client.until { $0.lazy.compactMap(\.goAwayCode).first }
            handler.release()
            #expect(try await client.answer(held) == "200 get /held ")
            try await client.untilEnd()
            await drain
            #expect(client.events.compactMap(\.goAwayCode).allSatisfy { $0 == .noError })
            #expect(await server.statistics.openConnections == 0)
        }
    }

    @Test func aPeerThatIgnoresTheDrainIsClosed() async throws {
        try await withStreams {
            $0.drainIdleMs = 50
        } _: { server, address, _, trust in
            let client = try await StreamClient(address, trust, raw: true)
            try client.write(Frames.preface)
            try await eventually { await server.statistics.openConnections == 1 }
            await server.drain(deadlineMs: 5000)
            #expect(await server.statistics.openConnections == 0)
        }
    }

    @Test func aNewCertificateAppliesToNewConnections() async throws {
        try await withStreams { server, address, _, trust in
            let old = try await StreamClient(address, trust)
            let pair = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1)
            await server.use(
                try TLSContext.server(certificateChain: pair.certificate, privateKey: pair.privateKey.span, alpn: ["h2"]))
            #expect(try await old.answer(try old.request("GET", "/old")) == "200 get /old ")
            let new = try await StreamClient(
                address, try TLSContext.client(trust: .authorities(pair.certificate), alpn: ["h2"]))
            #expect(try await new.answer(try new.request("GET", "/new")) == "200 get /new ")
            await #expect(throws: TLSError.untrusted) { try await StreamClient(address, trust) }
        }
    }
}

/// Frames encoded by hand (RFC 9113, 4.1; RFC 7541, 6.2.2).
enum Frames {
    static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + frame(type: 4, flags: 0, stream: 0, [])

    static func frame(type: UInt8, flags: UInt8, stream: UInt8, _ payload: [UInt8]) -> [UInt8] {
        [0, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF), type, flags, 0, 0, 0, stream] + payload
    }

    static func literal(_ name: String, _ value: String) -> [UInt8] {
        [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.utf8.count)] + Array(value.utf8)
    }

    static func request(path: String) -> [UInt8] {
        literal(":method", "POST") + literal(":scheme", "https") + literal(":authority", "x") + literal(":path", path)
    }
}

extension [UInt8] {
    func contains(sequence: [UInt8]) -> Bool {
        guard count >= sequence.count else { return false }
        return (0...count - sequence.count).contains { self[$0..<$0 + sequence.count].elementsEqual(sequence) }
    }
}

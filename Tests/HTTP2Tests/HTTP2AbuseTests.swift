import HTTP2
import Testing

/// Input of a hostile peer.
@Suite struct HTTP2AbuseTests {
    static func server(change: (inout HTTP2Limits) -> Void = { _ in }) throws -> HTTP2Session {
        var limits = HTTP2Limits(bodyBytes: 16 * 1024)
        change(&limits)
        let server = try HTTP2Session(.server, limits: limits)
        try server.receive(Frames.preface)
        _ = server.takeEvents()
        return server
    }

    /// The code of the GOAWAY among the bytes to be sent.
    static func goAway(_ session: HTTP2Session) -> UInt32? {
        var bytes: [UInt8] = []
        try? session.takeOutbound(into: &bytes)
        var rest = bytes[...]
        while rest.count >= 9 {
            let length = rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
            let payload = rest.dropFirst(9).prefix(length)
            if rest[rest.startIndex + 3] == 7 { return payload.dropFirst(4).prefix(4).reduce(0) { $0 << 8 | UInt32($1) } }
            rest = rest.dropFirst(9 + length)
        }
        return nil
    }

    @Test func refusesOtherProtocols() throws {
        let server = try HTTP2Session(.server, limits: HTTP2Limits(bodyBytes: 1))
        #expect(throws: HTTP2Error.notHTTP2) { try server.receive(Array("GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8)) }
    }

    @Test func rapidResetEndsTheConnection() throws {
        let server = try Self.server()
        var ended: UInt32?
        for number in UInt32(0)..<1000 where ended == nil {
            let id = number * 2 + 1
            let bytes = Frames.headers(stream: id, Frames.request(), end: true) + Frames.reset(stream: id)
            try server.receive(bytes)
            _ = server.takeEvents()
            if let code = Self.goAway(server) {
                ended = number
                #expect(code == HTTP2ErrorCode.enhanceYourCalm.rawValue)
            }
        }
        #expect(ended == 199)
        #expect(server.isFinished)
    }

    /// Until the peer acknowledges our settings, nghttp2 resets streams beyond the limit by itself, without a callback.
    @Test func streamsBeyondTheLimitAreCountedBeforeTheSettingsAreAcknowledged() throws {
        let server = try HTTP2Session(.server, limits: HTTP2Limits(bodyBytes: 1, concurrentStreams: 1))
        try server.receive(Frames.preface + Frames.headers(stream: 1, Frames.request(), end: false))
        var most = 0
        for number in UInt32(1)...1000 where !server.isFinished {
            try? server.receive(Frames.headers(stream: 2 * number + 1, Frames.request(), end: true))
            most = max(most, server.outboundFrames)
            if number % 250 == 0 { _ = Self.goAway(server) }
        }
        #expect(most < 260)
        #expect(Self.goAway(server) != nil || server.isFinished)
    }

    @Test func aMalformedBlockEndsWhenRefused() throws {
        let server = try Self.server()
        try server.receive(Frames.headers(stream: 1, Frames.request() + Frames.literal("UPPER", "x"), end: true))
        #expect(!server.isInHeaderBlock)
        try server.receive(Frames.headers(stream: 3, Frames.request(), end: false, endHeaders: false))
        #expect(server.isInHeaderBlock)
    }

    @Test func answeredStreamsOffsetResets() throws {
        let server = try Self.server()
        for number in UInt32(0)..<1000 {
            let answered = number * 4 + 1
            try server.receive(Frames.headers(stream: answered, Frames.request(), end: true))
            try server.submitResponse(stream: Int32(answered), HTTP2Pair.response, body: [])
            #expect(Self.goAway(server) == nil)
            let bytes = Frames.headers(stream: answered + 2, Frames.request(), end: true) + Frames.reset(stream: answered + 2)
            try server.receive(bytes)
            _ = server.takeEvents()
        }
        #expect(!server.isFinished)
    }

    /// The peer provokes resets ("made you reset"): a body of another length than `content-length` is a stream error.
    @Test func provokedResetsCountToo() throws {
        let server = try Self.server()
        var code: UInt32?
        for number in UInt32(0)..<1000 where code == nil {
            let id = number * 2 + 1
            let block = Frames.request() + Frames.literal("content-length", "5")
            let bytes = Frames.headers(stream: id, block, end: false) + Frames.frame(type: 0, flags: 1, stream: id, [1, 2])
            try server.receive(bytes)
            _ = server.takeEvents()
            code = Self.goAway(server)
        }
        #expect(code == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    }

    @Test func unreadPingAnswersAreAFlood() throws {
        let server = try Self.server()
        #expect(throws: HTTP2Error.flooded) {
            for number in UInt32(0)..<200 { try server.receive(Frames.ping(number)) }
        }
    }

    @Test func unreadSettingsAnswersAreAFlood() throws {
        let server = try Self.server()
        #expect(throws: HTTP2Error.flooded) {
            for _ in 0..<200 { try server.receive(Frames.frame(type: 4, flags: 0, stream: 0, [])) }
        }
    }

    @Test func endlessControlFramesEndTheConnection() throws {
        let server = try Self.server { $0.controlFrames = 50 }
        var code: UInt32?
        for number in UInt32(0)..<60 where code == nil {
            try server.receive(Frames.ping(number))
            code = Self.goAway(server)
        }
        #expect(code == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    }

    @Test func emptyDataFramesAreCounted() throws {
        let server = try Self.server { $0.controlFrames = 50 }
        try server.receive(Frames.headers(stream: 1, Frames.request(), end: false))
        for _ in 0..<60 { try? server.receive(Frames.frame(type: 0, flags: 0, stream: 1, [])) }
        #expect(Self.goAway(server) == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    }

    @Test func dataFramesOfPaddingAreCounted() throws {
        let server = try Self.server { $0.controlFrames = 50 }
        try server.receive(Frames.headers(stream: 1, Frames.request(), end: false))
        for _ in 0..<60 { try? server.receive(Frames.frame(type: 0, flags: 8, stream: 1, [1, 0])) }
        #expect(Self.goAway(server) == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    }

    @Test(arguments: [UInt8(0x10), 0x42])
    func ignoredFramesAreBounded(type: UInt8) throws {
        let server = try Self.server { $0.bytesBetweenRequests = 2000 }
        for stream in UInt32(0)..<20 {
            try server.receive(Frames.headers(stream: 2 * stream + 1, Frames.request(), end: true))
            for _ in 0..<10 { try server.receive(Frames.frame(type: type, flags: 0, stream: 0, [0, 0, 0, 1])) }
        }
        #expect(Self.goAway(server) == nil)
        for _ in 0..<200 { try? server.receive(Frames.frame(type: type, flags: 0, stream: 0, [0, 0, 0, 1])) }
        #expect(Self.goAway(server) == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    }

    @Test func endlessContinuationsAreAFlood() throws {
        let server = try Self.server()
        #expect(throws: HTTP2Error.self) {
            try server.receive(Frames.headers(stream: 1, Frames.request(), end: true, endHeaders: false))
            for _ in 0..<100 { try server.receive(Frames.frame(type: 9, flags: 0, stream: 1, Frames.literal("a", "b"))) }
        }
    }

    @Test(arguments: [1, 200])
    func headersBeyondTheLimitAreTooLarge(fields: Int) throws {
        let server = try Self.server {
            if fields == 1 { $0.headerListBytes = 200 }
        }
        var block = Frames.request()
        for _ in 0..<fields { block += Frames.literal("name", String(repeating: "v", count: fields == 1 ? 100 : 1)) }
        try server.receive(Frames.headers(stream: 1, block, end: true))
        #expect(server.takeEvents() == [.tooLarge(stream: 1, .headers), .end(stream: 1)])
        try server.submitResponse(stream: 1, [":status": "431"], body: [])
    }

    @Test func aBodyOverTheLimitIsReportedOnceAndDropped() throws {
        let pair = try HTTP2Pair(serverBody: 1000)
        let id = try pair.client.submitRequest(HTTP2Pair.request, body: [UInt8](repeating: 1, count: 100_000))
        try pair.run()
        let events = pair.server.takeEvents()
        #expect(events.filter { $0 == .tooLarge(stream: id, .body) }.count == 1)
        let received = events.reduce(0) { if case .data(_, let bytes) = $1 { $0 + bytes.count } else { $0 } }
        #expect(received <= 1000)
    }

    @Test func anEarlyAnswerStopsTheUpload() throws {
        let server = try Self.server()
        try server.receive(Frames.headers(stream: 1, Frames.request(), end: false))
        try server.submitResponse(stream: 1, [":status": "413"], body: [])
        _ = Self.goAway(server)
        #expect(server.openStreams == 0)
        #expect(server.takeEvents().contains(.closed(stream: 1, .noError)))
    }

    /// Statuses have three digits, and the first is not 0 (RFC 9110, 15).
    @Test(arguments: ["000", "099"], [true, false])
    func anAnswerWithoutAStatusIsAStreamError(status: String, end: Bool) throws {
        let client = try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: 1000))
        try client.receive(Frames.frame(type: 4, flags: 0, stream: 0, []))
        let id = try client.submitRequest(HTTP2Pair.request, body: [])
        var bytes: [UInt8] = []
        try client.takeOutbound(into: &bytes)
        try client.receive(Frames.headers(stream: UInt32(id), Frames.literal(":status", status), end: end))
        if !end { try client.receive(Frames.frame(type: 0, flags: 1, stream: UInt32(id), [1, 2])) }
        try client.takeOutbound(into: &bytes)
        #expect(client.takeEvents() == [.settings, .closed(stream: id, .protocolError)])
    }

    @Test func aResponseBeyondTheClientsLimitIsDropped() throws {
        let pair = try HTTP2Pair(clientBody: 100)
        let id = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        try pair.run()
        try pair.server.submitResponse(stream: id, HTTP2Pair.response, body: [UInt8](repeating: 1, count: 5000))
        try pair.run()
        #expect(pair.client.takeEvents().contains(.tooLarge(stream: id, .body)))
    }

    @Test(arguments: [
        Frames.literal(":method", "POST"),  // pseudo-header fields missing
        Frames.request() + Frames.literal("Upper", "x"),
        Frames.request() + Frames.literal("connection", "close"),
        Frames.request() + Frames.literal("te", "gzip"),
        Frames.request() + Frames.literal("a", "b\r\nc: d"),
        Frames.request() + Frames.literal(":path", "/again"),
        Frames.literal("a", "b") + Frames.request(),
        Frames.request() + Frames.literal("content-length", "5") + Frames.literal("content-length", "6"),
    ])
    func malformedRequestsNeverBecomeEvents(block: [UInt8]) throws {
        let server = try Self.server()
        try server.receive(Frames.headers(stream: 1, block, end: true))
        #expect(!server.takeEvents().contains { if case .headers = $0 { true } else { false } })
    }

    @Test func aBodyOfAnotherLengthIsAStreamError() throws {
        let server = try Self.server()
        let block = Frames.request() + Frames.literal("content-length", "5")
        try server.receive(Frames.headers(stream: 1, block, end: false))
        try server.receive(Frames.frame(type: 0, flags: 1, stream: 1, [1, 2]))
        #expect(!server.takeEvents().contains(.end(stream: 1)))
    }

    @Test func streamsAboveTheLimitAreRefused() throws {
        let server = try Self.server { $0.concurrentStreams = 2 }
        var bytes: [UInt8] = []
        try server.takeOutbound(into: &bytes)
        try server.receive(Frames.frame(type: 4, flags: 1, stream: 0, []))  // acknowledges the settings
        for id in [UInt32(1), 3, 5] { try server.receive(Frames.headers(stream: id, Frames.request(), end: true)) }
        let begun = server.takeEvents().filter { if case .headers = $0 { true } else { false } }
        #expect(begun.count == 2)
    }

    /// Random bytes after a valid preface cause neither a trap nor endless work.
    @Test func survivesNoise() throws {
        var state: UInt64 = 0x9e37_79b9_7f4a_7c15
        func next() -> UInt8 {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return UInt8(truncatingIfNeeded: state >> 24)
        }
        for _ in 0..<300 {
            let server = try Self.server()
            for _ in 0..<20 {
                let payload = (0..<Int(next() % 40)).map { _ in next() }
                let frame = Frames.frame(type: next() % 11, flags: next(), stream: UInt32(next() % 6), payload)
                do { try server.receive(frame) } catch { break }
                _ = server.takeEvents()
                var bytes: [UInt8] = []
                try? server.takeOutbound(into: &bytes)
            }
        }
    }
}

import HTTP2
import Testing

@Suite struct HTTP2SessionTests {
    @Test(arguments: [1, 5, 100, Int.max])
    func transfersARequestAndItsResponseInAnyPieces(step: Int) throws {
        let pair = try HTTP2Pair()
        let body = [UInt8]((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })  // more than a stream's window
        let id = try pair.client.submitRequest(HTTP2Pair.request, body: body)
        try pair.run(step: step)

        var received: [UInt8] = []
        var kinds: [String] = []
        for event in pair.server.takeEvents() {
            switch event {
            case .settings: kinds.append("settings")
            case .headers(let stream, let headers):
                kinds.append("headers")
                #expect(stream == id)
                #expect(headers == HTTP2Pair.request)
            case .data(_, let bytes): received += bytes.bytes
            case .end: kinds.append("end")
            default: Issue.record("unexpected \(event)")
            }
        }
        #expect(kinds == ["settings", "headers", "end"])
        #expect(received == body)

        try pair.server.submitResponse(stream: id, HTTP2Pair.response, body: Array("{}".utf8))
        try pair.run(step: step)
        let events = pair.client.takeEvents()
        #expect(events.prefix(2) == [.settings, .headers(stream: id, HTTP2Pair.response)])
        #expect(events.suffix(2) == [.end(stream: id), .closed(stream: id, .noError)])
        let answer = events.flatMap { if case .data(id, let bytes) = $0 { bytes.bytes } else { [UInt8]() } }
        #expect(answer == Array("{}".utf8))
        #expect(pair.server.takeEvents() == [.closed(stream: id, .noError)])
        #expect(pair.client.openStreams == 0)
        #expect(pair.server.openStreams == 0)
    }

    @Test func aBodylessRequestEndsWithItsHeaders() throws {
        let pair = try HTTP2Pair.connected()
        let id = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        try pair.run()
        #expect(pair.server.takeEvents() == [.headers(stream: id, HTTP2Pair.request), .end(stream: id)])
    }

    @Test func theStreamLimitIsOneBeforeTheSettings() throws {
        let pair = try HTTP2Pair { $0.concurrentStreams = 7 }
        #expect(pair.client.remoteConcurrentStreams == 1)
        try pair.run()
        #expect(pair.client.remoteConcurrentStreams == 7)
        try pair.server.submitSettings(concurrentStreams: 1000)
        try pair.run()
        #expect(pair.client.remoteConcurrentStreams == 1000)
    }

    @Test func streamsAboveTheLimitWaitInside() throws {
        let pair = try HTTP2Pair.connected { $0.concurrentStreams = 1 }
        let first = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        let second = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        try pair.run()
        #expect(pair.server.openStreams == 1)
        try pair.server.submitResponse(stream: first, HTTP2Pair.response, body: [])
        try pair.run()
        #expect(pair.server.takeEvents().contains(.headers(stream: second, HTTP2Pair.request)))
    }

    @Test func goAwayRefusesStreamsAboveTheLast() throws {
        let pair = try HTTP2Pair.connected()
        let ids = try (0..<3).map { _ in try pair.client.submitRequest(HTTP2Pair.request, body: []) }
        try pair.run()
        let debugData = Array(#"{"reason":"Shutdown"}"#.utf8)
        try pair.server.submitGoAway(lastStream: ids[0], .noError, debugData: debugData)
        try pair.run()
        let events = pair.client.takeEvents()
        #expect(events.first == .goAway(lastStream: ids[0], .noError, debugData: debugData))
        #expect(events.count == 3)
        #expect(events.contains(.closed(stream: ids[1], .refusedStream)))
        #expect(events.contains(.closed(stream: ids[2], .refusedStream)))
        #expect(!pair.client.takesRequests)
        #expect(throws: HTTP2Error.noMoreStreams) { _ = try pair.client.submitRequest(HTTP2Pair.request, body: []) }

        // The stream below the limit still gets its response.
        try pair.server.submitResponse(stream: ids[0], HTTP2Pair.response, body: [])
        try pair.run()
        #expect(pair.client.takeEvents().last == .closed(stream: ids[0], .noError))
        #expect(pair.client.isFinished)
    }

    @Test func goAwayRefusesWaitingRequests() throws {
        let pair = try HTTP2Pair.connected { $0.concurrentStreams = 1 }
        let first = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        let second = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        try pair.run()
        try pair.server.submitGoAway(.noError)
        try pair.server.submitResponse(stream: first, HTTP2Pair.response, body: [])
        try pair.run()
        #expect(pair.client.takeEvents().contains(.closed(stream: second, .refusedStream)))
    }

    @Test func resetsCarryTheirCode() throws {
        let pair = try HTTP2Pair.connected()
        let id = try pair.client.submitRequest(HTTP2Pair.request, body: [])
        try pair.run()
        try pair.server.reset(stream: id, .refusedStream)
        try pair.run()
        #expect(pair.client.takeEvents() == [.closed(stream: id, .refusedStream)])
        #expect(throws: HTTP2Error.noSuchStream) { try pair.client.reset(stream: id, .cancel) }
        #expect(throws: HTTP2Error.noSuchStream) { try pair.server.submitResponse(stream: id, HTTP2Pair.response, body: []) }
    }

    @Test func pingsReturnTheirPayload() throws {
        let pair = try HTTP2Pair.connected()
        try pair.client.submitPing(0x0102_0304_0506_0708)
        try pair.run()
        #expect(pair.client.takeEvents() == [.pingAcknowledged(0x0102_0304_0506_0708)])
    }

    @Test func neverIndexedFieldsEnterNoTable() throws {
        let pair = try HTTP2Pair.connected()
        func size(_ indexing: HTTP2Headers.Indexing) throws -> [Int] {
            try (0..<2).map { _ in
                var headers = HTTP2Pair.request
                headers.append("x-key", String(repeating: "k", count: 300), indexing)
                let id = try pair.client.submitRequest(headers, body: [])
                var bytes: [UInt8] = []
                try pair.client.takeOutbound(into: &bytes)
                try pair.server.receive(bytes)
                // The received headers equal the sent ones, indexed or not.
                #expect(pair.server.takeEvents().first == .headers(stream: id, headers))
                return bytes.count
            }
        }
        let never = try size(.never)
        #expect(never[0] > 200 && never[1] > 200)
        let incremental = try size(.incremental)
        #expect(incremental[0] > 200 && incremental[1] < 50)
    }

    @Test func trailersAreDropped() throws {
        // A request with trailers, by hand: HEADERS, DATA, HEADERS with END_STREAM; fields as literals.
        let server = try HTTP2Session(.server, limits: HTTP2Limits(bodyBytes: 100))
        let trailers = [UInt8](Frames.literal("x", "y"))
        try server.receive(
            (Frames.preface + Frames.headers(stream: 1, Frames.request(), end: false)
                + Frames.frame(type: 0, flags: 0, stream: 1, Array("hi".utf8))
                + Frames.headers(stream: 1, trailers, end: true)))
        let events = server.takeEvents()
        #expect(events.count == 4)
        #expect(events.last == .end(stream: 1))
        #expect(events.contains(.data(stream: 1, HTTP2Data(Array("hi".utf8)))))
    }

    @Test func headersAreReadByName() {
        let headers: HTTP2Headers = [":status": "410", "apns-id": "one", "apns-id": "two"]
        #expect(headers.status == 410)
        #expect(headers["apns-id"] == "one")
        #expect(headers["apns"] == nil)
        #expect(headers.withValue(of: "apns-id") { $0.count } == 3)
        #expect(([":status": "4x0"] as HTTP2Headers).status == nil)
        #expect(([":status": "1000"] as HTTP2Headers).status == nil)
        #expect("\(headers)" == "[:status, apns-id, apns-id]")
    }

    @Test func wipeRemovesFieldsAfterAMark() {
        var headers: HTTP2Headers = [":method": "POST", ":path": "", "a": "b"]
        let (mark, bytes) = (headers.mark, headers.copyBytes())
        for value in ["dead", "be"] {
            headers.replace(1, ":path", "/".utf8.span, count: value.utf8.count, .never) { bytes in
                for (index, byte) in value.utf8.enumerated() { bytes[index] = byte }
            }
            headers.append("c", "d")
            #expect("\(headers)" == "[:method, :path, a, c]")
            #expect(headers[":path"] == "/" + value)
            let shown = headers
            headers.wipe(after: mark)
            #expect("\(headers)" == "[:method, , a]" && headers[":path"] == nil)
            #expect(headers.copyBytes() == bytes)
            #expect(shown[":path"] != nil, "another's copy is not taken from it")
        }
    }

    @Test func wipedHeadersAreEmpty() {
        var headers: HTTP2Headers = [":path": "/3/device/aa"]
        headers.wipe()
        #expect(headers.count == 0)
        #expect(headers[":path"] == nil)
        headers.append("a", "b")
        #expect(headers["a"] == "b")
    }
}

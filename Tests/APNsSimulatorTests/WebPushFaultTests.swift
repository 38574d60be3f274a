import EventLoop
import HTTP1
import HTTP2
import Linux
import TLS
import Testing

@testable import APNsSimulator

/// Planned faults of the Web Push face, and HTTP/1.1.
@Suite(.timeLimit(.minutes(1))) struct WebPushFaultTests {
    private func plan(_ world: World, _ json: String) async throws {
        await world.simulator.setFaults(try FaultPlan(json: Array(json.utf8)))
    }

    @Test func everyProblemHasAnAnswerInEveryDialect() async throws {
        let world = try await World()
        let sender = try Sender()
        for dialect in PushServiceDialect.allCases {
            let browser = try await world.subscribe(dialect, sender)
            for problem in PushProblem.allCases {
                try await plan(world, #"{"next":[{"problem":"\#(problem.rawValue)"}]}"#)
                let answer = try await world.post(to: browser, sender)
                let isAccepted = problem == .dropped || problem == .channelThrottled
                #expect((answer.status < 300) == isAccepted, "\(dialect) \(problem): \(answer.status)")
                if [.mozilla, .apple, .ntfy].contains(dialect), !isAccepted {
                    #expect(JSON(parsing: Array(answer.body.utf8)) != nil)
                }
            }
        }
        #expect(await world.simulator.webPushes == [])
    }

    @Test func servicesThrottleInTheirOwnWay() async throws {
        let world = try await World()
        let sender = try Sender()
        func answer(_ dialect: PushServiceDialect, _ problem: String) async throws -> TestResponse {
            try await plan(world, #"{"next":[{"problem":"\#(problem)"}]}"#)
            return try await world.post(to: try await world.subscribe(dialect, sender), sender)
        }
        let microsoft = try await answer(.microsoft, "throttled")
        #expect((microsoft.status, microsoft.headers["retry-after"]) == (406, "30"))
        let dropped = try await answer(.microsoft, "dropped")
        #expect((dropped.status, dropped.headers["x-wns-status"]) == (201, "dropped"))
        #expect(try await answer(.microsoft, "channelThrottled").headers["x-wns-status"] == "channelthrottled")
        let ntfy = try await answer(.ntfy, "throttled")
        #expect(ntfy.status == 429)
        let now = Clock.wallMs / 1_000
        let text = try #require(ntfy.headers["retry-after"])
        let date = try #require(HTTPDate.seconds(text, nowS: now))
        #expect((now...now + 61).contains(date))
        #expect(try await answer(.ntfy, "overQuota").status == 507)
        #expect(try await answer(.mozilla, "unavailable").headers["retry-after"] == "120")
        #expect(try await answer(.google, "throttled").headers["retry-after"] == "60")
        #expect(try await answer(.apple, "throttled").body == #"{"reason":"TooManyRequests"}"#)
    }

    @Test func faultsAffectOneSubscriptionOrDialect() async throws {
        let world = try await World()
        let sender = try Sender()
        let (one, two) = (try await world.subscribe(.mozilla, sender), try await world.subscribe(.google, sender))
        try await plan(world, #"{"status":500,"token":"\#(one.id)"}"#)
        #expect(try await world.post(to: two, sender).status == 201)
        #expect(try await world.post(to: one, sender).status == 500)
        try await plan(world, #"{"problem":"expired","dialect":"google"}"#)
        #expect(try await world.post(to: one, sender).status == 201)
        #expect(try await world.post(to: two, sender).status == 410)
        #expect(try await world.client().send(world.headers(), payload).status == 200)
        // A reason is APNs's.
        try await plan(world, #"{"reason":"Unregistered"}"#)
        #expect(try await world.post(to: one, sender).status == 201)
        #expect(try await world.client().send(world.headers(), payload).status == 410)
        // A status is for both.
        try await plan(world, #"{"status":503}"#)
        #expect(try await world.post(to: one, sender).status == 503)
        #expect(try await world.client().send(world.headers(), payload).status == 503)
    }

    @Test func plansAreShownAsTheyWereGiven() async throws {
        let text =
            #"{"next":[{"dialect":"ntfy","status":307,"headers":{"location":"https://10.0.0.1/"}},"#
            + #"{"problem":"dropped"},{"endless":true}],"always":[]}"#
        #expect(String(decoding: try FaultPlan(json: Array(text.utf8)).json, as: UTF8.self) == text)
        for bad in [
            #"{"dialect":"opera"}"#, #"{"problem":"x"}"#, #"{"headers":{"A":"b"}}"#, #"{"headers":{"a":"b\n"}}"#,
            #"{"headers":{"":"b"}}"#, #"{"headers":{"a":1}}"#, #"{"headers":"a"}"#, #"{"endless":1}"#,
        ] {
            #expect(throws: FaultPlan.Malformed.self, "\(bad)") { try FaultPlan(json: Array(bad.utf8)) }
        }
    }

    @Test func redirectsDelaysAndEarlyAnswers() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        try await plan(
            world, #"{"next":[{"status":307,"headers":{"location":"https://169.254.169.254/"},"delayMs":50}]}"#)
        let before = Clock.monotonicMs
        let moved = try await world.post(to: browser, sender)
        #expect((moved.status, moved.headers["location"]) == (307, "https://169.254.169.254/"))
        #expect(Clock.monotonicMs - before >= 49)
        let client = try await world.client()
        let valid = World.headers(to: browser, try sender.fields(to: browser))
        #expect(try await client.send(valid, try browser.encrypt("x")).status == 201)
        try await plan(world, #"{"next":[{"at":"headers","problem":"unavailable"}]}"#)
        let headers = World.headers(to: browser, try sender.fields(to: browser, ["ttl": nil]))
        #expect(try await client.sendHead(headers).status == 503)
        // The body comes a byte at a time.
        try await plan(world, #"{"next":[{"status":200,"body":"slow","dribbleMs":100}]}"#)
        let slow = try await client.send(valid, try browser.encrypt("x"))
        #expect((slow.status, slow.body) == (200, "slow"))
        #expect(await client.pieces.suffix(4) == [1, 1, 1, 1])
    }

    @Test func lostAnswersMayHaveBeenDelivered() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        for (json, failure) in [
            (#"{"next":[{"drop":true,"accepted":true}]}"#, TestFailure.connectionClosed),
            (#"{"next":[{"reset":true}]}"#, .stream(.internalError)), (#"{"next":[{"refuse":true}]}"#, .stream(.refusedStream)),
        ] {
            try await plan(world, json)
            await #expect(throws: failure) { try await world.post(to: browser, sender) }
        }
        #expect(await world.simulator.webPushes.count == 1)
        try await plan(world, #"{"next":[{"silent":true}]}"#)
        let client = try await world.client()
        let headers = World.headers(to: browser, try sender.fields(to: browser))
        let body = try browser.encrypt("x")
        let lost = Task { try await client.send(headers, body) }
        while await !world.simulator.faults.next.isEmpty { try await world.loop.sleep(1) }
        await world.simulator.stop()
        await #expect(throws: TestFailure.connectionClosed) { try await lost.value }
        #expect(await world.simulator.webPushes.count == 1)
    }

    @Test func endlessHeadersEndWithTheClientsPatience() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        try await plan(world, #"{"always":[{"endless":true}]}"#)
        // nghttp2 refuses a block that is too long or has too many frames.
        await #expect(throws: (any Error).self) { try await world.post(to: browser, sender) }
        let request = HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt("x"))
        let text = try await world.http1Client().exchange(request) { $0.utf8.count > 500_000 }
        #expect(text.hasPrefix("HTTP/1.1 201 \r\n") && text.contains("\r\nx-more: m"))
        #expect(!text.contains("\r\n\r\n"))
        try await plan(world, "{}")
        #expect(try await world.post(to: browser, sender).status == 201)
    }

    // MARK: HTTP/1.1

    @Test func http1ServesRequestsInOrder() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        let client = try await world.http1Client()
        let request = HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt("one"))
        let answer = try await client.send(request)
        #expect(answer.status == 201)
        #expect(answer.headers["location"]?.hasPrefix(browser.origin + "/m/") == true)
        // Two at once, the first with a delay.
        try await plan(world, #"{"next":[{"status":500,"delayMs":50}]}"#)
        let second = HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt("two"))
        let both = try await client.exchange(request + second) { $0.contains("HTTP/1.1 201") }
        #expect(both.hasPrefix("HTTP/1.1 500"))
        let pushes = await world.simulator.webPushes
        #expect(pushes.map(\.text) == [Array("one".utf8), Array("two".utf8)])
        #expect(pushes.map(\.http) == ["1.1", "1.1"])
        #expect(pushes[0].headers["ttl"] == "60")
        #expect(pushes[0].headers["host"] == nil)
        #expect(await world.simulator.counts.connections == 1)
    }

    @Test func http1ClosesIfTheClientWants() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.apple, sender)
        let fields = try sender.fields(to: browser) + [("Connection", "close")]
        let client = try await world.http1Client()
        let text = try await client.exchange(HTTP1TestClient.request(to: browser, fields, try browser.encrypt(Sender.shown)))
        #expect(text.hasPrefix("HTTP/1.1 201 "))
        #expect(text.contains("connection: close\r\n"))
        try await plan(world, #"{"next":[{"goaway":true,"status":503}]}"#)
        let ended = try await world.http1Client().exchange(
            HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt(Sender.shown)))
        #expect(ended.hasPrefix("HTTP/1.1 503 "))
    }

    @Test func http1FaultsHaveEveryShape() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        func answer(_ fault: String, until end: String? = nil) async throws -> String {
            try await plan(world, #"{"next":[\#(fault)]}"#)
            let request = HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt("x"))
            let client = try await world.http1Client()
            return try await client.exchange(request) { text in end.map { text.hasSuffix($0) } ?? false }
        }
        #expect(try await answer(#"{"drop":true}"#) == "")
        #expect(try await answer(#"{"reset":true}"#) == "")
        #expect(try await answer(#"{"refuse":true}"#) == "")
        #expect(try await answer(#"{"goaway":true,"refuse":true}"#) == "")
        #expect(
            try await answer(#"{"status":507,"body":"full","retryAfter":9}"#, until: "full")
                == "HTTP/1.1 507 \r\nretry-after: 9\r\ncontent-length: 4\r\n\r\nfull")
        #expect(
            try await answer(#"{"status":200,"body":"abc","pieces":2,"trailers":true}"#, until: "simulator\r\n\r\n")
                == "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nx-served-by: simulator\r\n\r\n")
        #expect(
            try await answer(#"{"status":200,"interim":103,"announced":7}"#, until: "7\r\n\r\n")
                == "HTTP/1.1 103 \r\n\r\nHTTP/1.1 200 \r\ncontent-length: 7\r\n\r\n")
        let half = try await answer(#"{"status":200,"body":"abc","half":true}"#)
        #expect(half.hasPrefix("HTTP/1.1 200") && !half.contains("abc"))
        let before = Clock.monotonicMs
        #expect(try await answer(#"{"status":200,"body":"abc","dribbleMs":100}"#, until: "abc").hasPrefix("HTTP/1.1 200"))
        #expect(Clock.monotonicMs - before >= 99)
        #expect(try await answer(#"{"at":"headers","problem":"expired"}"#, until: ".\n").hasPrefix("HTTP/1.1 410"))
        #expect(await world.simulator.webPushes == [])
    }

    @Test func http1RefusesWhatIsNoWebPush() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        func status(_ text: String) async throws -> Int { try await world.http1Client().send(Array(text.utf8)).status }
        #expect(try await status("POST /3/device/\(device) HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n") == 404)
        #expect(try await status("GET \(browser.path) HTTP/1.1\r\nHost: a\r\n\r\n") == 405)
        #expect(try await status("POST \(browser.path) HTTP/1.1\r\nContent-Length: 0\r\n\r\n") == 400)
        #expect(try await status("POST \(browser.path) HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n") == 413)
        let large = HTTP1TestClient.request(
            to: browser, try sender.fields(to: browser), [UInt8](repeating: 0, count: 60_000))
        #expect(try await world.http1Client().send(large).status == 413)
        let twice = try sender.fields(to: browser) + [("TTL", "1")]
        let body = try browser.encrypt("x")
        #expect(try await world.http1Client().send(HTTP1TestClient.request(to: browser, twice, body)).status == 400)
        let expects = try sender.fields(to: browser) + [("Expect", "100-continue")]
        let request = HTTP1TestClient.request(to: browser, expects, body)
        let client = try await world.http1Client()
        let head = request.prefix(request.count - body.count)
        #expect(try await client.exchange(Array(head)) { $0.hasSuffix("\r\n\r\n") } == "HTTP/1.1 100 Continue\r\n\r\n")
        #expect(try await client.send(body).status == 201)
    }

    @Test func http2CanBeLeftOut() async throws {
        let world = try await World { configuration, _ in configuration.isHTTP1Only = true }
        let sender = try Sender()
        let browser = try await world.subscribe(.ntfy, sender)
        let client = try HTTP1TestClient(
            to: world.address, certificate: world.certificate.certificate, alpn: ["h2", "http/1.1"], loop: world.loop)
        let request = HTTP1TestClient.request(to: browser, try sender.fields(to: browser), try browser.encrypt("x"))
        #expect(try await client.send(request).status == 200)
        #expect(await world.simulator.webPushes.map(\.http) == ["1.1"])
        await #expect(throws: (any Error).self) { try await world.client(alpn: ["h2"]).send(world.headers(), payload) }
    }
}

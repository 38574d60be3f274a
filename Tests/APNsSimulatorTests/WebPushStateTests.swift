import EventLoop
import HTTP1
import HTTPServer
import Linux
import TLS
import Testing
import WebPush

@testable import APNsSimulator

/// Subscriptions that end, browsers that are offline, and the control calls for both.
@Suite(.timeLimit(.minutes(1))) struct WebPushStateTests {
    private func call(
        _ world: World, _ method: HTTP1.Method, _ path: String, _ body: String = ""
    ) async -> (status: UInt16, body: String) {
        let request = HTTPRequest(
            method: method, target: path, headers: [("host", "localhost:8790")], body: Array(body.utf8))
        let response = await Control(simulator: world.simulator).respond(to: request)
        return (response.status, String(decoding: response.body, as: UTF8.self))
    }

    private func set(_ state: String, _ browser: Browser, _ world: World) async {
        #expect(await call(world, .put, "/subscriptions/\(browser.id)", #"{"state":"\#(state)"}"#).status == 204)
    }

    private func number(_ answer: TestResponse) -> UInt64? {
        JSON(parsing: Array(answer.body.utf8))?["errno"]?.wholeNumber
    }

    @Test func endedSubscriptionsAreAnsweredInTheDialect() async throws {
        let world = try await World()
        let sender = try Sender()
        let gone = [410, 410, 410, 410, 404]
        for (dialect, status) in zip(PushServiceDialect.allCases, gone) {
            let browser = try await world.subscribe(dialect, sender)
            await set("expired", browser, world)
            let expired = try await world.post(to: browser, sender)
            await set("unsubscribed", browser, world)
            let unsubscribed = try await world.post(to: browser, sender)
            #expect(await call(world, .delete, "/subscriptions/\(browser.id)").status == 204)
            let unknown = try await world.post(to: browser, sender)
            #expect([expired.status, unsubscribed.status, unknown.status] == [status, status, 404])
            switch dialect {
            case .mozilla:
                #expect([number(expired), number(unsubscribed), number(unknown)] == [103, 106, 102])
                #expect(expired.headers["cache-control"] == "max-age=86400")
            case .google: #expect(expired.body == "push subscription has unsubscribed or expired.\n")
            case .apple: #expect(expired.body == #"{"reason":"Unregistered"}"#)
            case .microsoft: #expect(expired.headers["x-wns-status"] == "dropped")
            case .ntfy: #expect(unknown.body == #"{"code":40401,"http":404,"error":"page not found"}"# + "\n")
            }
        }
        #expect(await world.simulator.webPushes == [])
    }

    @Test func threePushesThatShowNothingEndASubscriptionAtApple() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.apple, sender)
        for silent in [#"{"web_push":8030,"notification":{"title":""}}"#, "not JSON", #"{"notification":{"body":"x"}}"#] {
            #expect(try await world.post(to: browser, sender).status == 201)
            #expect(try await world.post(silent, to: browser, sender).status == 201)
        }
        #expect(try await world.post(to: browser, sender).status == 410)
        #expect(await world.simulator.webPushes.count == 6)
        // Other services don't care.
        let mozilla = try await world.subscribe(.mozilla, sender)
        for _ in 0..<5 { #expect(try await world.post("x", to: mozilla, sender).status == 201) }
    }

    @Test func messagesWaitForABrowserThatIsOffline() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        await set("offline", browser, world)
        let (one, two) = (String(repeating: "a", count: 22), String(repeating: "b", count: 22))
        for (text, topic, ttl) in [
            ("first", one, "60"), ("second", two, "60"), ("third", one, "60"), ("fourth", nil, "60"), ("fifth", nil, "0"),
        ] {
            #expect(try await world.post(text, to: browser, sender, ["topic": topic, "ttl": ttl]).status == 201)
        }
        func states() async -> [AcceptedWebPush.State] { await world.simulator.webPushes.map(\.state) }
        #expect(await states() == [.replaced, .waiting, .waiting, .waiting, .expired])
        await set("online", browser, world)
        #expect(await states() == [.replaced, .delivered, .delivered, .delivered, .expired])
        // A delivered message is not replaced.
        #expect(try await world.post("sixth", to: browser, sender, ["topic": one]).status == 201)
        #expect(await states().suffix(2) == [.expired, .delivered])
        await set("offline", browser, world)
        _ = try await world.post("seventh", to: browser, sender)
        await set("unsubscribed", browser, world)
        #expect(await states().last == .expired)
    }

    @Test func messagesExpireWithTheirTTL() throws {
        let face = WebPushFace(capacity: 10)
        face.origin = "https://a.example"
        let sender = try Sender()
        let subscription = try face.subscribe(.google, key: sender.vapid.publicKey, keys: .init())
        #expect(face.set(.offline, of: subscription.id, nowMs: 0))
        for ttl in [1, 2] as [UInt64] {
            let message = WebPushMessage(
                subscription: subscription, ttl: ttl, urgency: nil, topic: nil, body: [], http: "2", headers: [:])
            face.accept(message, id: "\(ttl)", nowMs: 1_000)
        }
        #expect(face.set(.online, of: subscription.id, nowMs: 2_500))
        #expect(face.log.pushes.map(\.state) == [.expired, .delivered])
    }

    @Test func onlyTheLastMessagesAreKept() throws {
        var log = WebPushLog(capacity: 3)
        let subscription = WebPushSubscription(id: "0", .google, origin: "", applicationKey: [], keys: nil)
        for at in 0..<100 as Range<UInt64> {
            let message = WebPushMessage(
                subscription: subscription, ttl: 0, urgency: nil, topic: nil, body: [], http: "2", headers: [:])
            log.append(WebPushEntry(id: "", message, at: at))
        }
        #expect(log.pushes.map(\.at) == [97, 98, 99])
    }

    // MARK: Control

    @Test func subscriptionsAreMadeByACall() async throws {
        let world = try await World()
        let sender = try Sender()
        let body = #"{"dialect":"google","applicationServerKey":"\#(sender.vapid.publicKey)"}"#
        let made = await call(world, .post, "/subscriptions", body)
        #expect(made.status == 201)
        let browser = try Browser(.google, Array(made.body.utf8))
        let keys = (Base64URL.encode(browser.p256dh), Base64URL.encode(browser.auth))
        #expect(
            made.body
                == #"{"endpoint":"\#(browser.endpoint)","expirationTime":null,"keys":{"p256dh":"\#(keys.0)","auth":"\#(keys.1)"}}"#
        )
        #expect(try await world.post(to: browser, sender).status == 201)
        let id = String(repeating: "0123456789abcdef", count: 25)
        let long = await call(
            world, .post, "/subscriptions",
            #"{"dialect":"microsoft","applicationServerKey":"\#(sender.vapid.publicKey)","origin":"https://a.example:1","id":"\#(id)"}"#
        )
        #expect(try Browser(.microsoft, Array(long.body.utf8)).endpoint == "https://a.example:1/wp/microsoft/\(id)")
    }

    @Test func wrongSubscriptionsAreRefused() async throws {
        let world = try await World()
        let key = try Sender().vapid.publicKey
        let offCurve = "BA" + String(repeating: "A", count: 85)
        let good = #""dialect":"apple","applicationServerKey":"\#(key)""#
        for body in [
            "", "[]", "{}", #"{"dialect":"apple"}"#, #"{"applicationServerKey":"\#(key)"}"#,
            #"{"dialect":"opera","applicationServerKey":"\#(key)"}"#,
            #"{"dialect":"apple","applicationServerKey":"\#(offCurve)"}"#,
            #"{"dialect":"apple","applicationServerKey":"x"}"#, #"{\#(good),"more":1}"#, #"{\#(good),"origin":"http://a"}"#,
            #"{\#(good),"origin":"https://a/b"}"#, #"{\#(good),"origin":"https://A"}"#, #"{\#(good),"id":"XY"}"#,
            #"{\#(good),"id":""}"#, #"{\#(good),"id":7}"#,
        ] {
            let (status, answer) = await call(world, .post, "/subscriptions", body)
            #expect(status == 400, "\(body)")
            #expect(JSON(parsing: Array(answer.utf8))?["code"] == .string("bad_subscription"))
        }
        #expect(await call(world, .post, "/subscriptions", "{\(good),\"id\":\"ab\"}").status == 201)
        #expect(await call(world, .post, "/subscriptions", "{\(good),\"id\":\"ab\"}").status == 400)
        #expect(await call(world, .put, "/subscriptions/ab", #"{"state":"asleep"}"#).status == 400)
        #expect(await call(world, .put, "/subscriptions/ac", #"{"state":"expired"}"#).status == 404)
        #expect(await call(world, .delete, "/subscriptions/ac").status == 404)
        #expect(await call(world, .get, "/subscriptions").status == 405)
        #expect(await call(world, .get, "/subscriptions/ab").status == 405)
    }

    @Test func bothFacesAreListedByTime() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.apple, sender)
        for _ in 0..<2 {
            #expect(try await world.post(to: browser, sender).status == 201)
            try await world.loop.sleep(3)
            #expect(try await world.client().send(world.headers(), payload).status == 200)
            try await world.loop.sleep(3)
        }
        let (_, body) = await call(world, .get, "/pushes")
        guard case .array(let pushes)? = JSON(parsing: Array(body.utf8)) else {
            Issue.record("not a JSON list: \(body)")
            return
        }
        #expect(pushes.map { $0["dialect"]?.text } == ["apple", nil, "apple", nil])
        #expect(pushes.map { $0["token"]?.text } == [nil, device, nil, device])
        #expect(pushes[0]["subscription"] == .string(browser.id))
        #expect(pushes[0]["text"] == .string(Sender.shown))
        #expect(pushes[0]["ttl"]?.wholeNumber == 60)
        #expect(pushes[0]["topic"] == .null)
        #expect(pushes[0]["http"] == .string("2"))
        #expect(pushes[0]["headers"]?["urgency"] == .string("high"))
        #expect(await call(world, .delete, "/pushes").status == 204)
        #expect(await call(world, .get, "/pushes") == (200, "[]"))
    }
}

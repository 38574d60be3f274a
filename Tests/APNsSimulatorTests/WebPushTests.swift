import EventLoop
import HTTP2
import Linux
import Sodium
import TLS
import Testing
import WebPush

@testable import APNsSimulator

/// The Web Push face over real connections: what it accepts, and what it refuses.
@Suite(.timeLimit(.minutes(1))) struct WebPushTests {
    // MARK: Accepting

    @Test func subscriptionsHaveTheFormOfBrowsers() async throws {
        let world = try await World()
        let sender = try Sender()
        for dialect in PushServiceDialect.allCases {
            let json = try await world.simulator.subscribe(dialect, key: sender.vapid.publicKey)
            let browser = try Browser(dialect, json)
            #expect(browser.endpoint == "https://\(world.address)/wp/\(dialect.rawValue)/\(browser.id)")
            #expect(browser.id.count == 32)
            let read = try PushEndpoint(browser.endpoint.utf8.span, try PushHosts("\(world.address) private"))
            #expect(read.origin == browser.origin)
            let point = browser.p256dh
            let isPoint = ECDHKey.isPoint(point.span)
            #expect(isPoint)
            #expect(browser.auth.count == MessageEncryption.authCount)
        }
    }

    @Test(arguments: PushServiceDialect.allCases)
    func messagesAreDecryptedAndListed(_ dialect: PushServiceDialect) async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(dialect, sender)
        let body = try browser.encrypt(Sender.shown)
        let headers = World.headers(
            to: browser, try sender.fields(to: browser, ["topic": "AAAAAAAAAAAAAAAAAAAAAA", "ttl": "30"]))
        let answer = try await world.client().send(headers, body)
        #expect(answer.status == (dialect == .ntfy ? 200 : 201))
        let push = try #require(await world.simulator.webPushes.first)
        #expect((push.dialect, push.subscription, push.state) == (dialect, browser.id, .delivered))
        #expect(push.text == Array(Sender.shown.utf8))
        #expect((push.ttl, push.urgency, push.topic) == (30, "high", "AAAAAAAAAAAAAAAAAAAAAA"))
        #expect((push.bodyBytes, push.http) == (1_127, "2"))
        #expect(push.keyID == Base64URL.encode(Array(body[21..<86])))
        #expect(push.headers["authorization"] == nil)
        #expect(push.headers["content-encoding"] == "aes128gcm")
        #expect(Clock.wallMs - push.at < 60_000)
        #expect(await world.simulator.counts == .init(connections: 1, accepted: 1))
        #expect(await world.simulator.pushes == [])
        await world.simulator.forgetPushes()
        #expect(await world.simulator.webPushes == [])
    }

    @Test func acceptedMessagesGetTheDialectsAnswer() async throws {
        let world = try await World()
        let sender = try Sender()
        func answer(_ dialect: PushServiceDialect, _ changes: [String: String?] = [:]) async throws -> TestResponse {
            try await world.post(to: try await world.subscribe(dialect, sender), sender, changes)
        }
        let mozilla = try await answer(.mozilla, ["ttl": "9999999"])
        #expect((mozilla.headers["ttl"], mozilla.body) == ("5184000", ""))
        #expect(mozilla.headers["location"]?.hasPrefix("https://\(world.address)/m/") == true)
        #expect(try await answer(.google).headers["location"] != nil)
        #expect(try await answer(.apple).headers["apns-id"]?.count == 36)
        let microsoft = try await answer(.microsoft)
        #expect(microsoft.headers["x-wns-status"] == "received")
        let text = try await answer(.ntfy).body
        let ntfy = try #require(JSON(parsing: Array(text.utf8)))
        #expect(ntfy["event"] == .string("message"))
    }

    @Test func messagesRaiseTheLimitOfStreams() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        let client = try await world.client()
        let refused = World.headers(to: browser, try sender.fields(to: browser, ["authorization": "vapid t=x, k=x"]))
        #expect(try await client.send(refused, [0]).status == 401)
        #expect(await client.streamsAllowed == 1000)
        let fine = World.headers(to: browser, try sender.fields(to: browser))
        #expect(try await client.send(fine, try browser.encrypt("x")).status == 201)
        #expect(await client.streamsAllowed == 1000)
        // APNs has the same limit on this connection as on any other.
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(try await client.send(world.headers(["authorization": "bearer x"]), payload).status == 403)
        #expect(await client.streamsAllowed == 1)
    }

    @Test func messagesThatDoNotOpenAreListedWithoutText() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        let headers = World.headers(to: browser, try sender.fields(to: browser))
        var damaged = try browser.encrypt("x")
        damaged[200] ^= 1
        var oneByOne = try browser.encrypt("x")
        // A record size below the record's.
        oneByOne[18] = 0
        let other = try MessageEncryption.encrypt([1], to: browser.p256dh.span, auth: Sodium.randomBytes(16).span)
        for body in [damaged, oneByOne, other] {
            // No service can see it.
            #expect(try await world.client().send(headers, body).status == 201)
        }
        let pushes = await world.simulator.webPushes
        #expect(pushes.count == 3)
        #expect(pushes.allSatisfy { $0.text == nil && $0.bodyBytes == 1_127 })
    }

    /// RFC 8291, appendix A.
    @Test func theExampleOfTheSpecificationOpens() throws {
        let message = try #require(
            Base64.url.decode(
                "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
            ))
        let number = try #require(Base64.url.decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
        let key = try ECDHKey(number.span)
        let auth = try #require(Base64.url.decode("BTBZMqHH6r4Tts7J_aSIgg"))
        let text = "When I grow up, I want to be a watermelon"
        #expect(MessageOpener.open(message, key: key, auth: auth) == Array(text.utf8))
        #expect(MessageOpener.open(message, key: try ECDHKey(), auth: auth) == nil)
        #expect(MessageOpener.open(Array(message.dropLast()), key: key, auth: auth) == nil)
        #expect(MessageOpener.open([], key: key, auth: auth) == nil)
    }

    // MARK: Refusing

    /// What a refused token is answered: Mozilla, Google, Apple, Microsoft, ntfy.
    private static let refusedTokens = [401, 403, 403, 401, 403]
    private static let otherKeys = [401, 403, 400, 401, 403]

    private enum Token: CaseIterable {
        case otherSigner, audience, noAudience, past, tooFar, noExpiry, textExpiry, noContact, oddContact, algorithm, type,
            notAKey,
            noKey, twice
    }

    private func header(_ token: Token, _ sender: Sender, _ browser: Browser) throws -> String {
        let now = Clock.wallMs / 1_000
        func claims(_ aud: String? = nil, _ exp: String? = nil, _ sub: String = #","sub":"mailto:a@example.org""#) -> String {
            #"{"aud":"\#(aud ?? browser.origin)","exp":\#(exp ?? "\(now + 60)")\#(sub)}"#
        }
        let valid = try sender.authorization(browser.origin)
        return switch token {
        case .otherSigner:
            try Sender().authorization(browser.origin).split(separator: ",")[0] + ", k=\(sender.vapid.publicKey)"
        case .audience: try sender.authorization(claims: claims("https://other.example"))
        case .noAudience: try sender.authorization(claims: #"{"exp":\#(now + 60),"sub":"mailto:a@example.org"}"#)
        case .past: try sender.authorization(claims: claims(nil, "\(now - 1)"))
        case .tooFar: try sender.authorization(claims: claims(nil, "\(now + 86_500)"))
        case .noExpiry: try sender.authorization(claims: claims(nil, "null"))
        case .textExpiry: try sender.authorization(claims: claims(nil, #""\#(now + 60)""#))
        case .noContact: try sender.authorization(claims: claims(nil, nil, ""))
        case .oddContact: try sender.authorization(claims: claims(nil, nil, #","sub":"push@example.org""#))
        case .algorithm: try sender.authorization(claims: claims(), head: #"{"typ":"JWT","alg":"none"}"#)
        case .type: try sender.authorization(claims: claims(), head: #"{"typ":"AT","alg":"ES256"}"#)
        case .notAKey: valid.split(separator: ",")[0] + ", k=BAAA"
        case .noKey: String(valid.split(separator: ",")[0])
        case .twice: valid + ", k=\(sender.vapid.publicKey)"
        }
    }

    @Test(arguments: Array(PushServiceDialect.allCases.enumerated()))
    func wrongTokensAreRefused(_ index: Int, _ dialect: PushServiceDialect) async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(dialect, sender)
        for token in Token.allCases {
            let answer = try await world.post(to: browser, sender, ["authorization": try header(token, sender, browser)])
            #expect(answer.status == Self.refusedTokens[index], "\(token)")
        }
        // Valid, but of another key than the subscription's.
        let stranger = try Sender().authorization(browser.origin)
        #expect(try await world.post(to: browser, sender, ["authorization": stranger]).status == Self.otherKeys[index])
        for missing in [nil, "bearer x", "WebPush x", "vapid"] as [String?] {
            let status = dialect == .google || dialect == .ntfy ? 401 : Self.refusedTokens[index]
            #expect(try await world.post(to: browser, sender, ["authorization": missing]).status == status)
        }
        #expect(await world.simulator.webPushes == [])
        // The parameters may come in any order, and the scheme in any case.
        let parts = try sender.authorization(browser.origin).dropFirst("vapid ".count).split(separator: ", ")
        let turned = "Vapid \(parts[1]),\(parts[0])"
        #expect(try await world.post(to: browser, sender, ["authorization": turned]).status / 100 == 2)
    }

    @Test func refusalsSayWhyInTheDialect() async throws {
        let world = try await World()
        let sender = try Sender()
        func answer(_ dialect: PushServiceDialect, _ header: String?) async throws -> TestResponse {
            try await world.post(to: try await world.subscribe(dialect, sender), sender, ["authorization": header])
        }
        let stranger = try Sender().authorization("https://\(world.address)")
        let text = try await answer(.mozilla, stranger).body
        let mozilla = try #require(JSON(parsing: Array(text.utf8)))
        #expect(mozilla["errno"]?.wholeNumber == 109)
        #expect(mozilla["message"] == .string("k is not the key of the subscription"))
        let google = try await answer(.google, stranger)
        #expect(google.body.hasPrefix("the VAPID credentials in the authorization header do not correspond"))
        #expect(google.headers["content-type"] == "text/plain; charset=utf-8")
        #expect(try await answer(.apple, stranger).body == #"{"reason":"VapidPkHashMismatch"}"#)
        #expect(try await answer(.apple, nil).body == #"{"reason":"BadJwtToken"}"#)
        #expect(
            try await answer(.microsoft, stranger).headers["x-wns-error-description"] == "k is not the key of the subscription")
        #expect(try await answer(.ntfy, stranger).body == #"{"code":40301,"http":403,"error":"forbidden"}"# + "\n")
    }

    @Test(
        arguments: [
            "mailto:push@localhost", "mailto:push@mail.local", "mailto:<push@example.org>", "mailto: push@example.org",
            "mailto:push", "mailto:@example.org", "https://localhost/", "https:example.org", "https://x.invalid", "https://",
        ])
    func appleRefusesContactsWithoutAPublicHost(_ contact: String) async throws {
        let world = try await World()
        let sender = try Sender()
        for dialect in PushServiceDialect.allCases {
            let browser = try await world.subscribe(dialect, sender)
            let header = try sender.authorization(browser.origin, contact: contact)
            let answer = try await world.post(to: browser, sender, ["authorization": header])
            if dialect == .apple {
                #expect((answer.status, answer.body) == (403, #"{"reason":"BadJwtToken"}"#))
            } else {
                #expect(answer.status / 100 == 2)
            }
        }
    }

    @Test(
        arguments: [
            (["ttl": nil], 111, "BadTtl"), (["ttl": "-1"], 111, "BadTtl"), (["ttl": "1.5"], 111, "BadTtl"),
            (["ttl": ""], 111, "BadTtl"), (["ttl": "99999999999"], 111, "BadTtl"), (["urgency": "urgent"], nil, "BadUrgency"),
            (["topic": String(repeating: "a", count: 36)], 113, "BadWebPushTopic"), (["topic": "a+b="], 113, "BadWebPushTopic"),
            // 13 characters can't be base64url.
            (["topic": "neue-angebote"], 113, "BadWebPushTopic"), (["topic": ""], 113, "BadWebPushTopic"),
            (["content-encoding": nil], 110, "BadWebPushRequest"), (["content-encoding": "aesgcm"], 110, "BadWebPushRequest"),
            (["crypto-key": "dh=x"], 110, "BadWebPushRequest"), (["encryption": "salt=x"], 110, "BadWebPushRequest"),
        ] as [([String: String?], UInt64?, String)])
    func wrongFieldsAreRefused(_ changes: [String: String?], _ number: UInt64?, _ reason: String) async throws {
        let world = try await World()
        let sender = try Sender()
        for dialect in PushServiceDialect.allCases {
            let answer = try await world.post(to: try await world.subscribe(dialect, sender), sender, changes)
            #expect(answer.status == 400)
            if dialect == .mozilla { #expect(JSON(parsing: Array(answer.body.utf8))?["errno"]?.wholeNumber == number) }
            if dialect == .apple { #expect(answer.body == #"{"reason":"\#(reason)"}"#) }
        }
        #expect(await world.simulator.webPushes == [])
    }

    @Test func repeatedFieldsAreRefused() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.google, sender)
        let headers = World.headers(to: browser, try sender.fields(to: browser) + [("ttl", "60")])
        #expect(try await world.client().send(headers, try browser.encrypt("x")).status == 400)
    }

    @Test(
        arguments: [
            (0, 400), (102, 400), (103, 201), (4_096, 201), (4_097, 413), (5_000, 413), (6_000, 413), (100_000, 413),
        ])
    func bodiesHaveALengthThatFits(_ count: Int, _ status: Int) async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        let headers = World.headers(to: browser, try sender.fields(to: browser))
        var body = Array(try browser.encrypt("").prefix(count))
        body += [UInt8](repeating: 0, count: count - body.count)
        let answer = try await world.client().send(headers, body)
        #expect(answer.status == status)
        if status == 413 { #expect(JSON(parsing: Array(answer.body.utf8))?["errno"]?.wholeNumber == 104) }
    }

    @Test func otherPathsAndMethodsAreRefused() async throws {
        let world = try await World()
        let sender = try Sender()
        let browser = try await world.subscribe(.mozilla, sender)
        let fields = try sender.fields(to: browser)
        let body = try browser.encrypt("x")
        func status(_ path: String, _ method: String = "POST") async throws -> Int {
            try await world.client().send(World.headers(to: browser, fields, method: method, path: path), body).status
        }
        for path in [
            "/wp/", "/wp/opera/\(browser.id)", "/wp/mozilla", "/wp/mozilla/", "/wp/mozilla/00", "/wp/google/\(browser.id)",
            browser.path + "/", browser.path + "?a",
        ] {
            #expect(try await status(path) == 404, "\(path)")
        }
        #expect(try await status(browser.path, "PUT") == 405)
        #expect(try await status(browser.path) == 201)
    }

    @Test func otherHostsAreRefused() async throws {
        let world = try await World()
        let sender = try Sender()
        // An endpoint may have any host, e.g. for a resolver of the tests.
        let browser = try await world.subscribe(.google, sender, origin: "https://fcm.googleapis.com")
        #expect(browser.endpoint == "https://fcm.googleapis.com/wp/google/\(browser.id)")
        #expect(try await world.post(to: browser, sender).status == 201)
        var headers = HTTP2Headers(capacity: 1024)
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":path", browser.path)
        headers.append(":authority", "\(world.address)")
        for (name, value) in try sender.fields(to: browser) { headers.append(name, value) }
        #expect(try await world.client().send(headers, try browser.encrypt("x")).status == 421)
    }
}

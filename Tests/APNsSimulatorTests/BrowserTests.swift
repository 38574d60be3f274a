import EventLoop
import HTTPServer
import Linux
import Sodium
import TLS
import Testing
import WebPush

@testable import APNsSimulator

/// Mozilla's WebSocket protocol, with the messages that Firefox sends.
@Suite(.timeLimit(.minutes(1))) struct BrowserTests {
    private static let channel = "a7695fa0-9623-4890-9c08-cce0231e4b36"

    /// A browser at its WebSocket.
    private struct Firefox {
        let socket: WebSocketClient

        init(_ world: World, _ address: SocketAddress) async throws {
            socket = WebSocketClient(loop: world.loop)
            try await socket.connect("ws://\(address)/", headers: [.init("Sec-WebSocket-Protocol", "push-notification")])
        }

        func send(_ text: String) async throws { try await socket.send(Array(text.utf8)) }

        func receive() async throws -> JSON {
            let message = try #require(try await socket.receive())
            return try #require(JSON(parsing: message))
        }

        func ask(_ text: String) async throws -> JSON {
            try await send(text)
            return try await receive()
        }
    }

    private func play(_ story: (World, SocketAddress) async throws -> Void) async throws {
        let world = try await World { configuration, _ in configuration.browsers = .v4(0x7f00_0001, port: 0) }
        try await story(world, try #require(world.browsers))
        await world.simulator.stop()
    }

    /// Says hello and registers a channel. Returns the browser's id and its subscription, with keys that the simulator doesn't know.
    private func register(
        _ firefox: Firefox, _ sender: Sender, _ key: ECDHKey, _ auth: [UInt8]
    ) async throws -> (id: String, Browser) {
        let hello = try await firefox.ask(#"{"messageType":"hello","broadcasts":{},"use_webpush":true}"#)
        #expect(hello["status"]?.wholeNumber == 200)
        #expect(hello["use_webpush"] == .bool(true))
        let made = try await firefox.ask(
            #"{"channelID":"\#(Self.channel)","messageType":"register","key":"\#(sender.vapid.publicKey)="}"#)
        #expect(made["messageType"]?.text == "register")
        #expect(made["channelID"]?.text == Self.channel)
        #expect(made["status"]?.wholeNumber == 200)
        let endpoint = try #require(made["pushEndpoint"]?.text)
        let point = Base64URL.encode(key.point)
        let json =
            #"{"endpoint":"\#(endpoint)","expirationTime":null,"keys":{"p256dh":"\#(point)","auth":"\#(Base64URL.encode(auth))"}}"#
        return (try #require(hello["uaid"]?.text), try Browser(.mozilla, Array(json.utf8)))
    }

    private func ack(_ notification: JSON, _ code: Int) -> String {
        #"{"messageType":"ack","updates":[{"channelID":"\#(Self.channel)","version":"\#(notification["version"]?.text ?? "")","#
            + #""code":\#(code)}]}"#
    }

    @Test func messagesReachTheBrowserAsTheyCame() async throws {
        try await play { world, address in
            let (sender, key, auth) = (try Sender(), try ECDHKey(), Sodium.randomBytes(16))
            let firefox = try await Firefox(world, address)
            let (_, browser) = try await register(firefox, sender, key, auth)
            #expect(try await world.post("hello", to: browser, sender, ["topic": "aaaa"]).status == 201)
            let notification = try await firefox.receive()
            #expect(notification["messageType"]?.text == "notification")
            #expect(notification["channelID"]?.text == Self.channel)
            #expect(notification["headers"]?["encoding"]?.text == "aes128gcm")
            #expect(notification["ttl"]?.wholeNumber == 60)
            #expect(notification["topic"]?.text == "aaaa")
            let data = try #require(notification["data"]?.text)
            let body = try #require(Base64.url.decode(data))
            #expect(MessageOpener.open(body, key: key, auth: auth) == Array("hello".utf8))
            var push = try #require(await world.simulator.webPushes.last)
            #expect((push.state, push.acknowledgement, push.text) == (.waiting, nil, nil))
            try await firefox.send(ack(notification, 100))
            // The answer to the ping comes after the acknowledgement.
            #expect(try await firefox.ask("{}") == .object([:]))
            push = try #require(await world.simulator.webPushes.last)
            #expect((push.state, push.acknowledgement) == (.delivered, 100))
            // Another that it can't decrypt.
            #expect(try await world.post(to: browser, sender).status == 201)
            try await firefox.send(ack(try await firefox.receive(), 101))
            _ = try await firefox.ask("{}")
            #expect(await world.simulator.webPushes.last?.acknowledgement == 101)
            // The page's code failed.
            let version = notification["version"]?.text ?? ""
            try await firefox.send(#"{"messageType":"nack","version":"\#(version)","code":301}"#)
            _ = try await firefox.ask("{}")
            #expect(await world.simulator.webPushes.first?.acknowledgement == 301)
        }
    }

    @Test func messagesWaitForTheBrowser() async throws {
        try await play { world, address in
            let (sender, key, auth) = (try Sender(), try ECDHKey(), Sodium.randomBytes(16))
            var firefox = try await Firefox(world, address)
            let (id, browser) = try await register(firefox, sender, key, auth)
            #expect(try await world.post("unacknowledged", to: browser, sender).status == 201)
            _ = try await firefox.receive()
            await firefox.socket.close()
            while await world.simulator.state(of: browser.id) != .offline { try await world.loop.sleep(1) }
            for (text, topic, ttl) in [("first", "aaaa", "60"), ("second", "aaaa", "60"), ("late", nil, "0")] {
                #expect(try await world.post(text, to: browser, sender, ["topic": topic, "ttl": ttl]).status == 201)
            }
            firefox = try await Firefox(world, address)
            let hello = try await firefox.ask(#"{"messageType":"hello","uaid":"\#(id)","use_webpush":true}"#)
            #expect(hello["uaid"]?.text == id)
            for text in ["unacknowledged", "second"] {
                let notification = try await firefox.receive()
                let data = try #require(notification["data"]?.text)
                let body = try #require(Base64.url.decode(data))
                #expect(MessageOpener.open(body, key: key, auth: auth) == Array(text.utf8))
                try await firefox.send(ack(notification, 100))
            }
            _ = try await firefox.ask("{}")
            #expect(await world.simulator.webPushes.map(\.state) == [.delivered, .replaced, .delivered, .expired])
        }
    }

    @Test func unregisteredChannelsAreGone() async throws {
        try await play { world, address in
            let sender = try Sender()
            let firefox = try await Firefox(world, address)
            let (_, browser) = try await register(firefox, sender, try ECDHKey(), Sodium.randomBytes(16))
            let gone = try await firefox.ask(#"{"channelID":"\#(Self.channel)","messageType":"unregister","code":200}"#)
            #expect(gone["status"]?.wholeNumber == 200)
            let answer = try await world.post(to: browser, sender)
            #expect(answer.status == 410)
            #expect(JSON(parsing: Array(answer.body.utf8))?["errno"]?.wholeNumber == 106)
        }
    }

    @Test func wrongMessagesAreAnsweredOrIgnored() async throws {
        try await play { world, address in
            let firefox = try await Firefox(world, address)
            // Before hello, nothing but a ping is answered.
            for text in ["x", "[]", #"{"messageType":"register","channelID":"a","key":"x"}"#, #"{"messageType":"ack"}"#] {
                try await firefox.send(text)
            }
            #expect(try await firefox.ask("{}") == .object([:]))
            let hello = try await firefox.ask(#"{"messageType":"hello","uaid":"unknown"}"#)
            #expect(hello["uaid"]?.text?.count == 32)
            for key in ["", #","key":"AAAA""#] {
                let answer = try await firefox.ask(#"{"messageType":"register","channelID":"a"\#(key)}"#)
                #expect(answer["status"]?.wholeNumber == 400)
            }
            for text in [
                #"{"messageType":"broadcast_subscribe","broadcasts":{}}"#, #"{"messageType":"nack","version":"1","code":301}"#,
                #"{"messageType":"ack","updates":[{}]}"#, #"{"messageType":"ack","updates":[{"channelID":"a","version":"1"}]}"#,
            ] { try await firefox.send(text) }
            #expect(try await firefox.ask("{}") == .object([:]))
        }
    }
}

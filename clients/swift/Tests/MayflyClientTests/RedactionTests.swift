import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// Nothing that the library returns, throws or takes shows a secret.
struct RedactionTests {
    private func expectHidden(_ value: Any, _ secrets: [String], _ location: SourceLocation = #_sourceLocation) {
        var dumped = ""
        dump(value, to: &dumped)
        let shown = [
            dumped, "\(value)", String(describing: value), String(reflecting: value),
            "\(Mirror(reflecting: value).children.map { $0 })",
        ]
        for (text, secret) in shown.flatMap({ text in secrets.map { (text, $0) } }) {
            #expect(
                !text.contains(secret), "shown: \(text.replacingOccurrences(of: secret, with: "SECRET"))",
                sourceLocation: location)
        }
        #expect(shown.allSatisfy { !$0.isEmpty }, sourceLocation: location)
    }

    private func secrets(_ room: Room) -> [String] {
        [room.roomID.value, room.member.value, room.clientID.value] + [room.ref?.value].compactMap { $0 }
    }

    @Test func valuesHideTheirSecrets() throws {
        let (secret, token, code) = (Secret.random(bytes: 16), PushToken.random(), JoinCode.random())
        expectHidden(secret, [secret.value])
        expectHidden(token, [token.hex])
        expectHidden(code, [code.text, code.display])
        expectHidden([code: [token]], [code.text, token.hex])
        let room = try Room.sample()
        expectHidden(room, secrets(room))
        expectHidden(Optional(room) as Any, secrets(room))
        let notification = try #require(RoomNotification(payload: ["roomId": room.handle!], rooms: [(room, "n")]))
        expectHidden(notification, secrets(room))
        let report = PushRegistration.Report(updated: [room], ended: [room], failed: [(room, MayflyError.noAnswer(""))])
        expectHidden(report, secrets(room))
        let (ref, key) = (String(repeating: "7b", count: 16), Secret.random(bytes: 32).value)
        let json = #"{"tokenId":"tok_AAECAwQFBgcICQoLDA0ODw","ref":"\#(ref)","expiresAt":0,"handleKey":"\#(key)"}"#
        let registration = try JSONDecoder().decode(Registration.self, from: Data(json.utf8))
        expectHidden(registration, [ref, key])
        let table = registration.table(.session, ["s"])
        expectHidden(table, [ref, key])
    }

    @Test func requestsAndAnswersHideTheirSecrets() async throws {
        let transport = ScriptedTransport { _, _ in
            TransportResponse(status: 200, contentType: "application/json", retryAfter: nil, body: Data(#"{"purged":1}"#.utf8))
        }
        let client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        let room = try Room.sample()
        #expect(try await client.withdrawToken(in: room))
        let request = try #require(transport.requests.first)
        #expect(request.headers["Authorization"]?.contains(room.roomID.value) == true)
        // Capabilities never travel in URLs.
        for secret in secrets(room) { #expect(!request.url.absoluteString.contains(secret)) }
        let body = try #require(request.body)
        // Bytes are printed as numbers.
        let numbers = body.map(String.init).joined(separator: ", ")
        expectHidden(request, secrets(room) + [numbers])
        expectHidden(TransportResponse(status: 200, contentType: nil, retryAfter: nil, body: body), secrets(room) + [numbers])
        expectHidden(client, secrets(room))
    }

    /// URLs end up in the logs of proxies.
    @Test func noURLHasASecret() async throws {
        let urls = Texts()
        let real = SocketTransport()
        let transport = ScriptedTransport(
            connect: { _, url in
                urls.add(url.absoluteString)
                return try await real.connect(url)
            },
            { _, request in
                urls.add(request.url.absoluteString)
                return try await real.send(request)
            })
        let client = try TestBroker.shared.client(transport)
        let (code, token) = (JoinCode.random(), PushToken.random())
        let created = try await client.createRoom(code: code, token: token)
        let joined = try await client.acceptRoom(code: code, token: token)
        _ = try await client.status(of: created)
        let replaced = try await client.replaceToken(.random(), in: created)
        try await client.reportPresence(in: joined)
        let session = await client.join(created)
        for await event in session {
            guard case .joined = event else { continue }
            break
        }
        await session.leave()
        try await client.withdrawToken(in: created)
        try await client.close(created)
        let jwt = try TestBroker.shared.jwt("user-\(UUID().uuidString)")
        let device = try await Accounts(client: client) { jwt }.registerDevice(token)
        try await Accounts(client: client) { jwt }.deleteToken(device)
        #expect(urls.all.count == 10)
        for secret in [code.text, token.hex, jwt, device.ref.value] + secrets(created) + secrets(joined) + secrets(replaced) {
            #expect(urls.all.allSatisfy { !$0.contains(secret) })
        }
    }

    private final class Texts: @unchecked Sendable {
        private let lock = NSLock()
        private var texts: [String] = []
        var all: [String] { lock.withLock { texts } }
        func add(_ text: String) { lock.withLock { texts.append(text) } }
    }

    @Test func sessionsHideTheirRoom() async throws {
        let transport = ScriptedTransport(
            connect: { _, _ in throw MayflyError.unreachable("test") }, { _, _ in throw MayflyError.unreachable("test") })
        let client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        let room = try Room.sample()
        let session = await client.join(room)
        expectHidden(session, secrets(room))
        let push = PushRegistration(client: client)
        let token = PushToken.random()
        await push.register(Data(hex: token.hex)!)
        await push.add(room)
        expectHidden(push, secrets(room) + [token.hex])
        let accounts = Accounts(client: client) { "the-jwt" }
        expectHidden(accounts, ["the-jwt"])
        let feed = await accounts.followSessions()
        await feed.claim("the-session", device: "the-device", token: token, of: "the-user")
        expectHidden(feed, ["the-jwt", token.hex])
        await feed.leave()
        await session.leave()
    }

    /// Names of sessions and printers, JWTs, tokens.
    @Test func requestsOfAccountsHideWhatTheyName() async throws {
        let transport = ScriptedTransport { _, _ in throw MayflyError.unreachable("test") }
        let client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        let accounts = Accounts(client: client) { "the-jwt" }
        let token = PushToken.random()
        let registration = try Registration.sample()
        let calls: [@Sendable () async throws -> Void] = [
            { _ = try await accounts.respond(to: "the-request", approved: true, from: token) },
            { _ = try await accounts.approval("the-request") },
            { _ = try await accounts.clearApproval("the-request", except: token) },
            { _ = try await accounts.clearSession("the-session", of: "the-user") },
            { _ = try await accounts.report(.approvalRequest(id: "the-id"), in: "the-session", of: "the-user") },
            { _ = try await accounts.monitors(of: "the-printer") },
            { _ = try await accounts.reportStatus(of: "the-printer", from: .idle, to: .running) },
            { _ = try await accounts.reportProgress(of: "the-printer", percent: 1) },
            { try await accounts.updateMonitor(registration, MonitorSettings()) },
            { _ = try await accounts.registerPhone(token, uid: "the-user") },
            { _ = try await accounts.testPush(.monitor(printer: "the-printer")) },
            { try await accounts.logOut([registration], phone: ("the-user", token)) },
        ]
        for call in calls {
            let error = await #expect(throws: MayflyError.unreachable("test")) { try await call() }
            expectHidden(error as Any, ["the-", token.hex])
        }
        #expect(transport.requests.count == calls.count + 1)
        for request in transport.requests {
            expectHidden(request, ["the-", token.hex, registration.id])
            // Tokens and users never travel in URLs.
            for secret in [token.hex, "the-user", "the-jwt"] { #expect(!request.url.absoluteString.contains(secret)) }
        }
    }

    @Test func errorsHideTheRequest() async throws {
        struct Foreign: Error {
            let everything: TransportRequest
            let body: String
        }
        let (code, token) = (JoinCode.random(), PushToken.random())
        let transport = ScriptedTransport { _, request in
            throw Foreign(everything: request, body: String(decoding: request.body ?? Data(), as: UTF8.self))
        }
        var client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        client.repeatWindow = .zero
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: code, token: token) }
        #expect(error == .noAnswer("Foreign"))
        expectHidden(error as Any, [code.text, token.hex])
        #expect(error?.errorDescription?.isEmpty == false)
    }

    /// The broker's own refusals, with everything that could be repeated.
    @Test func refusalsHideTheRequest() async throws {
        let client = try TestBroker.shared.client()
        let (code, token) = (JoinCode.random(), PushToken.random())
        let room = try Room.sample()
        for call in [
            { _ = try await client.createRoom(code: code, token: token, lifetime: .seconds(1)) },
            { _ = try await client.acceptRoom(code: code, token: token) },
            { _ = try await client.replaceToken(token, in: room) },
            { _ = try await client.close(room) },
        ] as [@Sendable () async throws -> Void] {
            let error = await #expect(throws: MayflyError.self) { try await call() }
            expectHidden(error as Any, [code.text, token.hex] + secrets(room))
            expectHidden(error?.errorDescription as Any, [code.text, token.hex] + secrets(room))
        }
    }

    @Test func aRoomSurvivesTheKeychain() async throws {
        let (room, _) = try await TestBroker.shared.room((.random(), nil))
        let kept = try JSONEncoder().encode(room)
        #expect(try JSONDecoder().decode(Room.self, from: kept) == room)
    }
}

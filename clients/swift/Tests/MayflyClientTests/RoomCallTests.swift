import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// Every call of a room, against a real broker.
struct RoomCallTests {
    private let broker = TestBroker.shared

    @Test func aRoomFromCodeToEnd() async throws {
        let client = try broker.client()
        let code = JoinCode.random()
        let created = try await client.createRoom(
            code: code, token: .random(), lifetime: .seconds(3600), joinLifetime: .seconds(600))
        #expect(created.side == .creator)
        #expect(created.ref?.value.count == 32)
        let joinExpiresAt = try #require(created.joinExpiresAt)
        #expect(abs(created.expiresAt.timeIntervalSince(joinExpiresAt) - 3000) < 2)
        #expect(try await !client.status(of: created).accepted)

        let joined = try await client.acceptRoom(code: JoinCode(typed: code.display.lowercased())!)
        #expect(joined.side == .joiner)
        #expect(joined.roomID == created.roomID)
        #expect(joined.member != created.member)
        #expect(joined.clientID != created.clientID)
        #expect(joined.ref == nil)
        #expect(joined.joinExpiresAt == nil)

        let status = try await client.status(of: joined)
        #expect(status.accepted && status.creatorHasToken && !status.joinerHasToken)
        #expect(!status.creatorPresent && !status.joinerPresent)

        let withToken = try await client.replaceToken(.random(), in: joined)
        #expect(withToken.ref?.value.count == 32)
        #expect(withToken.roomID == joined.roomID && withToken.member == joined.member)
        #expect(try await client.status(of: joined).joinerHasToken)
        #expect(try await client.withdrawToken(in: withToken))
        #expect(try await !client.withdrawToken(in: withToken))
        #expect(try await !client.status(of: joined).joinerHasToken)

        #expect(try await client.close(created) == 1)
        let error = await #expect(throws: MayflyError.self) { try await client.close(joined) }
        #expect(error?.refusal?.code == .roomNotFound)
        #expect(error?.refusal?.kind == .gone)
    }

    @Test func lifetimesAreTheBrokersWithoutOnes() async throws {
        let (created, _) = try await broker.room()
        #expect(abs(created.expiresAt.timeIntervalSinceNow - 86_400) < 60)
    }

    @Test func aReportKnocksAndAPushComesByHandle() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((token, nil))
        let client = try broker.client()
        #expect(try await client.reportPresence(in: joined) == .queued)
        let push = try await broker.push(to: token)
        #expect(push.payload.roomId == created.handle)
        #expect(push.payload.roomId != joined.handle)
        #expect(try await client.reportPresence(in: created) == .peerPresent)
        #expect(try await client.reportPresence(in: created, leaving: true) == .none)
        // The joiner gave no token.
        let (_, other) = try await broker.room()
        #expect(try await client.reportPresence(in: other) == .noToken)
    }

    @Test func aSideTriesItsOwnAddress() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((token, nil))
        let client = try broker.client()
        #expect(try await client.testPush(in: created) == .queued)
        #expect(try await broker.push(to: token).payload.roomId == created.handle)
        #expect(try await client.testPush(in: joined) == .noToken)
        for _ in 2...3 { #expect(try await client.testPush(in: created) == .queued) }
        let error = await #expect(throws: MayflyError.self) { try await client.testPush(in: created) }
        #expect(error?.refusal?.kind == .exhausted)
    }

    @Test func aReplacedTokenGetsThePush() async throws {
        let (old, new) = (PushToken.random(), PushToken.random())
        let (created, joined) = try await broker.room((old, nil))
        let client = try broker.client()
        let replaced = try await client.replaceToken(new, in: created)
        #expect(replaced.ref != created.ref)
        // The same token again changes nothing.
        #expect(try await client.replaceToken(new, in: replaced) == replaced)
        #expect(try await client.reportPresence(in: joined) == .queued)
        #expect(try await broker.push(to: new).payload.roomId == created.handle)
        #expect(try await broker.pushes(to: old).isEmpty)
    }
}

/// The refusals that a client can cause, each by its code.
struct RefusalTests {
    private let broker = TestBroker.shared

    private func expect(
        _ code: ErrorCode, _ kind: Refusal.Kind, field: String? = nil, _ location: SourceLocation = #_sourceLocation,
        _ call: () async throws -> Void
    ) async {
        let error = await #expect(throws: MayflyError.self, sourceLocation: location) { try await call() }
        #expect(error?.refusal?.code == code, sourceLocation: location)
        #expect(error?.refusal?.kind == kind, sourceLocation: location)
        #expect(error?.refusal?.field == field, sourceLocation: location)
        #expect(error?.refusal?.detail.isEmpty == false, sourceLocation: location)
    }

    @Test func ofCreateAndAccept() async throws {
        let client = try broker.client()
        let code = JoinCode.random()
        await expect(.outOfRange, .invalid, field: "expiresInSeconds") {
            _ = try await client.createRoom(code: code, lifetime: .seconds(9))
        }
        await expect(.outOfRange, .invalid, field: "joinExpiresInSeconds") {
            _ = try await client.createRoom(code: code, joinLifetime: .seconds(9))
        }
        await expect(.invalidToken, .invalid, field: "client1_token") {
            _ = try await client.createRoom(code: code, token: PushToken(Data()))
        }
        let other = try broker.client(bundleID: "org.example.unknown")
        await expect(.appNotServed, .invalid) { _ = try await other.createRoom(code: code, token: .random()) }
        await expect(.roomNotFound, .gone) { _ = try await client.acceptRoom(code: code) }
        _ = try await client.createRoom(code: code)
        await expect(.joinCodeInUse, .conflict) { _ = try await client.createRoom(code: code) }
        _ = try await client.acceptRoom(code: code)
        await expect(.roomAlreadyAccepted, .conflict) { _ = try await client.acceptRoom(code: code) }
    }

    @Test func ofMembers() async throws {
        let client = try broker.client()
        let (room, _) = try await broker.room()
        let stranger = try Room.sample(roomID: room.roomID.value)
        await expect(.notAMember, .unauthorized) { _ = try await client.withdrawToken(in: stranger) }
        let thief = try Room.sample(roomID: room.roomID.value, clientID: room.clientID.value)
        await expect(.notAMember, .unauthorized) { _ = try await client.withdrawToken(in: thief) }
        let broken = try Room.sample(roomID: "abc")
        await expect(.malformedCapability, .unauthorized) { _ = try await client.status(of: broken) }
        let unknown = try Room.sample()
        await expect(.roomNotFound, .gone) { _ = try await client.status(of: unknown) }
        // A side that has used `member` is bound to it.
        try await client.withdrawToken(in: room)
        await expect(.memberRequired, .unauthorized) {
            let _: RoomStatus = try await client.call(
                "DELETE", "api/room/token", ["client": .text(room.clientID.value)], bearer: room.roomID)
        }
        await expect(.noCapability, .unauthorized) { let _: RoomStatus = try await client.call("GET", "api/room") }
    }

    @Test func ofLimits() async throws {
        var client = try broker.client()
        client.patience = .zero
        let (room, _) = try await broker.room()
        // Five reports in five seconds; a sixth is refused unless all took longer.
        let error = await #expect(throws: MayflyError.self) {
            for _ in 0..<100 { _ = try await client.reportPresence(in: room) }
        }
        #expect(error?.refusal?.code == .tooManyRequests)
        #expect(error?.refusal?.kind == .exhausted)
        let retryAfter = try #require(error?.refusal?.retryAfter)
        #expect((1...5).contains(retryAfter.components.seconds))
    }

    @Test func ofWrongPaths() async throws {
        let client = try Client(
            baseURL: broker.url.appending(path: "elsewhere"), environment: .sandbox, transport: SocketTransport())
        await expect(.notFound, .invalid) { _ = try await client.createRoom(code: .random()) }
        let direct = try broker.client()
        await expect(.methodNotAllowed, .invalid) { let _: RoomStatus = try await direct.call("PUT", "api/rooms") }
        await expect(.bodyTooLarge, .invalid) {
            let _: RoomStatus = try await direct.call(
                "POST", "api/rooms", ["joinid": .text(String(repeating: "a", count: 17_000))])
        }
        await expect(.headersTooLarge, .invalid) {
            let _: RoomStatus = try await direct.call("GET", "api/room", bearer: Secret(String(repeating: "a", count: 20_000)))
        }
        await expect(.missingField, .invalid, field: "client1") {
            let _: RoomStatus = try await direct.call("POST", "api/rooms", ["joinid": .text(JoinCode.random().text)])
        }
        await expect(.wrongType, .invalid, field: "client1") {
            let _: RoomStatus = try await direct.call(
                "POST", "api/rooms", ["joinid": .text(JoinCode.random().text), "client1": .number(1)])
        }
        await expect(.upgradeRequired, .invalid) { let _: RoomStatus = try await direct.call("GET", "ws") }
    }

    @Test(arguments: [
        "http://push.example.org", "http://127.0.0.1.example.org", "http://10.0.0.1", "ftp://127.0.0.1", "push.example.org",
        "https://user@push.example.org", "https://push.example.org?a=b", "https:///path", "http://128.0.0.1", "ws://127.0.0.1",
    ])
    func insecureURLsAreRefused(url: String) throws {
        let url = try #require(URL(string: url))
        let error = #expect(throws: MayflyError.self) {
            try Client(baseURL: url, environment: .production, transport: SocketTransport())
        }
        guard case .invalidConfiguration = error else { throw Failure(description: "\(error as Any)") }
    }

    @Test(arguments: [
        ("https://push.example.org", "wss://push.example.org/ws"), ("https://example.org/push/", "wss://example.org/push/ws"),
        ("http://localhost:8787", "ws://localhost:8787/ws"), ("http://127.1.2.3:1", "ws://127.1.2.3:1/ws"),
        ("http://[::1]:8787", "ws://[::1]:8787/ws"),
    ])
    func secureURLsAreTaken(url: String, socket: String) throws {
        let client = try Client(baseURL: URL(string: url)!, environment: .production, transport: SocketTransport())
        #expect(client.socketURL("ws").absoluteString == socket)
    }
}

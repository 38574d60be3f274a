import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

struct PushRegistrationTests {
    private let broker = TestBroker.shared

    private func hasToken(_ room: Room) async throws -> Bool {
        let status = try await broker.client().status(of: room)
        return room.side == .creator ? status.creatorHasToken : status.joinerHasToken
    }

    @Test func aNewTokenReachesAllLiveRooms() async throws {
        let client = try broker.client()
        let (first, firstPeer) = try await broker.room()
        let (second, secondPeer) = try await broker.room()
        let (over, _) = try await broker.room()
        let push = PushRegistration(client: client)
        for room in [first, second, over] { await push.add(room) }
        try await client.close(over)

        let token = PushToken.random()
        let report = await push.register(Data(hex: token.hex)!)
        #expect(Set(report.updated.map(\.roomID)) == [first.roomID, second.roomID])
        #expect(report.updated.allSatisfy { $0.ref != nil })
        #expect(report.ended.map(\.roomID) == [over.roomID])
        #expect(report.failed.isEmpty)
        #expect(Set(await push.rooms) == Set(report.updated))
        for peer in [firstPeer, secondPeer] { #expect(try await client.reportPresence(in: peer) == .queued) }
        try await eventually { try await broker.pushes(to: token).count == 2 ? true : nil }
    }

    @Test func withdrawnAndForgotten() async throws {
        let (room, _) = try await broker.room()
        let push = PushRegistration(client: try broker.client())
        await push.register(Data([1, 2, 3]))
        let added = await push.add(room)
        #expect(added.updated.first?.ref != nil)
        #expect(try await hasToken(room))
        let report = await push.withdraw()
        #expect(report.updated.first?.ref == nil)
        #expect(await push.token == nil)
        #expect(try await !hasToken(room))
        // The room stays live: the next token reaches it.
        await push.register(Data([4, 5, 6]))
        #expect(try await hasToken(room))
        await push.forget()
        #expect(await push.rooms.isEmpty)
        #expect(await push.token == nil)
        #expect(await push.retry().updated.isEmpty)
    }

    @Test func aShortageOfTheBrokerEndsTheRound() async throws {
        let transport = ScriptedTransport { _, _ in ScriptedTransport.problem(503, "overloaded", retryAfter: "60") }
        let push = PushRegistration(client: try broker.client(transport))
        let rooms = try [Room.sample(roomID: "a"), Room.sample(roomID: "b"), Room.sample(roomID: "c")]
        for room in rooms { await push.add(room) }
        let report = await push.register(Data([1, 2, 3]))
        #expect(report.failed.count == 3)
        #expect(transport.requests.count == 1)
        // The limit of one room says nothing about the others.
        let limited = ScriptedTransport { _, _ in ScriptedTransport.problem(429, "too_many_requests", retryAfter: "60") }
        let other = PushRegistration(client: try broker.client(limited))
        for room in rooms { await other.add(room) }
        #expect(await other.register(Data([1, 2, 3])).failed.count == 3)
        #expect(limited.requests.count == 3)
    }

    @Test func aKnownTokenIsNotSentAgain() async throws {
        let transport = ScriptedTransport { [real = SocketTransport()] _, request in try await real.send(request) }
        let token = PushToken.random()
        let client = try broker.client(transport)
        let room = try await client.createRoom(code: .random(), token: token)
        let push = PushRegistration(client: client)
        await push.register(Data(hex: token.hex)!)
        await push.add(room, sent: token)
        await push.register(Data(hex: token.hex)!)
        #expect(transport.requests.count == 1)
        await push.register(Data([1]))
        #expect(transport.requests.count == 2)
    }

    @Test func aRoomThatCouldNotBeReachedGetsItsTokenLater() async throws {
        let (room, _) = try await broker.room()
        let transport = ScriptedTransport { [real = SocketTransport()] number, request in
            if number == 1 { throw MayflyError.unreachable("test") }
            return try await real.send(request)
        }
        let push = PushRegistration(client: try broker.client(transport))
        await push.register(Data([1]))
        let report = await push.add(room)
        #expect(report.failed.map(\.room) == [room])
        #expect(try await !hasToken(room))
        #expect(await push.retry().updated.count == 1)
        #expect(try await hasToken(room))
    }

    /// A token that could not be withdrawn is withdrawn later.
    @Test func aFailedWithdrawalIsRepeated() async throws {
        let (room, _) = try await broker.room((.random(), nil))
        let transport = ScriptedTransport { [real = SocketTransport()] number, request in
            if number == 1 { throw MayflyError.unreachable("test") }
            return try await real.send(request)
        }
        let push = PushRegistration(client: try broker.client(transport))
        await push.add(room)
        #expect(transport.requests.isEmpty)
        #expect(await push.withdraw().failed.count == 1)
        #expect(try await hasToken(room))
        #expect(await push.retry().updated.first?.ref == nil)
        #expect(try await !hasToken(room))
        #expect(await push.retry().updated.isEmpty)
        #expect(transport.requests.count == 2)
    }

    @Test func whatIsForgottenDuringACallStaysForgotten() async throws {
        let (room, _) = try await broker.room()
        let transport = ScriptedTransport { [real = SocketTransport()] _, request in
            try await Task.sleep(for: .milliseconds(300))
            return try await real.send(request)
        }
        let push = PushRegistration(client: try broker.client(transport))
        await push.add(room)
        async let report = push.register(Data([1]))
        try await eventually { transport.requests.isEmpty ? nil : true }
        await push.forget()
        _ = await report
        #expect(await push.rooms.isEmpty)
        #expect(await push.token == nil)
    }

    /// Nobody knows whether the broker has the token whose answer was lost, so the one before it is sent again.
    @Test func aLostReplacementIsNotTrusted() async throws {
        let (room, peer) = try await broker.room()
        let transport = ScriptedTransport { [real = SocketTransport()] number, request in
            let answer = try await real.send(request)
            if number == 2 { throw MayflyError.noAnswer("test") }
            return answer
        }
        let push = PushRegistration(client: try broker.client(transport))
        await push.add(room)
        let (first, lost) = (PushToken.random(), PushToken.random())
        #expect(await push.register(Data(hex: first.hex)!).updated.count == 1)
        #expect(await push.register(Data(hex: lost.hex)!).failed.count == 1)
        #expect(await push.register(Data(hex: first.hex)!).updated.count == 1)
        #expect(try await broker.client().reportPresence(in: peer) == .queued)
        _ = try await broker.push(to: first)
        #expect(try await broker.pushes(to: lost).isEmpty)
    }

    /// Two tokens at once: whatever the order of the answers, the broker ends with the newer one.
    @Test func theNewestTokenWins() async throws {
        let (room, peer) = try await broker.room()
        let transport = ScriptedTransport { [real = SocketTransport()] number, request in
            if number == 1 { try await Task.sleep(for: .milliseconds(300)) }
            return try await real.send(request)
        }
        let push = PushRegistration(client: try broker.client(transport))
        await push.add(room)
        let (old, new) = (PushToken.random(), PushToken.random())
        async let first = push.register(Data(hex: old.hex)!)
        try await eventually { transport.requests.isEmpty ? nil : true }
        async let second = push.register(Data(hex: new.hex)!)
        _ = await (first, second)
        #expect(try await broker.client().reportPresence(in: peer) == .queued)
        _ = try await broker.push(to: new)
        #expect(try await broker.pushes(to: old).isEmpty)
    }
}

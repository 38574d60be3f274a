import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker

/// A room id has its room's end. No call says more about a wrong id than about one that never was.
@Suite struct RoomIDTests {
    private static let dayMs: UInt64 = 86_400_000

    private func bytes(_ room: RoomID) -> [UInt8] {
        room.secret.withBytes { bytes in
            var copy: [UInt8] = []
            for index in bytes.indices { copy.append(bytes[index]) }
            return copy
        }
    }

    private func room(_ bytes: some Sequence<UInt8>) throws -> RoomID { RoomID(try Secret(copying: Array(bytes).span)) }

    private func room(_ room: RoomID, endMs: UInt64) throws -> RoomID {
        try self.room([UInt8](bigEndian: endMs).suffix(6) + bytes(room).dropFirst(6))
    }

    /// Expects that all calls answer as for a room that never was.
    private func expectUnknown(_ room: RoomID, _ fixture: BrokerFixture, _ comment: Comment) async {
        let (rooms, caller) = (fixture.broker.rooms, fixture.caller(room, "creator"))
        await #expect(throws: BrokerError.roomNotFound, comment) { try await rooms.status(room) }
        await #expect(throws: BrokerError.roomNotFound, comment) { try await rooms.close(room) }
        await #expect(throws: BrokerError.roomNotFound, comment) { try await rooms.report(caller, leaving: false) }
        await #expect(throws: BrokerError.roomNotFound, comment) { try await rooms.withdrawToken(caller) }
        await #expect(throws: BrokerError.roomNotFound, comment) {
            try await rooms.replaceToken(caller, with: try .test(fixture.token()))
        }
        await #expect(throws: BrokerError.roomNotFound, comment) {
            try await rooms.join(caller, socket: 1, isOpen: { true })
        }
    }

    @Test func aRoomIDBeginsWithTheRoomsEnd() async throws {
        let fixture = try await BrokerFixture()
        let (one, two) = (try await fixture.create("111111"), try await fixture.create("222222", codeLife: 10))
        #expect(one.room.endMs == one.expires && two.room.endMs == two.expires && one.expires == two.expires)
        #expect(one.expires != two.joinExpires, "a room keeps its end, whenever its code expires")
        let (first, second) = (bytes(one.room), bytes(two.room))
        #expect(first.prefix(6) == second.prefix(6))
        #expect(zip(first, second).dropFirst(6).count { $0 == $1 } < 10, "26 bytes are random")
        #expect(try await fixture.accept("111111").room == one.room)
        #expect(try await fixture.accept("111111").room == one.room)
        #expect(try await fixture.broker.rooms.status(one.room).expires == one.room.endMs)
        try await fixture.end()
    }

    // Promise: room-found-by-its-end
    @Test func anotherEndFindsNothing() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        let now = fixture.clock.now
        var ends: [UInt64] = [0, 1, now - 1, now, now + 1, made.expires - 1, made.expires + 1, (1 << 48) - 1]
        ends += [7, 30, 60, 61].flatMap { [now + $0 * Self.dayMs, now + $0 * Self.dayMs + 1] }
        ends += (0..<48).map { made.expires ^ (1 << $0) }
        for end in ends { await expectUnknown(try room(made.room, endMs: end), fixture, "\(end)") }
        #expect(try await fixture.broker.rooms.status(made.room).creatorHasToken)
        try await fixture.end()
    }

    // Promise: room-found-by-its-end
    @Test func idsOfOtherDeploymentsAndOfTheOldFormFindNothing() async throws {
        let (fixture, other) = (try await BrokerFixture(), try await BrokerFixture())
        let (made, foreign) = (try await fixture.create(), try await other.create())
        await expectUnknown(foreign.room, fixture, "of another deployment")
        for _ in 0..<100 {
            await expectUnknown(try RoomID.random(), fixture, "32 random bytes")
            await expectUnknown(try RoomID.random(endMs: made.expires), fixture, "of another room")
        }
        for bit in 0..<256 {
            var changed = bytes(made.room)
            changed[bit / 8] ^= 1 << (bit % 8)
            let id = try room(changed)
            await #expect(throws: BrokerError.roomNotFound, "bit \(bit)") { try await fixture.broker.rooms.status(id) }
        }
        #expect(try await !fixture.broker.rooms.status(made.room).accepted)
        try await fixture.end()
        try await other.end()
    }

    /// The row is still there.
    @Test func aRoomIDEndsWithItsRoom() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(life: 10, codeLife: 10)
        fixture.clock.advance(9_999)
        #expect(try await fixture.broker.rooms.status(made.room).expires == made.expires)
        fixture.clock.advance(1)
        await expectUnknown(made.room, fixture, "at its end")
        #expect(try await fixture.store.counts().rooms == 1)
        try await fixture.end()
    }
}

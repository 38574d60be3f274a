import Ledger
import Linux
import SQLite
import Testing

@testable import Storage

/// What a sweep takes, tells and leaves.
@Suite struct StoreSweepTests {
    private func sweep(_ fixture: Fixture, limit: Int = 100) async throws -> SweepResult {
        try await fixture.store.sweep(now: fixture.clock.now, limit: limit, jobSlack: 0)
    }

    @Test func whatExpiredFirstGoesFirstAndIsToldOf() async throws {
        let fixture = try Fixture()
        var ends: [UInt64] = []
        for id in 1...9 as ClosedRange<UInt8> {
            ends.append(try await fixture.create(id, life: UInt64(id) * 10_000, codeLife: 300_000).0.expires)
        }
        fixture.clock.advance(75_000)
        var told: [UInt64] = []
        var passes = 0
        while told.count < 7 {
            let result = try await sweep(fixture, limit: 3)
            #expect(result.tokens == result.ends.count)
            told += result.ends
            passes += 1
            if !result.more { break }
        }
        #expect(told == Array(ends.prefix(7)) && passes == 3)
        #expect(try await fixture.store.counts().tokens == 2)
        #expect(try await fixture.ops().count { $0 == "token.purged" } == 7)
        try await fixture.close()
    }

    /// Its code's end and its own fall together: one row is changed, not two.
    @Test func aShortRoomGoesWithItsUsedCode() async throws {
        let fixture = try Fixture()
        let (room, code, _) = try await fixture.create(1, life: 60_000, codeLife: 60_000)
        var joined = fixture.token(30, room: room, slot: 2)
        joined.expires = room.expires
        let accepted = try await fixture.store.accept(
            code, joiner: SideRecord(generation: 1, client: Fixture.blob(201), member: Fixture.blob(202), ref: joined.ref),
            token: joined,
            used: UsedCode(code: code.code, expires: room.expires, retry: nil, retryGeneration: 1, retryUntil: 0),
            now: fixture.clock.now)
        #expect(accepted == .accepted)
        fixture.clock.advance(60_000)
        let result = try await sweep(fixture)
        #expect(result.tokens == 2 && result.rooms == 1 && result.ends == [room.expires, room.expires])
        #expect(try await fixture.store.counts().rooms == 0)
        try await fixture.close()
    }

    /// Purged by whoever came first into the next epoch: the sweeper's counts know of it all the same.
    @Test func theSweepTellsOfWhatOthersPurged() async throws {
        let fixture = try Fixture()
        try await fixture.store.start([], marks: [])
        let (room, _, _) = try await fixture.create(1, life: 10_000)
        fixture.clock.advance(Entry.Op.epochEnd(room.expires) - fixture.clock.now)
        try await fixture.store.record([.keysRatcheted(epoch: 1)])
        #expect(try await fixture.store.counts().tokens == 0)
        #expect(try await sweep(fixture).ends == [room.expires])
        #expect(try await sweep(fixture).ends == [])
        try await fixture.close()
    }

    /// A broker that is killed after the first entry of an epoch, and stays away, has no excuse for a token of the one before.
    @Test(arguments: [false, true]) func noneIsLeftBehindAnEntryOfALaterEpoch(byAStart: Bool) async throws {
        let fixture = try Fixture()
        // The rows come by the machine's clock.
        fixture.clock.advance(Clock.wallMs - fixture.clock.now)
        if !byAStart { try await fixture.store.start([], marks: []) }
        let rows = try RowLoop(path: fixture.path)
        let count = 10_001
        let expires = fixture.clock.now + 3_600_000
        try rows.commit(
            standing: (0..<count).map { number in
                let bytes = (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
                let side = SideRecord(generation: 1, client: Fixture.blob(1), member: Fixture.blob(2), ref: bytes + bytes)
                let room = RoomRecord(room: Fixture.blob(3, 24) + bytes, expires: expires, creator: side, joiner: side)
                var token = fixture.token(1, room: room)
                token.ref = bytes + bytes
                return StandingRoom(room: room, tokens: [token])
            })
        #expect(try await fixture.store.counts().tokens == count)
        fixture.clock.advance(Entry.Op.epochEnd(expires) - fixture.clock.now)
        if byAStart {
            try await fixture.store.start([], marks: [])
        } else {
            try await fixture.store.record([.keysRatcheted(epoch: 1)])
        }
        #expect(try await fixture.store.counts().tokens == 0)
        try await fixture.close()
    }
}

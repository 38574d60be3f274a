import Ledger
import Linux
import SQLite
import Testing
import Vocabulary

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
        #expect(try fixture.ops().count { $0 == "token.purged" } == 7)
        try await fixture.close()
    }

    /// Its code's end and its own fall together: one row is changed, not two.
    @Test func aShortRoomGoesWithItsUsedCode() async throws {
        let fixture = try Fixture()
        let (room, code, _) = try await fixture.create(1, life: 60_000, codeLife: 60_000)
        var joined = fixture.token(30, room: room, slot: 2)
        joined.expires = room.expires
        let accepted = try await fixture.store.write { [joined] in
            try $0.accept(
                code,
                joiner: SideRecord(generation: 1, client: Fixture.blob(201), member: Fixture.blob(202), token: joined.purgeID),
                token: NewToken(joined),
                used: UsedCode(code: code.code, expires: room.expires, retry: nil, retryGeneration: 1, retryUntil: 0),
                now: fixture.clock.now)
        }
        #expect(accepted == .accepted)
        fixture.clock.advance(60_000)
        let result = try await sweep(fixture)
        #expect(result.tokens == 2 && result.rooms == 1 && result.ends == [room.expires, room.expires])
        #expect(try await fixture.store.counts().rooms == 0)
        try await fixture.close()
    }
}

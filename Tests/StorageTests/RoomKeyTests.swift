import Ledger
import Linux
import SQLite
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// Rooms are found by their key, and by a code only while it lives.
@Suite struct RoomKeyTests {
    @Test(arguments: Engine.allCases) func aRoomIsFoundOnlyByItsEnd(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let store = fixture.store
        let (room, _, token) = try await fixture.create(1)
        for end in [room.expires - 1, room.expires + 1, 0, .max] {
            let other = Digest(leading: end, Fixture.blob(1))
            #expect(try await store.read { try $0.room(other) } == nil)
            #expect(try await store.write { try $0.markProven(room: other, slot: 1) } == false)
            #expect(try await store.write { try $0.withdrawToken(room: other, slot: 1, proven: true) } == nil)
            #expect(try await store.write { try $0.close(room: other) } == nil)
            let knock = try await store.write {
                var job = fixture.job(1, token: token, deadline: fixture.clock.now + 20_000)
                job.room = other
                return try $0.knock(job, throttle: 0, now: fixture.clock.now)
            }
            #expect(knock == .changed)
        }
        #expect(try await store.read { try $0.room(room.room) }?.creator == room.creator)
        try await fixture.close()
    }

    /// It would never be found again.
    @Test(arguments: Engine.allCases) func anIndexWithoutItsEndIsRefused(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        var room = fixture.room(1, expires: fixture.clock.now + 60_000)
        room.expires += 1
        let (stored, code) = (room, fixture.code(1, room: room, expires: fixture.clock.now + 30_000))
        await #expect(throws: StoreError.self) {
            try await fixture.store.write {
                try $0.create(stored, code: code, otherIndexes: [], token: nil, shortLimit: 10, now: fixture.clock.now)
            }
        }
        #expect(try await fixture.store.counts().rooms == 0)
        try await fixture.close()
    }

    // MARK: Codes

    /// Expects that the codes' table leads to each room with a code, and has nothing else.
    private func expectCodes(_ count: Int64, _ fixture: Fixture, _ comment: Comment) throws {
        let tables = try fixture.tables()
        let found = [
            try tables.rows("SELECT count(*) FROM code") { $0.int(0) },
            try tables.rows("SELECT count(*) FROM room WHERE code IS NOT NULL") { $0.int(0) },
            try tables.rows("SELECT count(*) FROM code JOIN room USING (expires, room) WHERE code.code = room.code") {
                $0.int(0)
            },
        ]
        #expect(found == [[count], [count], [count]], comment)
    }

    private func sweep(_ fixture: Fixture, limit: Int = 100) async throws {
        while try await fixture.store.sweep(now: fixture.clock.now, limit: limit, jobSlack: 0).more {}
    }

    // Promise: no-index-outlives-a-code
    @Test(arguments: Engine.allCases) func aCodeIsAsLongInItsTableAsItLives(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, used, _) = try await fixture.create(1, life: 3_600_000)
        let (closed, _, _) = try await fixture.create(10, life: 3_600_000)
        try await fixture.create(20, life: 3_600_000, codeLife: 10_000)
        let (_, expired, _) = try await fixture.create(30, life: 3_600_000, codeLife: 10_000)
        try expectCodes(4, fixture, "four pending")
        #expect(try await fixture.accept(used) == .accepted)
        try expectCodes(4, fixture, "one used")
        #expect(try await fixture.store.write { try $0.close(room: closed.room) } == 1)
        try expectCodes(3, fixture, "one closed")

        fixture.clock.advance(10_000)
        let again = fixture.room(40, expires: fixture.clock.now + 3_600_000)
        var code = fixture.code(40, room: again, expires: fixture.clock.now + 600_000)
        code.code = expired.code
        let made = try await fixture.store.write { [code] in
            try $0.create(again, code: code, otherIndexes: [], token: nil, shortLimit: 10, now: fixture.clock.now)
        }
        #expect(made == .created)
        try expectCodes(3, fixture, "one expired and reused")
        try await sweep(fixture)
        try expectCodes(2, fixture, "one expired")
        #expect(try await fixture.accept(code) == .accepted)
        fixture.clock.advance(590_000)
        try await sweep(fixture)
        try expectCodes(1, fixture, "one used for ten minutes")
        fixture.clock.advance(10_000)
        try await sweep(fixture)
        try expectCodes(0, fixture, "both used for ten minutes")
        #expect(try await fixture.store.counts().rooms == 2)
        try await fixture.close()
    }

    /// A sweep may reach a room before its code.
    @Test(arguments: Engine.allCases) func roomsTakeTheirCodesAlong(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for id: UInt8 in [1, 10, 20, 30, 40] { try await fixture.create(id, life: 10_000, codeLife: 10_000) }
        // A used code whose row says that it outlives the room.
        let (_, code, _) = try await fixture.create(50, life: 10_000, codeLife: 10_000)
        #expect(try await fixture.accept(code) == .accepted)
        try await fixture.create(60)
        fixture.clock.advance(10_000)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 2, jobSlack: 0).more)
        let left = try await fixture.store.counts().rooms
        try expectCodes(Int64(left), fixture, "in the midst of a sweep")
        try await sweep(fixture, limit: 2)
        try expectCodes(1, fixture, "after it")
        try await fixture.create(70)
        while try await fixture.store.forgetAll(limit: 1).more {}
        try expectCodes(0, fixture, "all is forgotten")
        try await fixture.close()
    }

    // MARK: Sweeps

    /// Forty rooms of 4,000 fill three pages. An index in another order would change a page for each of them.
    // Promise: no-index-outlives-a-code
    @Test func aSweepOfRoomsChangesAdjacentPages() async throws {
        let fixture = try Fixture()
        let start = fixture.clock.now
        let rooms = (0..<4_000).map { number in
            let expires = start + (number.isMultiple(of: 100) ? 1_000 : 10_000 + UInt64(number))
            let hash = Digest.sha256([UInt8](bigEndian: number).span)
            let side = SideRecord(generation: 1, client: hash, member: hash)
            return RoomRecord(room: Digest(leading: expires, hash), expires: expires, creator: side, joiner: side)
        }
        try RowLoop(path: fixture.path).commit { transaction in
            for room in rooms { try transaction.insert(accepted: room, tokens: []) }
        }
        fixture.clock.advance(1_000)
        let store = try #require(fixture.store as? SQLiteStore)
        #expect(try await store.scrub())
        let result = try await store.sweep(now: fixture.clock.now, limit: 1_000, jobSlack: 0)
        #expect(result.rooms == 40)
        let pages = try await store.inspect { $0.connection.framesInLog }
        #expect(pages < 16, "\(pages) pages")
        #expect(try await store.counts().rooms == 3_960)
        try await fixture.close()
    }

    /// Deleted rows stay in a table's file, so rooms go with it.
    // Promise: rooms-dropped
    @Test func roomsOfADayAreDroppedWithTheirPartition() async throws {
        let fixture = try Fixture(.postgres)
        let day: UInt64 = 86_400_000
        func partitions() throws -> [String] {
            try TestPostgres.texts(
                """
                SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '^room_[0-9]+$'
                AND relnamespace = '\(TestPostgres.name(fixture.folder))'::regnamespace ORDER BY relname
                """)
        }
        let midnight = (fixture.clock.now / day + 1) * day
        let (_, code, _) = try await fixture.create(1, life: midnight - 1 - fixture.clock.now)
        #expect(try await fixture.accept(code) == .accepted)
        let left = midnight - fixture.clock.now
        let (next, _, _) = try await fixture.create(10, life: left, codeLife: left)
        #expect(try partitions() == ["room_\(midnight - day)", "room_\(midnight)"])
        // Nothing is dropped while a clock that is behind may need it.
        fixture.clock.advance(midnight - 1 - fixture.clock.now)
        try await sweep(fixture)
        #expect(try await fixture.store.scrub())
        #expect(try partitions().count == 2)
        fixture.clock.advance(121_001)
        #expect(try await fixture.store.scrub())
        #expect(try partitions() == ["room_\(midnight)"])
        #expect(try await fixture.store.read { try $0.room(next.room) } != nil)
        try await sweep(fixture)
        try expectCodes(0, fixture, "its code lived as long")
        fixture.clock.advance(day)
        #expect(try await fixture.store.scrub())
        #expect(try partitions() == [])
        try await fixture.close()
    }
}

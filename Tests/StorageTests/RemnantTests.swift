import Ledger
import Linux
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Deleted data leaves no bytes in the file, not even where it was before SQLite rebuilt a page. `secure_delete` alone misses those.
@Suite struct RemnantTests {
    // Promise: deleted-bytes-overwritten
    @Test func deletedRowsLeaveNoBytes() throws {
        var chance = Chance(state: 1)
        for _ in 0..<8 {
            let folder = try File.makeTemporaryFolder()
            let database = try SQLiteConnection(path: folder + "/t.sqlite")
            try database.execute(
                """
                PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA secure_delete = ON;
                CREATE TABLE t (e INTEGER, k INTEGER, d BLOB, PRIMARY KEY (e, k)) WITHOUT ROWID; BEGIN
                """)
            var rows: [Int64] = []
            for key in 0..<500 {
                rows.append(Int64(chance.next() % 1_000))
                try write("INSERT INTO t (d, e, k) VALUES (?, ?, ?)", key, rows[key], &chance, database)
                // Rows grow and shrink, so that pages are split and merged.
                let other = Int(chance.next() % UInt64(rows.count))
                try write("UPDATE t SET d = ? WHERE e = ? AND k = ?", other, rows[other], &chance, database)
            }
            try database.execute("COMMIT")
            for end in stride(from: 50, through: 500, by: 50) { try database.execute("DELETE FROM t WHERE e < \(end)") }
            #expect(try database.checkpointTruncating(waitMs: 0))
            let left = try File.read(folder + "/t.sqlite", limit: 1 << 24)
            #expect(longestRun(of: 0x33, in: left) > 100, "the rows that stay are not found either")
            #expect(longestRun(of: 0xee, in: left) < 8)
            let check = try database.prepare("PRAGMA integrity_check")
            #expect(try check.step())
            #expect(check.text(0) == "ok")
            try File.removeTree(folder)
        }
    }

    /// The content of a row shows whether it will be deleted.
    private func write(_ sql: StaticString, _ key: Int, _ end: Int64, _ chance: inout Chance, _ database: SQLiteConnection) throws
    {
        let statement = try database.cached(sql)
        statement.bind([UInt8](repeating: end < 500 ? 0xee : 0x33, count: 20 + Int(chance.next() % 880)), at: 1)
        statement.bind(end, at: 2)
        statement.bind(Int64(key), at: 3)
        #expect(try !statement.step())
        statement.reset()
    }

    private func longestRun(of byte: UInt8, in bytes: [UInt8]) -> Int {
        var (longest, run) = (0, 0)
        for index in bytes.indices {
            run = bytes[index] == byte ? run + 1 : 0
            longest = max(longest, run)
        }
        return longest
    }
}

/// The results of sweeps.
@Suite struct StoreSweepTests {
    private func sweep(_ fixture: Fixture, limit: Int = 100) async throws -> SweepResult {
        try await fixture.store.sweep(now: fixture.clock.now, limit: limit, jobSlack: 0)
    }

    @Test func theEarliestExpiriesArePurgedFirstAndReported() async throws {
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

    /// Room and code expire together, so only one row changes.
    @Test func aShortRoomIsDeletedWithItsUsedCode() async throws {
        let fixture = try Fixture()
        let (room, code, _) = try await fixture.create(1, life: 60_000, codeLife: 60_000)
        var joined = fixture.token(30, room: room, slot: 2)
        joined.context.expiryMs = room.expires
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

import Linux
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// The lower bound in `make bench` must do the same work as the store.
@Suite struct RowLoopTests {
    @Test func theLoopWritesTheSameRowsAsTheStore() async throws {
        let fixture = try Fixture()
        fixture.clock.advance(Clock.wallMs - fixture.clock.now)
        let (room, code, token) = try await fixture.create(1, life: 3_600_000, codeLife: 3_600_000)
        let joined = fixture.token(30, room: room, slot: 2)
        #expect(try await fixture.accept(code, token: joined) == .accepted)

        let path = fixture.folder + "/loop.sqlite"
        let joiner = SideRecord(
            generation: 1, client: Fixture.blob(201), member: Fixture.blob(202), token: joined.purgeID)
        let used = UsedCode(
            code: code.code, expires: fixture.clock.now + 600_000, retry: Fixture.blob(6, 104), retryGeneration: 1,
            retryUntil: fixture.clock.now + 120_000)
        let loop = try RowLoop(path: path)
        try loop.commit { try $0.insert(room, code: code, token: NewToken(token)) }
        try loop.commit { transaction in
            let outcome = try transaction.accept(
                code, joiner: joiner, token: NewToken(joined), used: used, now: fixture.clock.now)
            #expect(outcome == .accepted)
        }

        let both = try SQLiteConnection(path: fixture.path)
        try both.execute("ATTACH '\(path)' AS loop")
        for columns in ["* FROM room", "* FROM code", "* FROM token", "* FROM waiting"] {
            let parts = columns.split(separator: " FROM ")
            let (mine, other) = ("SELECT \(columns)", "SELECT \(parts[0]) FROM loop.\(parts[1])")
            #expect(try count(both, "SELECT count(*) FROM (\(mine))") > 0)
            #expect(try count(both, "SELECT count(*) FROM (\(mine) EXCEPT \(other))") == 0, "\(columns): only in the store")
            #expect(try count(both, "SELECT count(*) FROM (\(other) EXCEPT \(mine))") == 0, "\(columns): only in the loop")
        }
        try await fixture.close()
    }

    @Test func aFailedTransactionLeavesNothing() async throws {
        let fixture = try Fixture()
        fixture.clock.advance(Clock.wallMs - fixture.clock.now)
        let room = fixture.room(1, expires: fixture.clock.now + 60_000)
        let code = fixture.code(1, room: room, expires: fixture.clock.now + 60_000)
        let token = NewToken(fixture.token(1, room: room))
        let path = fixture.folder + "/loop.sqlite"
        let loop = try RowLoop(path: path)
        #expect(throws: SQLiteError.self) {
            try loop.commit { transaction in
                for _ in 0..<2 { try transaction.insert(room, code: code, token: token) }
            }
        }
        #expect(throws: StoreError.closed) {
            try loop.commit { transaction in
                try transaction.insert(room, code: code, token: token)
                throw StoreError.closed
            }
        }
        #expect(try count(try SQLiteConnection(path: path, access: .readOnly), "SELECT count(*) FROM room") == 0)
        try await fixture.close()
    }

    private func count(_ database: SQLiteConnection, _ sql: String) throws -> Int64 {
        let statement = try database.prepare(sql)
        _ = try statement.step()
        return statement.int(0)
    }
}

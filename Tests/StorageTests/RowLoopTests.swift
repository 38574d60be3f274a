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
        let rows = RoomRows(
            room: room, code: code, creatorToken: NewToken(token),
            joiner: SideRecord(generation: 1, client: Fixture.blob(201), member: Fixture.blob(202), token: joined.purgeID),
            joinerToken: NewToken(joined),
            used: UsedCode(
                code: code.code, expires: fixture.clock.now + 600_000, retry: Fixture.blob(6, 104), retryGeneration: 1,
                retryUntil: fixture.clock.now + 120_000))
        let loop = try RowLoop(path: path)
        try loop.commit(creating: [rows], accepting: [])
        try loop.commit(creating: [], accepting: [rows])

        let both = try Connection(path: fixture.path)
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
        let rows = RoomRows(
            room: room, code: fixture.code(1, room: room, expires: fixture.clock.now + 60_000),
            creatorToken: NewToken(fixture.token(1, room: room)), joiner: room.creator,
            joinerToken: NewToken(fixture.token(2, room: room, slot: 2)),
            used: UsedCode(
                code: Fixture.blob(101), expires: fixture.clock.now, retry: nil, retryGeneration: 1,
                retryUntil: fixture.clock.now))
        let path = fixture.folder + "/loop.sqlite"
        let loop = try RowLoop(path: path)
        #expect(throws: StoreError.self) { try loop.commit(creating: [rows, rows], accepting: []) }
        #expect(throws: StoreError.self) { try loop.commit(creating: [], accepting: [rows]) }
        #expect(try count(try Connection(path: path, access: .readOnly), "SELECT count(*) FROM room") == 0)
        try await fixture.close()
    }

    private func count(_ database: Connection, _ sql: String) throws -> Int64 {
        let statement = try database.prepare(sql)
        _ = try statement.step()
        return statement.int(0)
    }
}

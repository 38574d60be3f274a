import Ledger
import Policy
import Postgres
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// Partitions of PostgreSQL's tables beside other sessions: nodes that led before, commands that read, operators.
@Suite(.timeLimit(.minutes(1))) struct PartitionTests {
    /// A session beside the store's.
    private struct Session {
        private let connection: PostgresConnection

        init(_ fixture: Fixture) throws {
            connection = try PostgresConnection(try TestPostgres.schema(named: fixture.folder), deadlineMs: 5_000)
        }

        /// - Returns: the first column of the last statement, which is text.
        @discardableResult
        func run(_ statements: String...) throws -> [String] {
            for sql in statements { try connection.send(text: sql) }
            guard let rows = try connection.receive(deadlineMs: 10_000).last else { return [] }
            var texts: [String] = []
            while rows.next() { texts.append(rows.text(0)) }
            return texts
        }

        /// Returns when another session waits for this one, or for one that waits for this one.
        func waitUntilAwaited(throughAnother isIndirect: Bool = false) async throws {
            let waits = "SELECT pid FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            let indirectly = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_blocking_pids(pid) && ARRAY(\(waits))"
            let isAwaited = "SELECT 'yes' WHERE EXISTS (\(isIndirect ? indirectly : waits))"
            while try run(isAwaited).isEmpty { try await Task.sleep(for: .milliseconds(2)) }
        }
    }

    private func run<Value: Sendable>(
        _ fixture: Fixture, _ body: @escaping @Sendable (PostgresDatabase) throws -> Value
    ) async throws -> Value {
        guard let store = fixture.store as? PostgresStore else { preconditionFailure("the engine is PostgreSQL") }
        return try await store.run { database in
            try database.connect()
            return try body(database)
        }
    }

    /// Returns the names of the partitions, and of tables that were one, by name.
    private func partitions(_ fixture: Fixture) throws -> [String] {
        try TestPostgres.texts(
            """
            SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '_[0-9]+$' AND relname NOT LIKE 'waiting%'
            AND relnamespace = '\(TestPostgres.name(fixture.folder))'::regnamespace ORDER BY relname
            """)
    }

    private func sweep(_ fixture: Fixture) async throws {
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
    }

    private static let begin: UInt64 = 1_700_000_000

    /// A log with seals of the first hour, of 10 s, in the day of 20 s.
    private func sealed(_ numbers: Range<Int>, batchSeals: Int = 2) async throws -> Fixture {
        let timing = LedgerTiming(hourSeconds: 10, daySeconds: 20, batchSeals: batchSeals)
        let fixture = try Fixture(.postgres, timing: timing, now: Self.begin)
        try await fixture.store.start([StoreBatchTests.sign], marks: [])
        try await seal(numbers, fixture)
        return fixture
    }

    private func seal(_ numbers: Range<Int>, _ fixture: Fixture) async throws {
        for number in numbers { _ = try await fixture.registered(fixture.registration(number, owner: number, life: 900_000)) }
    }

    // MARK: Indexes

    /// A node that led before was killed in the midst of it. Its session goes on.
    @Test func anIndexThatAnotherSessionBuildsIsAwaited() async throws {
        let fixture = try await sealed(0..<40)
        fixture.clock.advance(11_000)
        try await sweep(fixture)
        fixture.clock.advance(1_000)
        // Its build takes until the gate opens.
        let (gate, table) = (try Session(fixture), "waiting_\(Self.begin + 10)")
        try gate.run(
            """
            CREATE FUNCTION gate(bytea) RETURNS bytea IMMUTABLE LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN $1; END'
            """)
        try gate.run("BEGIN", "SELECT pg_advisory_xact_lock(1)::text")
        async let built = Session(fixture).run("CREATE UNIQUE INDEX \(table)_id ON \(table) (rank, gate(id))")
        try await gate.waitUntilAwaited()
        async let published = fixture.publish()
        try await gate.waitUntilAwaited(throughAnother: true)
        try gate.run("COMMIT")
        _ = try await built
        #expect(try await published.count { $0.source.rank == 3 } == 40)
        try await fixture.close()
    }

    /// This node led before, and is late.
    @Test func noIndexIsMadeForAPartitionThatIsDropped() async throws {
        let fixture = try await sealed(0..<4)
        fixture.clock.advance(11_000)
        try await sweep(fixture)
        let (leader, table) = (try Session(fixture), "waiting_\(Self.begin + 10)")
        try leader.run("ALTER TABLE waiting DETACH PARTITION \(table)")
        try leader.run("BEGIN", "DROP TABLE \(table)")
        async let indexed: Void = run(fixture) { try $0.indexBatches() }
        try await leader.waitUntilAwaited()
        try leader.run("COMMIT")
        try await indexed
        try await fixture.close()
    }

    // MARK: Parts of a batch

    /// Two hours of one batch.
    @Test func aPartOfABatchHasAtMostAsManyEntriesAsAskedFor() async throws {
        let fixture = try await sealed(0..<30, batchSeals: 100)
        fixture.clock.advance(10_000)
        try await seal(30..<60, fixture)
        let begin = Self.begin
        let batch = CompleteBatch(window: begin, moment: begin + 20, numbers: [Int64(begin) + 10, Int64(begin) + 20], last: nil)
        let all = try fixture.waiting().map(\.entry.id).sorted()
        #expect(all.count == 60)
        for limit in [1, 5, 59, 60, 61, .max] {
            let found = try await run(fixture) { try $0.waiting(batch, rank: 3, limit: limit) }
            #expect(ids(found) == Array(all.prefix(limit)))
        }
        // One more is read than is published, so an id shows that occurs again behind the end of a part.
        let again = "SELECT \(begin + 20), rank, id, until, cause FROM waiting WHERE batch = \(begin + 10) ORDER BY id LIMIT 1"
        try Session(fixture).run("INSERT INTO waiting \(again)")
        for size in 1...4 {
            await #expect(throws: StoreError.self, "parts of \(size)") {
                var rest = batch
                while true {
                    let part = try await run(fixture) { [rest] in try $0.waiting(rest, rank: 3, limit: size + 1) }.prefix(size)
                    guard let last = ids(part).last else { break }
                    rest.last = (3, last)
                }
            }
        }
        try await fixture.close()
    }

    private func ids(_ entries: some Sequence<ClosedEntry>) -> [EntryID] {
        entries.compactMap { if case .batch(_, _, let id, _, _, _) = $0.source { id } else { nil } }
    }

    // MARK: Drops

    /// Tables of two hours and two days whose rows have expired.
    private func expired() async throws -> Fixture {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        try await fixture.create(10, life: 30 * 3_600_000)
        fixture.clock.advance(72 * 3_600_000)
        try await sweep(fixture)
        return fixture
    }

    /// A command may read for long. Another partition than the earliest one is half detached.
    @Test func aPartitionThatIsReadKeepsNothingElse() async throws {
        let fixture = try await expired()
        let rooms = try partitions(fixture).filter { $0.hasPrefix("room") }
        #expect(try partitions(fixture).count == 4 && rooms.count == 2)
        let reader = try Session(fixture)
        try reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*)::text FROM room")
        let admin = try Session(fixture)
        try admin.run("SET lock_timeout = 50")
        #expect(throws: PostgresError.statement("55P03")) {
            try admin.run("ALTER TABLE room DETACH PARTITION \(rooms[1]) CONCURRENTLY")
        }
        for round in 1...3 {
            let file = try TestPostgres.texts("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
            try await scrub(fixture)
            #expect(try TestPostgres.texts("SELECT pg_walfile_name(pg_current_wal_insert_lsn())") != file || round > 1)
            #expect(try partitions(fixture).filter { $0.hasPrefix("room") } == rooms)
            #expect(fixture.store.takeAlarms().count == (round == 2 ? 1 : 0), "once, and not for a short read")
        }
        // A vacuum by the server itself gives way after a second.
        for _ in 0..<100 where try partitions(fixture) != rooms { try await scrub(fixture) }
        #expect(try partitions(fixture) == rooms)
        try reader.run("COMMIT")
        try await scrub(fixture, waitMs: 20_000)
        #expect(try partitions(fixture).isEmpty)
        try await fixture.close()
    }

    /// Scrubs as the sweeper does, but waits less for a lock.
    private func scrub(_ fixture: Fixture, waitMs: Int = 50) async throws {
        let now = fixture.clock.now
        try await run(fixture) { database in
            try database.runAlone(["SET lock_timeout = \(waitMs)"])
            try database.scrub(now: now)
        }
    }

    /// This node led before, and is late.
    @Test func aPartitionThatAnotherNodeDropsIsNoError() async throws {
        let fixture = try await expired()
        let leader = try Session(fixture)
        let dropped = try partitions(fixture)
        try leader.run("BEGIN", "DROP TABLE \(dropped[0])")
        async let isDone = fixture.store.scrub()
        try await leader.waitUntilAwaited()
        try leader.run("COMMIT")
        #expect(try await isDone)
        #expect(try partitions(fixture).isEmpty)
        try await fixture.close()
    }

    // MARK: Rows

    /// A create that reuses a code deletes the code's row first, then the room's. It holds the code's lock only.
    @Test func aSweepWaitsForACodeBeforeItDeletesItsRoom() async throws {
        let fixture = try Fixture(.postgres)
        // The row of a used code says that it outlives its room.
        let (_, code, _) = try await fixture.create(1, life: 10_000, codeLife: 10_000)
        #expect(try await fixture.accept(code) == .accepted)
        fixture.clock.advance(10_000)
        let key = try await run(fixture) { LockKey.code(code.code).number(salt: $0.salt) }
        let creator = try Session(fixture)
        try creator.run("BEGIN", "SELECT pg_advisory_xact_lock(\(key))::text")
        async let swept: Void = sweep(fixture)
        try await creator.waitUntilAwaited()
        #expect(try creator.run("SELECT count(*)::text FROM (SELECT 1 FROM room FOR UPDATE SKIP LOCKED) AS free") == ["1"])
        try creator.run("COMMIT")
        try await swept
        #expect(try await fixture.store.counts().rooms == 0)
        try await fixture.close()
    }

    /// It may have rows, so the broker doesn't drop it.
    @Test(arguments: [false, true]) func aDetachedTableOfAPartitionsNameIsAnError(isHalfDone: Bool) async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        let session = try Session(fixture)
        let tokens = try partitions(fixture).filter { $0.hasPrefix("token") }
        if isHalfDone {
            let reader = try Session(fixture)
            try reader.run("BEGIN", "SELECT count(*)::text FROM token")
            try session.run("SET lock_timeout = 50")
            #expect(throws: PostgresError.statement("55P03")) {
                try session.run("ALTER TABLE token DETACH PARTITION \(tokens[0]) CONCURRENTLY")
            }
            try reader.run("COMMIT")
        } else {
            try session.run("ALTER TABLE token DETACH PARTITION \(tokens[0])")
        }
        let error = await #expect(throws: StoreError.self) { try await fixture.create(10) }
        #expect("\(String(describing: error))".contains("\(tokens[0]) was detached from token"))
        #expect(try await fixture.store.counts().rooms == 1)
        try await fixture.close()
    }

    /// Its rows may be all that is left of some tokens.
    @Test func aDetachedTableWithRowsIsKept() async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        let session = try Session(fixture)
        let tokens = try partitions(fixture).filter { $0.hasPrefix("token") }
        try session.run("ALTER TABLE token DETACH PARTITION \(tokens[0])")
        fixture.clock.advance(3 * 86_400_000)
        for _ in 0..<2 { #expect(try await fixture.store.scrub()) }
        #expect(try session.run("SELECT count(*)::text FROM \(tokens[0])") == ["1"])
        #expect(fixture.store.takeAlarms().contains { $0.contains("it was detached and has rows") })
        try session.run("DELETE FROM \(tokens[0])")
        #expect(try await fixture.store.scrub())
        #expect(try partitions(fixture).filter { $0.hasPrefix("token") }.isEmpty)
        try await fixture.close()
    }

    /// A process of the server may miss a partition that is attached while it looks at the table for the first time.
    @Test func aSessionThatMissesAPartitionIsReplaced() async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        let now = fixture.clock.now
        var room = fixture.room(10, expires: now + 60_000)
        let (code, token) = (fixture.code(10, room: room, expires: now + 30_000), fixture.token(10, room: room))
        room.creator.token = token.purgeID
        let outcome = try await run(fixture) { [room] database in
            // Only this session finds it in place of the real table.
            try database.runAlone(["CREATE TEMP TABLE token (LIKE token) PARTITION BY RANGE (expires)"])
            return try database.write {
                try database.transaction.create(room, code: code, otherIndexes: [], token: token, shortLimit: 10, now: now)
            }
        }
        #expect(outcome == .created)
        #expect(try await fixture.store.counts().rooms == 2)
        try await fixture.close()
    }

    /// The server refuses it with the same code as a row without a partition.
    @Test func aRowThatNoPartitionWouldTakeIsAnError() async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        try Session(fixture).run("ALTER TABLE token ADD CHECK (expires < 0) NOT VALID")
        await #expect(throws: StoreError.unavailable("PostgreSQL refused a statement (SQLSTATE 23514, check_violation)")) {
            try await fixture.create(10)
        }
        try await fixture.close()
    }

    /// A sweep after an outage may need one for each hour of it, and learns of them one by one.
    @Test func anOperationMayNeedManyNewPartitions() async throws {
        let fixture = try Fixture(.postgres)
        let starts = (1...9).map { fixture.clock.now + $0 * 3_600_000 }
        try await run(fixture) { database in
            try database.write {
                for start in starts {
                    try database.queue(
                        "INSERT INTO waiting (batch, rank, id, until) VALUES ($1, 3, $2, 0)", .time(start / 1_000),
                        .id(Fixture.ref(1) as EntryID))
                    _ = try database.latestWindow()
                }
            }
        }
        #expect(try fixture.waiting().count == 9)
        try await fixture.close()
    }
}

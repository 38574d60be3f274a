import Ledger
import Policy
import Postgres
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// What only this engine has: lost connections, partitions, statistics.
@Suite struct PostgresStoreTests {
    private func store(_ fixture: Fixture) -> PostgresStore {
        guard let store = fixture.store as? PostgresStore else { preconditionFailure("the engine is PostgreSQL") }
        return store
    }

    /// As after a failover to a server that lacked the last head.
    // Promise: lost-commits-stop-pushes
    @Test func nothingIsStoredOnceCommitsAreLost() async throws {
        let fixture = try Fixture(.postgres)
        let store = store(fixture)
        #expect(try await store.takeLease("a", address: "", after: 0))
        try await store.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        let schema = TestPostgres.name(fixture.folder)
        _ = try TestPostgres.texts("UPDATE \(schema).log SET size = size - 1")
        await #expect(throws: StoreError.lostCommits) { try await fixture.create(1) }
        await #expect(throws: StoreError.lostCommits) { _ = try await store.closedEntries(before: .max, limit: 1) }
        // The node keeps its keys meanwhile.
        #expect(try await store.renew(NodeReport(name: "a", steps: 1, ledgerSize: 1)))
        #expect(store.fault == .lostCommits)
        // Its schedule would only be read with the commit.
        await #expect(throws: StoreError.lostCommits) { try await store.setMark("x", [1]) }
        // The wrong server's log has grown.
        _ = try TestPostgres.texts("UPDATE \(schema).log SET size = size + 10")
        #expect(try await store.renew(NodeReport(name: "a", steps: 1, ledgerSize: 1)))
        try await store.recheckCommits { false }
        #expect(store.fault == .lostCommits)
        // The server that has them is back.
        _ = try TestPostgres.texts("UPDATE \(schema).log SET size = size - 9")
        try await store.recheckCommits { true }
        #expect(store.fault == nil)
        try await fixture.create(1)
        try await fixture.close()
    }

    /// As after a failover to a server that lacked the last seconds, but nothing that was published.
    // Promise: small-loss-rings
    @Test func aSmallLossOfCommitsIsAnAlarm() async throws {
        let fixture = try Fixture(.postgres)
        let store = store(fixture)
        let report = NodeReport(name: "a", steps: 1, ledgerSize: 1)
        #expect(try await store.takeLease("a", address: "", after: 0))
        #expect(try await store.renew(report))
        try await fixture.create(1)
        #expect(store.takeAlarms().isEmpty)
        let schema = TestPostgres.name(fixture.folder)
        _ = try TestPostgres.texts("UPDATE \(schema).member SET held_until = held_until - 3000")
        // The node goes on, and says it once.
        try await fixture.create(2)
        try await fixture.create(3)
        #expect(try await store.renew(report))
        try await fixture.create(4)
        let alarms = store.takeAlarms()
        #expect(alarms.count == 1 && alarms[0].hasPrefix("a failover has lost commits"))
        #expect(store.fault == nil)
        // Also if the renewal itself is the first to meet it.
        _ = try TestPostgres.texts("UPDATE \(schema).member SET held_until = held_until - 3000")
        #expect(try await store.renew(report))
        #expect(store.takeAlarms().count == 1)
        try await fixture.close()
    }

    /// The standby has an earlier term of this node: it stopped copying before the node's last start.
    @Test func aNodeKeepsItsKeysIfItsTermIsLost() async throws {
        let fixture = try Fixture(.postgres)
        let store = store(fixture)
        #expect(try await store.takeLease("a", address: "", after: 0))
        try await fixture.create(1)
        let schema = TestPostgres.name(fixture.folder)
        for (table, back, again) in [
            ("member", "term = 0", "term = 1"), ("lease", "term = 0", "term = 1"),
            // Another node has taken the lease there.
            ("lease", "holder = 'b'", "holder = 'a'"),
        ] {
            _ = try TestPostgres.texts("UPDATE \(schema).\(table) SET \(back)")
            // At the wrong server, too: another node there would take this one for dead.
            #expect(try await store.renew(NodeReport(name: "a", steps: 1, ledgerSize: 1)))
            #expect(store.fault == .lostCommits)
            if table == "lease" { try await store.recheckCommits { true } }
            #expect(store.fault == .lostCommits)
            await #expect(throws: StoreError.lostCommits) { try await fixture.create(2) }
            // What is missing may only be lost.
            await #expect(throws: StoreError.lostCommits) { _ = try await store.read { try $0.jobs() } }
            _ = try TestPostgres.texts("UPDATE \(schema).\(table) SET \(again)")
            try await store.recheckCommits { true }
            #expect(try await store.renew(NodeReport(name: "a", steps: 1, ledgerSize: 1)) && store.fault == nil)
        }
        try await fixture.close()
    }

    /// Its opening is in no ledger.
    @Test(arguments: Engine.allCases) func aLostJobIsNotHeld(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1))
        let job = fixture.job(1, record)
        #expect(try await !fixture.store.read { try $0.holds(job, token: true) || $0.holds(job, token: false) })
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(job)])) == .done)
        #expect(try await fixture.store.read { try $0.holds(job, token: true) && $0.holds(job, token: false) })
        _ = try await fixture.store.write { try $0.unregister([record.row], cause: .ended) }
        #expect(try await fixture.store.read { try !$0.holds(job, token: true) && $0.holds(job, token: false) })
        try await fixture.close()
    }

    private static let endSession = "SELECT pg_terminate_backend(pg_backend_pid())"

    /// Without an answer to its first statement nothing is known about it.
    @Test func aCommitThatIsUnknownIsNeitherRepeatedNorAcknowledged() async throws {
        let fixture = try Fixture(.postgres)
        let error = await #expect(throws: StoreError.self) {
            try await store(fixture).run { database in
                try database.write {
                    try database.setMark("x", [1])
                    try database.queue(text: Self.endSession)
                }
            }
        }
        #expect("\(String(describing: error))".contains("the answer to a commit was lost"))
        // The other connections have noticed nothing, and this one is made anew.
        for number in 0..<8 { try await fixture.create(UInt8(number * 3)) }
        try await fixture.close()
    }

    /// Sets a mark in a transaction whose session ends before its COMMIT.
    /// - Returns: how often the transaction ran.
    private func lostCommit(_ fixture: Fixture, before end: @escaping @Sendable () throws -> Void = {}) async throws -> Int {
        try await store(fixture).run { database in
            var runs = 0
            try database.write {
                runs += 1
                _ = try database.window()
                try database.setMark("x", [1])
                guard runs == 1 else { return }
                try end()
                try database.queue(text: Self.endSession)
            }
            return runs
        }
    }

    @Test func theServerKnowsThatACommitDidNotHappen() async throws {
        let fixture = try Fixture(.postgres)
        #expect(try await lostCommit(fixture) == 2)
        #expect(try await fixture.store.mark("x") == [1])
        try await fixture.close()
    }

    @Test func afterACrashTheServerKnowsNoCommit() async throws {
        let fixture = try Fixture(.postgres)
        let forget = "DELETE FROM \(TestPostgres.name(fixture.folder)).incarnation RETURNING name::text"
        await #expect(throws: StoreError.self) {
            try await lostCommit(fixture) { _ = try TestPostgres.texts(forget) }
        }
        #expect(try await fixture.store.mark("x") == nil)
        try await fixture.close()
    }

    /// The server has the commit, and its standby server doesn't. Each push of it must leave nevertheless once it is durable.
    @Test func aCommitThatTheStandbyLacksIsNotAcknowledged() async throws {
        let (fixture, server) = (try Fixture(.postgres), try PostgresServer())
        let uri = try TestPostgres.schema(named: fixture.folder, at: server.uri)
        try PostgresStore.makeSchema(uri: uri)
        let clock = fixture.clock
        let store = try PostgresStore(
            PostgresJournal(uri: uri, now: { clock.now }, clocks: clock.clocks), timing: .standard, connections: 4)
        #expect(try await store.takeLease("a", address: "", after: 0))
        let (_, _, token) = try await fixture.create(1, in: store)
        let (job, now) = (fixture.job(1, token: token, deadline: clock.now + 20_000), clock.now)
        // Else the commit that makes its partition would be the first to wait.
        _ = try await store.run { try $0.makePartition("job", Int64(job.deadline)) }
        func standby(_ name: String) async throws {
            let admin = server.uri.split(separator: "mayfly@").joined(separator: "postgres@")
            _ = try TestPostgres.texts("ALTER SYSTEM SET synchronous_standby_names = '\(name)'", at: admin)
            _ = try TestPostgres.texts("SELECT pg_reload_conf()::text", at: admin)
            while try TestPostgres.texts("SHOW synchronous_standby_names", at: server.uri) != [name] {
                try await Task.sleep(for: .milliseconds(10))
            }
        }
        try await standby("nobody")
        let knock = Task { try await store.write { try $0.knock(NewJob(job), throttle: 30_000, now: now, knocked: now) } }
        let end = "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        while try TestPostgres.texts(end, at: server.uri).isEmpty { try await Task.sleep(for: .milliseconds(10)) }
        let error = await #expect(throws: StoreError.self) { try await knock.value }
        #expect("\(String(describing: error))".contains("the answer to a commit was lost"))
        try await standby("")
        #expect(try await store.jobsAfterUnknownCommit().map(\.job) == [job.job])
        #expect(try await store.jobsAfterUnknownCommit().isEmpty)
        await store.shutDown()
        try await fixture.close()
        try server.stop()
    }

    /// A session that could not be checked at its beginning would not say who owns its jobs.
    @Test func aSessionThatCouldNotBeCheckedIsNotUsed() async throws {
        let fixture = try Fixture(.postgres)
        let store = store(fixture)
        #expect(try await store.takeLease("a", address: "", after: 0))
        let log = "\(TestPostgres.name(fixture.folder)).log"
        let name = "SELECT CASE current_setting('mayfly.node', true) WHEN 'a' THEN 1 ELSE 0 END::bigint"
        let owners = try await store.run(on: store.nodes) { database in
            database.disconnect()
            let holder = try PostgresConnection(TestPostgres.uri, deadlineMs: 5_000)
            try holder.send(text: "BEGIN")
            try holder.send(text: "LOCK TABLE \(log) IN ACCESS EXCLUSIVE MODE")
            _ = try holder.receive(deadlineMs: 5_000)
            #expect(throws: PostgresError.statement("55P03")) { try database.connect() }
            try holder.send(text: "ROLLBACK")
            _ = try holder.receive(deadlineMs: 5_000)
            return try database.read { try database.count(text: name) }
        }
        #expect(owners == 1)
        try await fixture.close()
    }

    @Test func aTransactionThatIsLostBeforeItsCommitIsRepeated() async throws {
        let fixture = try Fixture(.postgres)
        let runs = try await store(fixture).run { database in
            var runs = 0
            try database.write {
                runs += 1
                if runs == 1 { _ = try database.count(text: Self.endSession) }
                try database.setMark("x", [1])
            }
            return runs
        }
        #expect(runs == 2)
        #expect(try await fixture.store.mark("x") == [1])
        try await fixture.close()
    }

    /// An idle session's end is noticed before a commit is sent to it.
    @Test func aSessionThatEndedMeanwhileCostsNothing() async throws {
        let fixture = try Fixture(.postgres)
        let store = store(fixture)
        let session = try await store.run(on: store.nodes) { database in
            try database.read { try database.count(text: "SELECT pg_backend_pid()::bigint") }
        }
        #expect(try TestPostgres.texts("SELECT pg_terminate_backend(\(session), 5000)::text") == ["true"])
        let runs = try await store.run(on: store.nodes) { database in
            var runs = 0
            try database.write {
                runs += 1
                try database.setMark("x", [1])
            }
            return runs
        }
        #expect(runs == 1)
        try await fixture.close()
    }

    @Test func sealedValuesAreNotInTheStatistics() async throws {
        let fixture = try Fixture(.postgres)
        for number in 0..<12 { try await fixture.create(UInt8(number * 5)) }
        for number in 0..<12 { _ = try await fixture.registered(fixture.registration(1_000 + number)) }
        let schema = TestPostgres.name(fixture.folder)
        let tables = try TestPostgres.texts(
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = '\(schema)'::regnamespace")
        for table in tables { _ = try TestPostgres.texts("ANALYZE \(schema).\(table)") }
        let known = try TestPostgres.texts(
            """
            SELECT s.tablename || '.' || s.attname || ' ' || t.typname FROM pg_stats AS s JOIN pg_type AS t ON t.oid =
            (SELECT atttypid FROM pg_attribute WHERE attname = s.attname AND attrelid = (s.schemaname || '.' || s.tablename)::regclass)
            WHERE s.schemaname = '\(schema)'
            """)
        #expect(known.contains { $0.hasSuffix(" int8") } && !known.contains { $0.hasSuffix(" bytea") }, "\(known)")
        try await fixture.close()
    }

    @Test func aQuietBrokerDropsItsPartitions() async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.create(1)
        for number in 0..<3 { _ = try await fixture.registered(fixture.registration(number, life: 3_600_000)) }
        func partitions() throws -> Int {
            try TestPostgres.texts(
                """
                SELECT relname::text FROM pg_class WHERE relispartition AND relkind = 'r' AND relname NOT LIKE 'waiting%'
                AND relnamespace = '\(TestPostgres.name(fixture.folder))'::regnamespace
                """
            ).count
        }
        #expect(try partitions() == 3)
        // As the sweeper does: it comes back for each expiry, at least every 30 s, and scrubs.
        for _ in 0..<500 {
            guard let next = try await fixture.store.nextExpiry(jobSlack: 0) else { break }
            let wait = next - min(next, fixture.clock.now)
            fixture.clock.advance(min(wait, 30_000))
            if wait > 30_000 { continue }
            while try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).more {}
            #expect(try await fixture.store.scrub())
        }
        #expect(try partitions() == 0)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == nil)
        try await fixture.close()
    }

    // MARK: Waiting entries

    /// An hour of 10 s, a day of 20 s, two seals.
    private static let quick = StoreBatchTests.quick

    /// Returns names of the tables and indexes of waiting entries.
    private func relations(_ fixture: Fixture) throws -> [String] {
        try TestPostgres.texts(
            """
            SELECT relname::text FROM pg_class WHERE relname LIKE 'waiting%' AND relkind IN ('r', 'i') AND relnamespace
            = '\(TestPostgres.name(fixture.folder))'::regnamespace ORDER BY 1
            """)
    }

    /// Registers devices of users of their own, whose tokens live beyond the test.
    private func seal(_ numbers: Range<Int>, _ fixture: Fixture) async throws {
        for number in numbers { _ = try await fixture.registered(fixture.registration(number, owner: number, life: 900_000)) }
    }

    /// A batch that fills is one table without an index. It gets one when it is complete, is read in parts while the next one fills, and leaves the
    /// disk when it is in the log.
    @Test func aBatchIsDroppedWhenItIsInTheLog() async throws {
        let begin: UInt64 = 1_700_000_000
        let fixture = try Fixture(.postgres, timing: Self.quick, now: begin)
        try await fixture.store.start([StoreBatchTests.sign], marks: [])
        try await seal(0..<60, fixture)
        let (first, second) = ("waiting_\(begin + 10)", "waiting_\(begin + 20)")
        #expect(try relations(fixture) == [first])
        fixture.clock.advance(11_000)
        try await seal(100..<103, fixture)
        _ = try await fixture.publish(before: 0)
        #expect(try relations(fixture) == [first, first + "_id", second], "its window is open")
        fixture.clock.advance(1_000)
        var (log, next): ([ClosedEntry], Int) = ([], 103)
        while true {
            let entries = try await fixture.store.closedEntries(before: .max, limit: 16)
            guard let last = entries.last else { break }
            #expect(try relations(fixture) == [first, first + "_id", second])
            try await seal(next..<next + 2, fixture)
            next += 2
            let head = LogHead(size: UInt64(log.count + entries.count), checkpoint: "signed", window: last.window)
            #expect(try await fixture.store.commit(head, after: UInt64(log.count), entries: entries))
            log += entries
            #expect(try fixture.waiting().count == 60 + next - 100 - log.count { $0.source.rank == 3 })
            #expect(try await fixture.store.counts().waitingEntries >= 60 - log.count { $0.source.rank == 3 })
            // Another process goes on where this one stopped.
            let again = try fixture.reopen()
            #expect(try await again.closedEntries(before: .max, limit: 16).first != log.last)
            await again.shutDown()
            try await fixture.store.published(upTo: head.size)
            let isDropped = log.last?.endsBatch == true
            #expect(try await fixture.store.scrub())
            #expect(try relations(fixture) == (isDropped ? [second] : [first, first + "_id", second]))
        }
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.batches.map(\.seals) == [60] && log.count > 4 * 15)
        #expect(try fixture.waiting().count == next - 100)
        // The sweeper comes back for the second one, which is at midnight.
        fixture.clock.advance(9_000)
        _ = try await fixture.publish(before: 0)
        fixture.clock.advance(1_000)
        #expect(try await fixture.publish().count { $0.source.rank == 3 } == next - 100)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == fixture.clock.now + 20_000)
        #expect(20_000 + fixture.store.scrubDelayMs < 120_000, "the two minutes of docs/postgresql.md")
        #expect(try await fixture.store.scrub())
        #expect(try relations(fixture).isEmpty)
        try await fixture.close()
    }

    /// The same id in one hour, or in two hours of one batch.
    @Test(arguments: [true, false]) func anIdThatOccursTwiceIsDamage(isInOneHour: Bool) async throws {
        let begin: UInt64 = 1_700_000_000
        let fixture = try Fixture(.postgres, timing: Self.quick, now: begin)
        try await fixture.store.start([StoreBatchTests.sign], marks: [])
        try await seal(0..<1, fixture)
        fixture.clock.advance(11_000)
        #expect(try await fixture.publish().count == 1, "too few seals for a batch, so they wait for midnight")
        try await seal(1..<40, fixture)
        let waiting = "\(TestPostgres.name(fixture.folder)).waiting"
        let hour = begin + (isInOneHour ? 20 : 10)
        let again = "SELECT \(hour), rank, id, until, cause FROM \(waiting) WHERE batch = \(begin + 20) LIMIT 1"
        _ = try TestPostgres.texts("INSERT INTO \(waiting) \(again)")
        fixture.clock.advance(10_000)
        await #expect(throws: StoreError.damaged("ledger entries that wait for their batch: an id occurs twice")) {
            _ = try await fixture.publish(before: .max, limit: 5)
        }
        // Operations go on.
        try await seal(50..<52, fixture)
        try await fixture.close()
    }

    /// Arithmetic with such times would end the process at each start.
    @Test(arguments: ["log SET window_start", "schedule SET looked", "schedule SET closed_up_to"])
    func timesAfterTheYear9999AreRefused(column: String) async throws {
        let fixture = try Fixture(.postgres)
        try await fixture.store.start([StoreBatchTests.sign], marks: [])
        fixture.clock.advance(1_000)
        #expect(try await fixture.publish().count > 0)
        _ = try TestPostgres.texts("UPDATE \(TestPostgres.name(fixture.folder)).\(column) = 9223372036854775807")
        await #expect(throws: StoreError.damaged("a time of the log is after the year 9999")) {
            try await fixture.store.record([StoreBatchTests.sign])
            _ = try await fixture.publish(before: .max)
        }
        try await fixture.close()
    }

    /// A start may follow ratchet steps that the previous process could not take.
    @Test(arguments: Engine.allCases) func aStartSaysWhatWasSwept(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        try await fixture.store.start([.keysRatcheted(epoch: 7, swept: 0)], marks: [])
        #expect(try fixture.entries().contains { $0.contains("\"swept\":\(fixture.clock.now / 300_000)") })
        try await fixture.close()
    }
}

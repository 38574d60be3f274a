import Ledger
import Linux
import Policy
import SQLite
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// A SQLite broker that moves to PostgreSQL keeps its rows and its log.
@Suite struct StoreMoveTests {
    /// An hour of 10 min, a day of 30 min, three seals.
    private static let timing = LedgerTiming(hourSeconds: 600, daySeconds: 1_800, batchSeals: 3)
    /// Unix seconds. The log begins in the first hour of the day before `midnight`.
    private static let (begin, midnight): (UInt64, UInt64) = (1_699_999_500, 1_700_001_000)
    private static let started = Entry.Op.keysGenerated(generation: 1)
    private static let stopped = Entry.Op.brokerStopped(node: EntryText("node")!)
    private static let checkpoint = "it's \\ signed\n\n— \"log.example\" (1,2)\n"

    /// - Parameter isComplete: true if the frozen batch only waits for its publication, as after a kill.
    @Test(
        arguments: [(boundary: midnight - 600, isComplete: false), (midnight - 600, true), (midnight, false), (midnight, true)])
    func aMovedBrokerKeepsItsRowsAndItsLog(boundary: UInt64, isComplete: Bool) async throws {
        let fixture = try Fixture(timing: Self.timing, now: Self.begin)
        var log = try await fill(fixture, until: boundary, isComplete: isComplete)
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute("UPDATE log SET checkpoint = '\(Self.checkpoint.doubled("'"))'")
        let (before, file) = (try dump(fixture), try File.read(fixture.path, limit: 1 << 24))
        for table in before.keys where table != "entry" && table != "unpublished" { #expect(before[table] != [], "\(table)") }

        let moved = try StoreMove.run(from: fixture.path, to: try uri(fixture))
        #expect(moved?.rooms == before["room"]?.count && moved?.tokens == before["token"]?.count)
        #expect(moved?.registrations == before["registration"]?.count)
        #expect(try File.list(fixture.folder) == [])
        let rows = try TestPostgres.rows(inSchemaNamed: fixture.folder).filter {
            !$0.hasPrefix("lease ") && !$0.hasPrefix("member ")
        }
        #expect(rows.sorted() == expected(before, boundary: boundary).sorted())

        log += try await end(fixture)
        check(log)
        // A file that a kill left is known even after the log went on.
        try File.write(fixture.path, file.span, mode: 0o600)
        #expect(try StoreMove.run(from: fixture.path, to: try uri(fixture)) == nil)
        #expect(try File.list(fixture.folder) == [])
        try TestPostgres.dropSchema(named: fixture.folder)
        try fixture.remove()
    }

    // MARK: Kills

    @Test func aKilledMoveIsRepeated() async throws {
        let fixture = try await publishedBroker()
        let whole = try File.read(fixture.path, limit: 1 << 24)
        // The transaction fails at its end.
        try SQLiteConnection(path: fixture.path).execute(
            "INSERT INTO batch (number, is_long, moment, window_start) VALUES (98, 0, 1, 1), (99, 0, 1, 2)")
        let refusal = "PostgreSQL refused a statement (SQLSTATE 23505, unique_violation)"
        #expect(throws: StoreMove.Failure.postgres(.unavailable(refusal))) {
            try StoreMove.run(from: fixture.path, to: try uri(fixture))
        }
        #expect(try TestPostgres.rows(inSchemaNamed: fixture.folder).filter { $0.hasPrefix("node ") }.count == 1)
        #expect(try TestPostgres.rows(inSchemaNamed: fixture.folder).count { $0.hasPrefix("token ") } == 0)
        try File.write(fixture.path, whole.span, mode: 0o600)
        #expect(try StoreMove.run(from: fixture.path, to: try uri(fixture))?.tokens == 1)
        let rows = try TestPostgres.rows(inSchemaNamed: fixture.folder)

        // Killed before the file had its other name.
        try File.write(fixture.path, whole.span, mode: 0o600)
        #expect(try StoreMove.run(from: fixture.path, to: try uri(fixture)) == nil)
        #expect(try File.list(fixture.folder) == [])
        // Killed later.
        for suffix in [".moved", "-wal", "-shm"] { try File.write(fixture.path + suffix, whole.span, mode: 0o600) }
        #expect(try StoreMove.run(from: fixture.path, to: try uri(fixture)) == nil)
        #expect(try File.list(fixture.folder) == [])
        #expect(try TestPostgres.rows(inSchemaNamed: fixture.folder) == rows)

        // The SQLite broker went on.
        try File.write(fixture.path, whole.span, mode: 0o600)
        try SQLiteConnection(path: fixture.path).execute("UPDATE log SET checkpoint = 'later'")
        try refuse(fixture, .occupied)
        try TestPostgres.dropSchema(named: fixture.folder)
        try fixture.remove()
    }

    // MARK: Refusals

    @Test func aFolderWithoutABrokerIsRefused() async throws {
        let fixture = try await publishedBroker()
        try File.remove(fixture.path)
        #expect(throws: StoreMove.Failure.noFile) { try StoreMove.run(from: fixture.path, to: try uri(fixture)) }
        try File.write(fixture.path, [UInt8]().span, mode: 0o600)
        try refuse(fixture, .noFile)
        try fixture.remove()
    }

    @Test func thePreviousVersionIsRefused() async throws {
        let fixture = try await publishedBroker()
        try SQLiteConnection(path: fixture.path).execute("PRAGMA user_version = \(Schema.version - 1)")
        try refuse(fixture, .sqlite(.otherVersion(found: UInt64(Schema.version - 1), needed: UInt64(Schema.version))))
        try fixture.remove()
    }

    @Test func unpublishedEntriesAreRefused() async throws {
        let fixture = try Fixture()
        try await fixture.store.start([Self.started], marks: [])
        await fixture.store.shutDown()
        try refuse(fixture, .unpublished)
        let store = try fixture.reopen()
        let entries = try await store.closedEntries(before: .max, limit: 10)
        let head = LogHead(size: 1, checkpoint: "signed", window: entries[0].window)
        #expect(try await store.commit(head, after: 0, entries: entries))
        await store.shutDown()
        try refuse(fixture, .unpublished)
        try fixture.remove()
    }

    @Test(arguments: [true, false]) func anotherBrokersDatabaseIsRefused(hasStarted: Bool) async throws {
        let (fixture, other) = (try await publishedBroker(), try Fixture(.postgres))
        if hasStarted { try await other.store.start([Self.started], marks: []) } else { try await other.create(1) }
        let rows = try TestPostgres.rows(inSchemaNamed: other.folder)
        try refuse(fixture, .occupied, uri: try uri(other))
        #expect(try TestPostgres.rows(inSchemaNamed: other.folder) == rows)
        try await other.close()
        try fixture.remove()
    }

    private func refuse(_ fixture: Fixture, _ failure: StoreMove.Failure, uri other: String? = nil) throws {
        let before = try File.read(fixture.path, limit: 1 << 24)
        let uri = try other ?? uri(fixture)
        #expect(throws: failure) { try StoreMove.run(from: fixture.path, to: uri) }
        #expect(try File.read(fixture.path, limit: 1 << 24) == before)
        if other == nil { try TestPostgres.dropSchema(named: fixture.folder) }
    }

    private func uri(_ fixture: Fixture) throws -> String { try TestPostgres.schema(named: fixture.folder) }

    // MARK: The broker before

    /// A stopped broker with a room, whose log is published.
    private func publishedBroker() async throws -> Fixture {
        let fixture = try Fixture()
        try await fixture.store.start([Self.started], marks: [])
        try await fixture.create(1)
        try await fixture.store.record([Self.stopped])
        try await fixture.publish(before: .max)
        await fixture.store.shutDown()
        return fixture
    }

    /// Fills all tables. Freezes a batch at `boundary`, and records seals and purges after it.
    /// - Returns: the published entries.
    private func fill(_ fixture: Fixture, until boundary: UInt64, isComplete: Bool) async throws -> [ClosedEntry] {
        let store = fixture.store
        try await store.start([Self.started], marks: [StoreMark("it's \\ \"a\", (ü)", [0, 39, 92])])
        try await register(900..<910, fixture)
        fixture.clock.advance(301_000)
        var log = try await fixture.publish()
        fixture.clock.advance(1_000)
        log += try await fixture.publish(before: .max)

        let (_, code, token) = try await fixture.create(10, life: 5_000_000, codeLife: 3_000_000)
        let second = fixture.token(30, room: fixture.room(10, expires: token.expires), slot: 2)
        #expect(try await fixture.accept(code, token: second) == .accepted)
        for id: UInt8 in [50, 60] { try await fixture.create(id, life: 200_000) }
        try await fixture.create(70, life: 4_000_000, codeLife: 3_500_000)
        let job = fixture.job(1, token: token, deadline: fixture.clock.now + 3_000_000)
        let now = fixture.clock.now
        #expect(try await store.write { try $0.knock(job, throttle: 1, now: now) } == .queued)
        try await register(0..<300, fixture)
        try await fillAudience(fixture)
        log += try await fixture.publish(before: .max)

        fixture.clock.advance(boundary * 1_000 - fixture.clock.now)
        try await sweep(fixture, store, limit: isComplete ? 100 : 1)
        try await store.setMark("b", [])
        let frozen = try await (store as! SQLiteStore).inspect { $0.journal.books.frozen }
        #expect(frozen.map(\.moment) == [boundary] && (frozen[0].window != nil) == isComplete)
        #expect((frozen[0].long != nil) == (boundary == Self.midnight))
        try await register(500..<520, fixture)
        for number in [502, 503, 504] {
            let row = fixture.registration(number, owner: number, life: life(number)).row
            #expect(try await store.write { try $0.unregister([row], cause: .policy) } == 1)
        }
        if !isComplete {
            try await store.record([Self.stopped])
            log += try await fixture.publish(before: .max)
        }
        return log
    }

    private func isLong(_ number: Int) -> Bool { number.isMultiple(of: 3) }
    private func life(_ number: Int) -> UInt64 { isLong(number) ? 4_000_000 : number.isMultiple(of: 2) ? 300_000 : 2_000_000 }

    private func register(_ numbers: Range<Int>, _ fixture: Fixture) async throws {
        for number in numbers {
            var record = fixture.registration(number, owner: number, life: life(number))
            record.isLong = isLong(number)
            _ = try await fixture.registered(record)
        }
    }

    private func fillAudience(_ fixture: Fixture) async throws {
        let record = fixture.registration(1, owner: 1, life: life(1))
        var job = fixture.job(2, record, fields: [])
        job.context.deadlineMs += 3_000_000
        let (now, end) = (fixture.clock.now, fixture.clock.now + 3_000_000)
        let change = AudienceChange(
            jobs: [AudienceJob(job)], waits: [WaitingUpdate(row: record.row, wasOpens: 0, opens: now + 2_500_000, waiting: [1])],
            session: .set(
                SessionRecord(
                    session: Fixture.index(4, 1, expires: end), generation: 1, expires: end, started: 1, version: 1,
                    client: Fixture.blob(3)), after: nil),
            timer: .begin(
                TimerRecord(
                    id: Fixture.ref(5), due: end, expires: end, generation: 1, sealed: [1],
                    names: RequestNames(user: Fixture.blob(1), creator: Fixture.blob(2)))),
            seen: SeenRecord(key: Fixture.index(5, 1, expires: end), expires: end))
        #expect(try await fixture.apply(change) == .done)
    }

    private func sweep(_ fixture: Fixture, _ store: any Store, limit: Int = 100) async throws {
        while try await store.sweep(now: fixture.clock.now, limit: limit, jobSlack: 0).more, limit > 1 {}
    }

    // MARK: The rows

    /// Returns the rows of all tables, each value as a row's text in PostgreSQL has it.
    private func dump(_ fixture: Fixture) throws -> [String: [[String]]] {
        let file = try SQLiteConnection(path: fixture.path, access: .readOnly)
        func texts(_ sql: String, _ read: (Statement) -> [String]) throws -> [[String]] {
            let statement = try file.prepare(sql)
            var rows: [[String]] = []
            while try statement.step() { rows.append(read(statement)) }
            return rows
        }
        var tables: [String: [[String]]] = [:]
        for name in try texts("SELECT name FROM sqlite_master WHERE type = 'table'", { [$0.text(0)] }).joined() {
            let types = try texts("SELECT type FROM pragma_table_info('\(name)')") { [$0.text(0)] }.joined()
            tables[name] = try texts("SELECT * FROM \(name)") { row in
                zip((0 as Int32)..., types).map { column, type in
                    row.isNull(column) ? "" : field(type == "BLOB" ? "\\x" + Hex.encode(row.blob(column).span) : row.text(column))
                }
            }
        }
        tables["waiting"] = try fixture.waiting().map { batch, rank, entry in
            ["\(batch)", "\(rank)", field("\\x\(entry.id)"), "\(entry.until)", entry.cause.map { "\($0.column)" } ?? ""]
        }
        tables["batch"] = tables["batch"]!.map { Array($0.prefix(4)) }
        return tables
    }

    /// Quotes a value as PostgreSQL does in a row's text.
    private func field(_ text: String) -> String {
        let isPlain = text.allSatisfy { !"\"\\(), \n".contains($0) }
        return isPlain && !text.isEmpty ? text : "\"\(text.doubled("\\").doubled("\""))\""
    }

    private func expected(_ before: [String: [[String]]], boundary: UInt64) -> [String] {
        var tables = before
        let head = before["log"]![0]
        tables["log"] = [head + [head[1]]]
        tables["schedule"]![0] += [head[3], "0", "0", "0"]
        tables["node"]! += [["moved", field("\\x" + Hex.encode(Array(Self.checkpoint.utf8).span))]]
        tables["node"]! += [["schema.version", field("\\x0000000000000004")]]
        // No node owns the jobs.
        tables["job"] = before["job"]!.map { $0 + ["\"\""] }
        var boundaries: [String: String] = [:]
        for batch in before["batch"]! {
            let next = boundary + (batch[1] == "0" ? 600 : boundary == Self.midnight ? 1_800 : 600)
            boundaries[batch[0]] = batch[2].isEmpty ? String(next) : batch[2]
        }
        tables["waiting"] = before["waiting"]!.map { [boundaries[$0[0]]!] + $0.dropFirst() }
        // Nothing of it is in the log.
        let frozen = before["batch"]!.filter { !$0[2].isEmpty }.map { Array($0[2...]) + ["", ""] }
        tables["batch"] = Array(Set(frozen))
        return tables.flatMap { name, rows in rows.map { "\(name) (\($0.joined(separator: ",")))" } }
    }

    // MARK: The broker after

    /// Runs the moved broker until nothing is left.
    /// - Returns: the published entries.
    private func end(_ fixture: Fixture) async throws -> [ClosedEntry] {
        let journal = PostgresJournal(
            uri: try uri(fixture), now: { fixture.clock.now }, clocks: fixture.clock.clocks)
        let store = try PostgresStore(journal, timing: Self.timing, connections: 2)
        try await store.start([Self.started], marks: [])
        var log = try await fixture.publish(store)
        let jobs = try await store.read { try $0.jobs() }
        #expect(jobs.count == 2)
        for job in jobs { try await store.write { try $0.finish(job, JobOutcome(status: 200, reason: nil)) } }
        // Two days after the last expiry.
        for _ in 0..<31 {
            fixture.clock.advance(300_000)
            try await sweep(fixture, store)
            log += try await fixture.publish(store)
        }
        #expect(try await store.scrub())
        await store.shutDown()
        let tables = [
            "entry", "waiting", "batch", "bucket", "job", "room", "token", "registration", "registration_index", "timer", "seen",
        ]
        let left = try TestPostgres.rows(inSchemaNamed: fixture.folder)
        for table in tables + ["session"] { #expect(!left.contains { $0.hasPrefix(table + " ") }, "\(table)") }
        return log
    }

    private func check(_ log: [ClosedEntry]) {
        var model = LogModel(Self.timing)
        model.admit(log)
        // Two in one room, three alone and the registrations.
        #expect(model.ops["token.sealed"] == 5 + 330 && model.ops["token.purged"] == 5 + 330)
        let lines = log.map { LogModel.Line($0) }
        for op in ["token.sealed", "token.purged", "token.opened"] {
            let ids = lines.filter { $0.op == op }.map(\.key)
            #expect(Set(ids).count == ids.count && !ids.isEmpty, "\(op)")
        }
        #expect(model.live.isEmpty && model.ops["token.opened"] == 2 && model.ops["push.delivered"] == 2)
        #expect(model.closed.count >= 4 && model.booked == model.ended)
    }
}

extension String {
    fileprivate func doubled(_ part: Character) -> String {
        map { $0 == part ? "\(part)\(part)" : String($0) }.joined()
    }
}

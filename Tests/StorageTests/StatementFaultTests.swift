import Ledger
import SQLite
import Shares
import Synchronization
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// Fails each operation at each of its statements in turn.
@Suite struct StatementFaultTests {
    private typealias Body = @Sendable (Transaction) throws -> Void

    // Promise: entries-with-their-operation
    @Test(arguments: Engine.allCases) func anOperationThatFailsAtAnyStatementLeavesNothing(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let clock = fixture.clock
        let (room, code, token) = try await fixture.create(1)
        let joined = fixture.token(2, room: room, slot: 2)
        let used = UsedCode(
            code: code.code, expires: clock.now + 20_000, retry: Fixture.blob(6, 104), retryGeneration: 1,
            retryUntil: clock.now + 10_000)
        let joiner = SideRecord(generation: 1, client: Fixture.blob(201), member: Fixture.blob(202), token: joined.purgeID)
        try await check("accept", 3, fixture) { transaction in
            let outcome = try transaction.accept(code, joiner: joiner, token: NewToken(joined), used: used, now: clock.now)
            #expect(outcome == .accepted)
        }
        let job = fixture.job(1, token: token, deadline: clock.now + 20_000)
        try await check("knock", 5, fixture) {
            let answer = try $0.knock(job, throttle: 0, now: clock.now)
            #expect(answer == .queued)
        }
        try await check("finish", 6, fixture) { try $0.finish(job, JobOutcome(status: 410, reason: .unregistered, purge: true)) }
        let next = fixture.token(3, room: room)
        try await check("replaceToken", 4, fixture) {
            let answer = try $0.replaceToken(room: room.room, slot: 1, proven: false, previous: nil, token: NewToken(next))
            #expect(answer == .replaced)
        }
        try await check("withdrawToken", 4, fixture) {
            let answer = try $0.withdrawToken(room: room.room, slot: 1, proven: false)
            #expect(answer == 1)
        }
        try await check("markProven", 1, fixture) {
            let answer = try $0.markProven(room: room.room, slot: 2)
            #expect(answer)
        }
        try await check("close", 4, fixture) {
            let answer = try $0.close(room: room.room)
            #expect(answer == 1)
        }

        try await fixture.create(10, codeLife: 10_000)
        clock.advance(10_000)
        let later = fixture.room(40, expires: clock.now + 60_000)
        var short = fixture.code(40, room: later, expires: clock.now + 30_000, short: true)
        short.code = Fixture.blob(110)
        let (again, first) = (short, fixture.token(40, room: later))
        try await check("create", 7, fixture) { transaction in
            let outcome = try transaction.create(
                later, code: again, otherIndexes: [], token: first, shortLimit: 1, now: clock.now)
            #expect(outcome == .created)
        }

        let old = try await fixture.registered(fixture.registration(1, session: 5))
        let new = fixture.registration(2, session: 5)
        try await check("register", 13, fixture) { transaction in
            let outcome = try transaction.register(NewRegistration(new), replacing: [old], owners: [new.owner], limit: 1)
            #expect(outcome == .registered)
        }
        try await check("setPreferences", 1, fixture) {
            let answer = try $0.setPreferences(new.row, removing: 1, adding: 0)
            #expect(answer)
        }
        let other = try await fixture.registered(fixture.registration(3, owner: 2))
        let end = clock.now + 50_000
        let change = AudienceChange(
            jobs: [AudienceJob(fixture.job(2, new), update: ActivityUpdate(wasOpens: 0, opens: 7, stamp: 8))],
            waits: [WaitingUpdate(row: other.row, wasOpens: 0, waiting: [1])], purges: [RegistrationPurge(new.row, .ended)],
            session: .set(
                SessionRecord(
                    session: Fixture.index(4, 1, expires: end), generation: 1, expires: end, started: 1, version: 1), after: nil),
            timer: .begin(TimerRecord(id: Fixture.ref(5), due: end, expires: end, generation: 1, sealed: [1])),
            seen: SeenRecord(key: Fixture.index(5, 1, expires: end), expires: end))
        try await check("apply", 12, fixture) {
            let answer = try $0.apply(change, now: clock.now)
            #expect(answer == .done)
        }
        try await check("unregister", 4, fixture) {
            let answer = try $0.unregister([other.row], cause: .ended)
            #expect(answer == 1)
        }
        try await fixture.close()
    }

    /// Fails the operation at its first statement, at its second and so on, until it succeeds.
    /// - Parameter least: the least number of statements and records.
    private func check(_ name: String, _ least: Int, _ fixture: Fixture, _ body: @escaping Body) async throws {
        let before = try await image(fixture)
        for place in 0... {
            let isDone: Bool
            do {
                isDone = try await fixture.store.write { transaction in
                    let failing = FailingDatabase(transaction.database, at: place)
                    try body(Transaction(failing))
                    return !failing.hasFailed
                }
            } catch {
                #expect(error == .full, "\(name) at \(place)")
                isDone = false
            }
            if isDone {
                #expect(place >= least, "\(name)")
                #expect(try await image(fixture) != before, "\(name) did nothing")
                return
            }
            #expect(try await image(fixture) == before, "\(name) at \(place)")
        }
    }

    /// All rows, and the books of a writer that has some.
    private func image(_ fixture: Fixture) async throws -> [String] {
        guard let store = fixture.store as? SQLiteStore else { return try TestPostgres.rows(inSchemaNamed: fixture.folder) }
        let books = try await store.inspect { $0.journal.books }
        let connection = try SQLiteConnection(path: fixture.path, access: .readOnly)
        func texts(_ sql: String) throws -> [String] {
            let statement = try connection.prepare(sql)
            var texts: [String] = []
            while try statement.step() { texts.append(statement.text(0)) }
            return texts
        }
        return try texts("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").flatMap { table in
            let columns = try texts("SELECT name FROM pragma_table_info('\(table)')").map { "quote(\($0))" }
            return try texts("SELECT '\(table) ' || \(columns.joined(separator: " || ',' || ")) FROM \(table)")
        } + ["\(books)"]
    }
}

/// Fails at one call, like a full disk.
private final class FailingDatabase: Database {
    private let inner: any Database
    private var left: Int
    private(set) var hasFailed = false

    init(_ inner: any Database, at place: Int) { (self.inner, left) = (inner, place) }

    private func count() throws(StoreError) {
        hasFailed = hasFailed || left == 0
        left -= 1
        if hasFailed { throw .full }
    }

    var moment: UInt64 { inner.moment }
    func admit(_ urgency: Urgency) throws(StoreError) { try inner.admit(urgency) }
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) throws {
        #expect(!keys().isEmpty, "\(operation)")
        try inner.lock(keys(), for: operation)
    }
    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws {
        try count()
        try inner.query(sql, values, body)
    }
    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int {
        try count()
        return try inner.change(sql, values)
    }
    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws {
        try self.count()
        try inner.queue(sql, expecting: count, values)
    }
    func record(_ entry: NewEntry) throws {
        try count()
        try inner.record(entry)
    }
}

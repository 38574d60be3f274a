import Ledger
import Linux
import Policy
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// The ledger in the store: windows, order, compare-and-swap of the head, backlog.
@Suite struct StoreLogTests {
    // Promise: entries-sorted
    @Test(arguments: Engine.allCases) func entriesAreInTheLogsOrder(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, _, first) = try await fixture.create(9)
        let (_, _, second) = try await fixture.create(3)
        for (id, token) in [(60, first), (50, second)] as [(UInt8, TokenRecord)] {
            let job = fixture.job(id, token: token, deadline: fixture.clock.now + 20_000)
            #expect(try await fixture.store.write { try $0.knock(job, throttle: 0, now: fixture.clock.now) } == .queued)
            try await fixture.store.write { try $0.finish(job, JobOutcome(status: 200, reason: nil)) }
        }
        try await fixture.store.record([.keysGenerated(generation: 2), .keysGenerated(generation: 1)])
        fixture.clock.advance(1_000)
        try await fixture.store.record([.keysGenerated(generation: 3)])
        fixture.clock.advance(1_000)
        let lines = try await fixture.publish().map { LogModel.Line($0) }
        #expect(lines.prefix(2).map { $0.number("generation") } == [2, 1], "in the order of recording")
        #expect(lines[2...5].map(\.rank) == [1, 1, 2, 2] && lines[6].number("generation") == 3)
        // 60 and 50 with all bits inverted, then unchanged.
        #expect(lines[2].key.hasPrefix("c3") && lines[3].key.hasPrefix("cd"))
        #expect(lines[4].key.hasPrefix("32") && lines[5].key.hasPrefix("3c"))
        try await fixture.close()
    }

    // Promise: window-published-once
    @Test(arguments: Engine.allCases) func anOpenWindowIsNotReturned(engine: Engine) async throws {
        let fixture = try Fixture(engine, resolution: 60)
        try await fixture.store.record([Self.sign])
        let start = fixture.clock.now / 60_000 * 60
        #expect(try await fixture.store.closedEntries(before: start, limit: .max).isEmpty)
        #expect(try await fixture.store.closedEntries(before: start + 60, limit: .max).count == 1)
        try await fixture.close()
    }

    static let sign = StoreBatchTests.sign

    // Promise: time-never-decreases
    @Test func entriesNeverGetAnEarlierWindowThanTheLog() async throws {
        let fixture = try Fixture()
        let window = fixture.clock.now / 1_000
        try await fixture.store.record([Self.sign])
        // Closed early, like at a stop. Later entries of the same window follow in it.
        #expect(try await fixture.publish(before: .max).map(\.window) == [window])
        try await fixture.store.record([Self.sign])
        #expect(try await fixture.publish(before: .max).map(\.window) == [window])
        await fixture.store.shutDown()
        // Also after a restart with an earlier clock.
        let again = try SQLiteStore(path: fixture.path, resolution: 1, timing: nil, now: { (window - 100) * 1_000 })
        #expect(try await again.latestWindow() == window)
        try await again.record([.keysRatcheted(epoch: 5, swept: 0)])
        #expect(try await again.closedEntries(before: .max, limit: .max).last?.window == window)
        await again.shutDown()
        try fixture.remove()
    }

    @Test(arguments: Engine.allCases) func anAbsenceIsRecordedFirst(engine: Engine) async throws {
        let resumption = Entry.Op.keysGenerated(generation: 7)
        let fixture = try Fixture(engine, resumption: resumption)
        try await fixture.store.start([], marks: [])
        try await fixture.create(1, life: 3_600_000)
        // A minute with successful writes is not an absence.
        for _ in 0..<3 {
            fixture.clock.advance(59_000)
            _ = try await fixture.store.sweep(now: 0, limit: 1, jobSlack: 0)
        }
        #expect(try fixture.ops() == ["token.sealed"])
        fixture.clock.advance(61_000)
        // A sign of life that hides nothing.
        _ = try await fixture.store.sweep(now: 0, limit: 1, jobSlack: 0)
        try await fixture.create(2)
        try await fixture.create(3)
        #expect(try fixture.ops() == ["keys.generated", "token.sealed", "token.sealed", "token.sealed"])
        try await fixture.close()
    }

    /// Entries of a transaction have the same time, whatever the clock does.
    @Test func aTransactionHasOneTime() async throws {
        let folder = try File.makeTemporaryFolder()
        let clock = TestClock()
        let store = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: nil) {
            clock.advance(700)
            return clock.now
        }
        try await store.record([
            .keysRatcheted(epoch: 1, swept: 0), .keysRatcheted(epoch: 2, swept: 0), .keysRatcheted(epoch: 3, swept: 0),
        ])
        #expect(Set(try await store.closedEntries(before: .max, limit: .max).map(\.window)).count == 1)
        await store.shutDown()
        try File.removeTree(folder)
    }

    /// Nothing was published, and the clock was set back.
    @Test func aRestartContinuesAfterWaitingEntries() async throws {
        let fixture = try Fixture()
        try await fixture.store.record([Self.sign, Self.sign])
        let window = fixture.clock.now / 1_000
        await fixture.store.shutDown()
        let again = try SQLiteStore(path: fixture.path, resolution: 1, timing: nil, now: { (window - 100) * 1_000 })
        #expect(try await again.latestWindow() == window)
        #expect(try await again.counts().waitingEntries == 2)
        try await again.record([.keysGenerated(generation: 2)])
        let entries = try await again.closedEntries(before: .max, limit: .max)
        #expect(entries.map(\.window) == [window, window, window])
        #expect(LogModel.Line(entries[2]).number("generation") == 2)
        await again.shutDown()
        try fixture.remove()
    }

    /// Only writes are signs of life. Closing windows succeeds even on a full disk.
    @Test(arguments: Engine.allCases) func publishingIsNotASignOfLife(engine: Engine) async throws {
        let fixture = try Fixture(engine, resumption: .keysGenerated(generation: 7))
        try await fixture.store.start([], marks: [])
        // Nothing else for a minute and a second. Then one resumption is enough.
        fixture.clock.advance(40_000)
        _ = try await fixture.publish()
        fixture.clock.advance(21_000)
        for _ in 0..<3 { _ = try await fixture.publish() }
        try await fixture.store.setMark("a", [1])
        #expect(try fixture.ops() == ["keys.generated"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aTokenThatExpiredMeanwhileIsRefused(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let room = fixture.room(1, expires: fixture.clock.now + 10_000)
        let code = fixture.code(1, room: room, expires: room.expires)
        let asked = fixture.clock.now
        fixture.clock.advance(400_000)
        await #expect(throws: StoreError.self) {
            try await fixture.store.write {
                try $0.create(
                    room, code: code, otherIndexes: [], token: fixture.token(1, room: room), shortLimit: 10, now: asked)
            }
        }
        #expect(try await fixture.store.read { try $0.room(room.room) } == nil)
        #expect(try fixture.ops().isEmpty)
        try await fixture.close()
    }

    /// The sweeper deletes in batches, so a room can outlive its token for a moment.
    @Test func aPurgedTokenIsNotOpened() async throws {
        let fixture = try Fixture()
        let (room, _, token) = try await fixture.create(1, life: 10_000)
        let database = try SQLiteConnection(path: fixture.path)
        try database.execute("DELETE FROM token")
        let now = fixture.clock.now
        let job = fixture.job(3, token: token, deadline: room.expires)
        #expect(try await fixture.store.write { try $0.knock(job, throttle: 0, now: now) } == .changed)
        #expect(try fixture.ops() == ["token.sealed"])
        try await fixture.close()
    }

    // Promise: head-by-compare-and-swap
    @Test(arguments: Engine.allCases) func theHeadIsReplacedByCompareAndSwap(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        try await fixture.store.record([Self.sign, Self.sign])
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
        let head = LogHead(size: 2, checkpoint: "a", window: entries[0].window)
        #expect(try await fixture.store.commit(head, after: 1, entries: entries) == false)
        #expect(try await fixture.store.logHead() == nil)
        #expect(try await fixture.store.commit(head, after: 0, entries: entries))
        #expect(try await fixture.store.commit(head, after: 0, entries: []) == false)
        #expect(try await fixture.store.logHead() == head)
        let waiting = try await fixture.store.unpublished(after: 0)
        #expect(waiting.first == 0 && waiting.entries == entries.map(\.bytes))
        // An older head publishes nothing.
        try await fixture.store.published(upTo: 1)
        #expect(try await fixture.store.unpublished(after: 0).entries.count == 2)
        #expect(try await fixture.store.counts().waitingEntries == 2)
        try await fixture.store.published(upTo: 2)
        #expect(try await fixture.store.unpublished(after: 0) == (2, []))
        #expect(try await fixture.store.counts().waitingEntries == 0)
        try await fixture.close()
    }

    /// The entries fill more than one row.
    @Test(arguments: Engine.allCases) func unpublishedEntriesAreReadBack(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let events = (0..<2_000).map { Entry.Op.keysGenerated(generation: UInt32($0)) }
        try await fixture.store.record(events)
        let entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(try await fixture.store.commit(LogHead(size: 2_000, checkpoint: "a", window: 1), after: 0, entries: entries))
        await fixture.store.shutDown()
        let again = try fixture.reopen()
        #expect(try await again.unpublished(after: 0) == (0, entries.map(\.bytes)))
        #expect(try await again.counts().waitingEntries == 2_000)
        await again.shutDown()
        try fixture.remove()
    }

    @Test(arguments: Engine.allCases) func anEntryIsSequencedOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        try await fixture.store.record([Self.sign])
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
        #expect(try await fixture.store.commit(LogHead(size: 1, checkpoint: "a", window: 1), after: 0, entries: entries))
        // Neither before its publication nor afterwards.
        for size in [0, 1] as [UInt64] {
            try await fixture.store.published(upTo: size)
            await #expect(throws: StoreError.self) {
                try await fixture.store.commit(LogHead(size: 2, checkpoint: "b", window: 2), after: 1, entries: entries)
            }
        }
        #expect(try await fixture.store.logHead()?.size == 1)
        try await fixture.close()
    }

    /// Seals count an hour after their batch was frozen. Purges never count, since the number of tokens bounds them.
    // Promise: sweep-not-held-up
    @Test(arguments: Engine.allCases) func aFullBacklogRefusesAllButPurges(engine: Engine) async throws {
        let fixture = try Fixture(engine, timing: LedgerTiming(hourSeconds: 10, daySeconds: 20, batchSeals: 3), waitingLimit: 3)
        try await fixture.store.start([], marks: [])
        try await fixture.store.record([Self.sign])
        try await fixture.publish(before: .max)
        for id in [1, 20, 40] as [UInt8] { try await fixture.create(id, life: 10_000) }
        try await fixture.create(60)
        for id in [70, nil] as [UInt8?] {
            fixture.clock.advance(10_000)
            _ = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
            if let id { try await fixture.create(id) }
        }
        for id in [80, 90] as [UInt8] {
            await #expect(throws: StoreError.ledgerBehind) { try await fixture.create(id) }
            #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).tokens == (id == 80 ? 3 : 0))
        }
        // A head that covers the entries doesn't reduce the backlog. Only its publication does.
        let entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        let size = UInt64(entries.count) + 1
        #expect(try await fixture.store.commit(LogHead(size: size, checkpoint: "a", window: 1), after: 1, entries: entries))
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.create(90) }
        await fixture.store.shutDown()
        let again = try fixture.reopen(waitingLimit: 3)
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.create(90, in: again) }
        #expect(try await again.counts().waitingEntries == entries.count)
        try await again.published(upTo: size)
        #expect(try await again.counts().waitingEntries == 0)
        try await fixture.create(90, in: again)
        await again.shutDown()
        try fixture.remove()
    }

    /// Creations are refused first, since each new token causes more entries later. Pushes in progress can finish.
    @Test(arguments: Engine.allCases) func aBacklogStopsCreationsBeforeKnocks(engine: Engine) async throws {
        let fixture = try Fixture(engine, waitingLimit: 100)
        let (_, _, token) = try await fixture.create(1)
        func wait(_ count: Int) async throws {
            try await fixture.store.record([Entry.Op](repeating: .requestRefused(cause: .throttled, count: 5), count: count))
        }
        func knock(_ id: UInt8) async throws -> KnockOutcome {
            try await fixture.store.write {
                try $0.knock(
                    fixture.job(id, token: token, deadline: fixture.clock.now + 20_000), throttle: 0, now: fixture.clock.now)
            }
        }
        try await wait(69)
        let (_, code, _) = try await fixture.create(2)
        try await wait(1)
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.create(3) }
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.accept(code) }
        #expect(try await knock(10) == .queued)
        try await wait(14)
        await #expect(throws: StoreError.ledgerBehind) { try await knock(11) }
        try await fixture.store.write {
            try $0.finish(
                fixture.job(10, token: token, deadline: 0), JobOutcome(status: 200, reason: nil))
        }
        #expect(try await fixture.store.write { try $0.close(room: token.room) } == 1)
        try await fixture.close()
    }

    @Test func scrubbingEmptiesTheWriteAheadLog() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        #expect(try await fixture.store.scrub())
        #expect(try File.status(fixture.path + "-wal")?.size == 0)
        try await fixture.close()
    }

    @Test func aScrubDoesNotWaitForReaders() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        let reader = try SQLiteConnection(path: fixture.path, access: .readOnly)
        try reader.execute("BEGIN; SELECT count(*) FROM token")
        try await fixture.create(20)
        let begin = Clock.monotonicMs
        #expect(try await !fixture.store.scrub())
        #expect(Clock.monotonicMs - begin < 2_000, "it would have waited five seconds")
        #expect(try File.status(fixture.path + "-wal")?.size != 0)
        try reader.execute("COMMIT")
        #expect(try await fixture.store.scrub())
        #expect(try File.status(fixture.path + "-wal")?.size == 0)
        try await fixture.close()
    }

    // Promise: deleted-bytes-overwritten, commits-reach-the-disk
    @Test(arguments: [SQLiteConnection.Access.readWrite, .readOnly])
    func deletedBytesAreOverwrittenAndNoTemporaryFilesAreUsed(access: SQLiteConnection.Access) throws {
        let folder = try File.makeTemporaryFolder()
        let journal = Journal(resolution: 1, timing: .standard, limit: 1, now: { 0 })
        func setting(_ tables: SQLiteDatabase, _ name: String) throws -> Int64 {
            let statement = try tables.connection.prepare("PRAGMA \(name)")
            #expect(try statement.step())
            return statement.int(0)
        }
        let writer = try SQLiteDatabase(path: folder + "/mayfly.sqlite", access: .readWrite, journal: journal)
        let tables =
            access == .readWrite ? writer : try SQLiteDatabase(path: folder + "/mayfly.sqlite", access: access, journal: journal)
        // 2 is MEMORY.
        #expect(try setting(tables, "temp_store") == 2)
        if access == .readWrite {
            #expect(try setting(tables, "secure_delete") == 1)
            // 2 is FULL: each commit is synced to the disk.
            #expect(try setting(tables, "synchronous") == 2)
        }
        try File.removeTree(folder)
    }

    @Test func aDamagedOrForeignFileIsRefused() throws {
        let folder = try File.makeTemporaryFolder()
        try File.write(folder + "/mayfly.sqlite", [UInt8](repeating: 0x41, count: 8192).span, mode: 0o600)
        #expect(throws: StoreError.self) {
            try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: nil, now: { 0 })
        }
        let other = try SQLiteConnection(path: folder + "/other.sqlite")
        try other.execute("CREATE TABLE t (a); PRAGMA user_version = 99")
        let error = #expect(throws: StoreError.self) {
            try SQLiteStore(path: folder + "/other.sqlite", resolution: 1, timing: nil, now: { 0 })
        }
        #expect(error == .otherVersion(found: 99, needed: UInt64(Schema.version)))
        try File.removeTree(folder)
    }
}

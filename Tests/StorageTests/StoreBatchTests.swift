import Ledger
import Linux
import Policy
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// The publication of seals and purges, also after stops, crashes and failures.
@Suite struct StoreBatchTests {
    /// 22:30 UTC, an hour and a half before midnight.
    static let evening: UInt64 = 1_700_006_400 - 5_400
    static let stop = Entry.Op.brokerStopped(node: EntryText("node")!)
    static let sign = Entry.Op.keysGenerated(generation: 1)
    /// An hour of 10 s, a day of 20 s, two seals.
    static let quick = LedgerTiming(hourSeconds: 10, daySeconds: 20, batchSeals: 2)

    /// A store with a started log.
    private func fixture(
        _ engine: Engine = .sqlite, _ timing: LedgerTiming = .standard, at now: UInt64 = evening
    ) async throws -> Fixture {
        let fixture = try Fixture(engine, timing: timing, now: now)
        try await fixture.store.start([Self.sign], marks: [])
        return fixture
    }

    private func register(_ numbers: Range<Int>, _ fixture: Fixture, life: UInt64, isLong: Bool = false) async throws {
        for number in numbers {
            var record = fixture.registration(number, owner: number, life: life)
            record.isLong = isLong
            _ = try await fixture.registered(record)
        }
    }

    private func ops(_ entries: [ClosedEntry]) -> [String: Int] {
        entries.reduce(into: [:]) { $0[LogModel.Line($1).op, default: 0] += 1 }
    }

    private func advance(_ fixture: Fixture, to second: UInt64) { fixture.clock.advance(second * 1_000 - fixture.clock.now) }

    private func sweep(_ fixture: Fixture) async throws {
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
    }

    // MARK: Boundaries

    // Promise: batch-of-64
    @Test(arguments: [63, 64], Engine.allCases) func anHoursBatchNeeds64Seals(count: Int, engine: Engine) async throws {
        let fixture = try await fixture(engine)
        try await register(0..<count, fixture, life: 10_800_000)
        #expect(ops(try await fixture.publish()) == [:], "the start's window is open")
        advance(fixture, to: Self.evening + 1_799)
        #expect(ops(try await fixture.publish()) == ["keys.generated": 1])
        advance(fixture, to: Self.evening + 1_800)
        #expect(try await fixture.publish().isEmpty, "frozen, and its window is open")
        fixture.clock.advance(1_000)
        #expect(ops(try await fixture.publish()) == (count == 64 ? ["token.sealed": 64] : [:]))
        // Nothing more in the same hour.
        try await register(100..<200, fixture, life: 10_800_000)
        fixture.clock.advance(60_000)
        #expect(try await fixture.publish().isEmpty)
        advance(fixture, to: Self.evening + 5_401)
        try await sweep(fixture)
        fixture.clock.advance(1_000)
        #expect(ops(try await fixture.publish()) == ["token.sealed": count == 64 ? 100 : 163, "bucket.closed": 1])
        try await fixture.close()
    }

    // Promise: long-tokens-at-midnight
    @Test(arguments: Engine.allCases) func longTokensArePublishedOnlyAtMidnight(engine: Engine) async throws {
        let fixture = try await fixture(engine)
        try await register(0..<70, fixture, life: 40 * 3_600_000, isLong: true)
        try await register(100..<170, fixture, life: 3_600_000)
        #expect(
            try await fixture.store.write {
                try $0.unregister([fixture.registration(0, owner: 0, life: 40 * 3_600_000).row], cause: .ended)
            } == 1)
        advance(fixture, to: Self.evening + 1_801)
        #expect(ops(try await fixture.publish()) == ["keys.generated": 1], "no transaction was at the boundary before this one")
        fixture.clock.advance(1_000)
        #expect(ops(try await fixture.publish()) == ["token.sealed": 70])
        advance(fixture, to: Self.evening + 5_400)
        try await sweep(fixture)
        fixture.clock.advance(1_000)
        let entries = try await fixture.publish()
        #expect(ops(entries) == ["token.sealed": 70, "token.purged": 71, "bucket.closed": 1])
        // Both kinds are sorted together.
        let seals = entries.filter { $0.source.rank == 3 }.map { LogModel.Line($0).key }
        #expect(seals == seals.sorted())
        try await fixture.close()
    }

    // Promise: batch-at-midnight
    @Test(arguments: Engine.allCases) func aMidnightIsPublishedWithoutEntries(engine: Engine) async throws {
        let fixture = try await fixture(engine)
        advance(fixture, to: Self.evening + 5_400)
        _ = try await fixture.publish()
        fixture.clock.advance(1_000)
        let entries = try await fixture.publish()
        #expect(
            entries.map { LogModel.Line($0).text } == [
                #"{"at":"2023-11-15T00:00:00Z","ended":0,"expired":0,"op":"bucket.closed","sealed":0,"until":"2023-11-15T00:00:00Z"}"#
            ])
        try await fixture.close()
    }

    // MARK: Routing

    /// Tokens that expired before the batch's moment belong to it, even if purged later. Later entries wait for the next batch.
    // Promise: batch-waits-for-its-purges
    @Test(arguments: Engine.allCases) func aFrozenBatchWaitsForItsPurges(engine: Engine) async throws {
        let fixture = try await fixture(engine)
        try await register(0..<64, fixture, life: 1_000_000)
        try await register(64..<66, fixture, life: 1_800_000)
        advance(fixture, to: Self.evening + 1_800)
        try await register(70..<71, fixture, life: 10_000_000)
        #expect(ops(try await fixture.publish()) == ["keys.generated": 1])
        fixture.clock.advance(30_000)
        #expect(try await fixture.publish().isEmpty, "nothing was swept")
        #expect(
            try await fixture.store.write {
                try $0.unregister([fixture.registration(70, owner: 70, life: 9_970_000).row], cause: .ended)
            } == 1)
        try await sweep(fixture)
        fixture.clock.advance(1_000)
        let entries = try await fixture.publish()
        // The last two expire at the moment, not before it.
        #expect(ops(entries) == ["token.sealed": 66, "token.purged": 64])
        #expect(entries.allSatisfy { $0.window == Self.evening + 1_830 })
        #expect(try fixture.ops() == ["token.sealed", "token.purged", "token.purged", "token.purged"])
        try await fixture.close()
    }

    /// The second hour passes while the first batch waits. A window never has two batches.
    @Test(arguments: Engine.allCases) func theNextBatchWaitsForThePreviousOne(engine: Engine) async throws {
        let fixture = try await fixture(engine, Self.quick, at: 1_700_000_000)
        try await register(0..<2, fixture, life: 5_000)
        fixture.clock.advance(10_000)
        #expect(ops(try await fixture.publish()) == ["keys.generated": 1])
        try await register(2..<5, fixture, life: 100_000)
        fixture.clock.advance(15_000)
        #expect(try await fixture.publish().isEmpty)
        try await sweep(fixture)
        // The first batch has this window, so the next one waits for another.
        fixture.clock.advance(1_000)
        #expect(ops(try await fixture.publish()) == ["token.sealed": 2, "token.purged": 2])
        fixture.clock.advance(1_000)
        let entries = try await fixture.publish()
        #expect(ops(entries) == ["token.sealed": 3, "bucket.closed": 1])
        #expect(entries.map(\.window) == [UInt64](repeating: 1_700_000_026, count: 4))
        try await fixture.close()
    }

    // MARK: Stops, crashes, failures

    // Promise: stops-split-no-batch
    @Test(arguments: Engine.allCases) func aStopNeitherPublishesNorSplitsABatch(engine: Engine) async throws {
        let fixture = try await fixture(engine)
        try await register(0..<70, fixture, life: 3_600_000)
        try await fixture.store.record([Self.stop])
        #expect(ops(try await fixture.publish(before: .max)) == ["keys.generated": 1, "broker.stopped": 1])
        await fixture.store.shutDown()
        advance(fixture, to: Self.evening + 1_800)
        let again = try fixture.reopen()
        // Not before the start is in the log.
        try await again.setMark("a", [1])
        #expect(try await fixture.publish(again, before: .max).isEmpty)
        try await again.start([Self.sign], marks: [])
        let entries = try await fixture.publish(again, before: .max)
        #expect(ops(entries) == ["keys.generated": 1, "token.sealed": 70] && entries[0].source.rank == 0)
        await again.shutDown()
        try fixture.remove()
    }

    /// A stop published the window early. Entries of rank 0 continue in it, others get the next window.
    @Test(arguments: Engine.allCases) func aClosedWindowStartsAgain(engine: Engine) async throws {
        for isNew in [true, false] {
            let fixture = try Fixture(engine, resolution: 60, now: Self.evening)
            try await fixture.store.start([Self.sign], marks: [])
            let record = try await fixture.registered(fixture.registration(1))
            #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(fixture.job(1, record))])) == .done)
            #expect(ops(try await fixture.publish(before: .max)) == ["keys.generated": 1, "token.opened": 1])
            if isNew { try await fixture.store.record([Self.sign]) }
            #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(fixture.job(2, record))])) == .done)
            let windows = try await fixture.publish(before: .max).map(\.window)
            #expect(windows == (isNew ? [Self.evening, Self.evening] : [Self.evening + 60]))
            try await fixture.close()
        }
    }

    /// Kills the store after each step between a batch's moment and its publication.
    @Test func aBatchSurvivesACrashAfterEachStep() async throws {
        let fixture = try await fixture(.sqlite, Self.quick, at: 1_700_000_000)
        try await register(0..<7, fixture, life: 15_000)
        try await register(10..<17, fixture, life: 90_000, isLong: true)
        await fixture.store.shutDown()
        var log: [ClosedEntry] = []
        var store = try fixture.reopen()
        func crash() async throws {
            let books = try await books(of: store)
            await store.shutDown()
            store = try fixture.reopen()
            var resumed = try await self.books(of: store)
            // Numbers of entries that are in the log may be reused.
            (resumed.recorded, resumed.isCut) = (books.recorded, books.isCut)
            (resumed.closedUpTo, resumed.latest) = (books.closedUpTo, books.latest)
            #expect(resumed == books)
            try await store.start([Self.sign], marks: [])
        }
        try await crash()
        // Midnight, with everything expired and nothing swept.
        fixture.clock.advance(20_000)
        try await store.setMark("a", [1])
        #expect(try await books(of: store).incomplete != nil)
        try await crash()
        _ = try await store.sweep(now: fixture.clock.now, limit: 3, jobSlack: 0)
        try await crash()
        while try await store.sweep(now: fixture.clock.now, limit: 3, jobSlack: 0).more {}
        #expect(try await books(of: store).incomplete == nil)
        try await crash()
        // In pieces, with a crash between commit and publication and one after it.
        while true {
            let entries = try await store.closedEntries(before: .max, limit: 4)
            guard let last = entries.last else { break }
            let head = LogHead(size: UInt64(log.count + entries.count), checkpoint: "signed", window: last.window)
            #expect(try await store.commit(head, after: UInt64(log.count), entries: entries))
            let unpublished = try await store.unpublished(after: 0)
            #expect(unpublished.first == UInt64(log.count) && unpublished.entries == entries.map(\.bytes))
            await store.shutDown()
            store = try fixture.reopen()
            #expect(try await store.unpublished(after: 0).entries == entries.map(\.bytes))
            try await store.published(upTo: head.size)
            log += entries
            await store.shutDown()
            store = try fixture.reopen()
        }
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.batches.map(\.seals) == [14] && model.batches[0].isMidnight)
        #expect(model.ops["token.purged"] == 7 && model.ops["bucket.closed"] == 1 && model.live.values.reduce(0, +) == 7)
        await store.shutDown()
        try fixture.remove()
    }

    private func books(of store: any Store) async throws -> Books {
        try await (store as! SQLiteStore).inspect { $0.journal.books }
    }

    /// After a crash, a start in a batch's window must not come between the batch's entries.
    @Test(arguments: Engine.allCases) func aStartInABatchsWindowFollowsTheBatch(engine: Engine) async throws {
        let fixture = try Fixture(
            engine, resolution: 60, timing: LedgerTiming(hourSeconds: 60, daySeconds: 120, batchSeals: 5), now: 1_700_000_040)
        try await fixture.store.start([Self.sign], marks: [])
        try await register(0..<10, fixture, life: 200_000)
        fixture.clock.advance(60_000)
        let part = try await fixture.store.closedEntries(before: .max, limit: 6)
        #expect(ops(part) == ["keys.generated": 1, "token.sealed": 5])
        #expect(
            try await fixture.store.commit(LogHead(size: 6, checkpoint: "a", window: part[5].window), after: 0, entries: part))
        await fixture.store.shutDown()
        let again = try fixture.reopen(resolution: 60)
        try await again.published(upTo: 6)
        try await again.start([Self.sign], marks: [])
        let rest = try await fixture.publish(again, before: .max)
        #expect(rest.map(\.source.rank) == [3, 3, 3, 3, 3, 0] && Set(rest.map(\.window)) == [part[5].window])
        await again.shutDown()
        try fixture.remove()
    }

    /// Neither the database nor the copy in memory has anything of it.
    // Promise: entries-with-their-operation
    @Test func aFailedOperationLeavesNoEntry() async throws {
        let fixture = try await fixture()
        let store = fixture.store
        let (room, _, _) = try await fixture.create(1)
        try await fixture.create(2)
        let before = try await books(of: store)
        // The old token's purge is recorded before the new token fails with a duplicate id.
        var wrong = fixture.token(2, room: room)
        wrong.context.purgeID = Fixture.id(2)
        let token = wrong
        store.hold()
        async let mark: Void = store.record([Self.sign])
        async let failing = store.write { try $0.replaceToken(room: room.room, slot: 1, proven: false, token: token) }
        async let other: Void = store.record([Self.sign])
        store.release()
        _ = try await (mark, other)
        do {
            _ = try await failing
            Issue.record("an id stood twice")
        } catch {}
        var after = try await books(of: store)
        #expect(after.inWindows == before.inWindows + 2)
        (after.inWindows, after.recorded) = (before.inWindows, before.recorded)
        #expect(after == before)
        #expect(try fixture.ops() == ["keys.generated", "keys.generated", "keys.generated", "token.sealed", "token.sealed"])
        try await fixture.close()
    }

    /// A freeze is rolled back with its transaction, and the next one repeats it.
    @Test func aFailedTransactionFreezesNothing() async throws {
        let fixture = try await fixture()
        try await register(0..<70, fixture, life: 3_600_000)
        advance(fixture, to: Self.evening + 1_800)
        let before = try await books(of: fixture.store)
        // Like a full disk.
        await #expect(throws: StoreError.full) {
            try await (fixture.store as! SQLiteStore).inspect { tables in
                #expect(tables.journal.books.frozen.count == 1)
                tables.rollBack()
                throw StoreError.full
            }
        }
        #expect(try await (fixture.store as! SQLiteStore).inspect(turn: .alone) { $0.journal.books } == before)
        try await fixture.store.setMark("a", [1])
        #expect(try await books(of: fixture.store).frozen.map(\.moment) == [Self.evening + 1_800])
        #expect(try await books(of: fixture.store).short.number == 3)
        try await fixture.close()
    }

    // MARK: What is kept

    /// Waiting entries have no time, and their page doesn't depend on the order of recording.
    // Promise: waiting-entries-tell-no-order
    @Test func waitingEntriesHaveNoOrder() async throws {
        var images: [[String]] = []
        for numbers in [Array(0..<40), (0..<40).reversed()] {
            let fixture = try await fixture()
            for number in numbers {
                var record = fixture.registration(number, owner: number)
                record.context.expiryMs = Self.evening * 1_000 + 3_600_000
                record.audience = Fixture.index(1, number, expires: record.expires)
                record.owner = Fixture.index(2, number, expires: record.expires)
                record.device = Fixture.index(3, number, expires: record.expires)
                _ = try await fixture.registered(record)
                fixture.clock.advance(7_000)
            }
            let rows = try SQLiteConnection(path: fixture.path, access: .readOnly)
                .prepare("SELECT place || ' ' || count || ' ' || pages || ' ' || hex(bytes) FROM waiting")
            var image: [String] = []
            while try rows.step() { image.append(rows.text(0)) }
            images.append(image)
            #expect(try fixture.waiting().count == 40)
            try await fixture.close()
        }
        #expect(images[0].count == 1 && images[0] == images[1])
    }

    /// A start that fails before the log's first entry records no timing.
    @Test func aStateFolderKeepsItsTiming() async throws {
        let fixture = try Fixture(timing: .standard)
        await fixture.store.shutDown()
        let store = try SQLiteStore(path: fixture.path, resolution: 1, timing: Self.quick, now: { 1_700_000_000_000 })
        try await store.start([Self.sign], marks: [])
        await store.shutDown()
        let error = #expect(throws: StoreError.self) {
            try SQLiteStore(path: fixture.path, resolution: 1, timing: .standard, now: { 0 })
        }
        #expect(
            error?.description.contains("daySeconds 20") == true && error?.description.contains("start with an empty") == true)
        for timing in [nil, Self.quick] {
            let again = try SQLiteStore(path: fixture.path, resolution: 1, timing: timing, now: { 0 })
            #expect(try await again.inspect { $0.journal.timing } == Self.quick)
            await again.shutDown()
        }
        try fixture.remove()
    }

    /// `swept` is the epoch of the earliest row, or the current one.
    // Promise: swept-is-true
    @Test(arguments: Engine.allCases) func theRatchetEntryHasTheSweptEpoch(engine: Engine) async throws {
        let fixture = try await fixture(engine, at: 1_700_000_100)
        let epoch = fixture.clock.now / 300_000
        func swept() async throws -> Int? {
            try await fixture.store.record([.keysRatcheted(epoch: 5, swept: 0)])
            fixture.clock.advance(1_000)
            return LogModel.Line(try #require(try await fixture.publish().last)).number("swept")
        }
        #expect(try await swept() == Int(epoch))
        try await register(0..<1, fixture, life: 700_000)
        let (room, _, _) = try await fixture.create(1, life: 400_000, codeLife: 400_000)
        #expect(try await swept() == Int(epoch))
        fixture.clock.advance(900_000)
        #expect(try await swept() == Int(epoch) + 1, "of the room's token")
        #expect(try await fixture.store.write { try $0.close(room: room.room) } == 1)
        #expect(try await swept() == Int(epoch) + 2, "of the registration")
        try await sweep(fixture)
        #expect(try await swept() == Int(epoch) + 3)
        try await fixture.close()
    }
}

extension SQLiteStore {
    /// Reads the writer's state in memory.
    func inspect<Value: Sendable>(
        turn: StoreThread.Turn = .apart, _ body: @escaping @Sendable (SQLiteDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        try await run(on: writer, turn, body)
    }
}

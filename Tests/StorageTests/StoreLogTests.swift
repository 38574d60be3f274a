import Ledger
import Linux
import SQLite
import Testing

@testable import Storage

/// The ledger's side of the store: windows, order, the head's compare-and-swap, the backlog.
@Suite struct StoreLogTests {
    @Test func entriesComeOrderedByRefInsideTheirWindow() async throws {
        let fixture = try Fixture()
        try await fixture.create(9)
        try await fixture.create(3)
        fixture.clock.advance(1_000)
        try await fixture.create(1)
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
        #expect(entries.map { $0.ref[0] } == [3, 9, 1])
        try await fixture.close()
    }

    @Test func anOpenWindowIsNotGivenOut() async throws {
        let fixture = try Fixture(resolution: 60)
        try await fixture.create(1)
        let start = fixture.clock.now / 60_000 * 60
        #expect(try await fixture.store.closedEntries(before: start, limit: .max).isEmpty)
        #expect(try await fixture.store.closedEntries(before: start + 60, limit: .max).count == 1)
        try await fixture.close()
    }

    @Test func noEntryGetsAWindowBeforeWhatTheLogHas() async throws {
        let fixture = try Fixture()
        let window = fixture.clock.now / 1_000
        try await fixture.create(1)
        // Given early, as at a stop: what comes after it in the same window follows under the same start.
        var entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(entries.map(\.window) == [window])
        #expect(try await fixture.store.commit(LogHead(size: 1, checkpoint: "a", window: window), after: 0, entries: entries))
        try await fixture.create(2)
        entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(entries.map(\.window) == [window])
        await fixture.store.shutDown()
        // After a restart with a clock that stands earlier, too.
        let again = try SQLiteStore(path: fixture.path, resolution: 1, now: { (window - 100) * 1_000 })
        try await again.record([.keysRatcheted(epoch: 5)])
        #expect(try await again.closedEntries(before: .max, limit: .max).last?.window == window)
        await again.shutDown()
        try File.removeTree(fixture.folder)
    }

    @Test func afterAnAbsenceTheLogIsToldFirst() async throws {
        let resumption = Entry.Op.keysGenerated(generation: 7)
        let fixture = try Fixture(resumption: resumption)
        try await fixture.create(1)
        // A minute with signs of life is no absence.
        for _ in 0..<3 {
            fixture.clock.advance(59_000)
            _ = try await fixture.store.sweep(now: 0, limit: 1, jobSlack: 0)
        }
        #expect(try await fixture.ops() == ["token.sealed"])
        fixture.clock.advance(61_000)
        try await fixture.create(2)
        try await fixture.create(3)
        #expect(try await fixture.ops() == ["token.sealed", "keys.generated", "token.sealed", "token.sealed"])
        try await fixture.close()
    }

    @Test func theHeadIsReplacedByCompareAndSwap() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        try await fixture.create(2)
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
        let head = LogHead(size: 2, checkpoint: "a", window: entries[0].window)
        #expect(try await fixture.store.commit(head, after: 1, entries: entries) == false)
        #expect(try await fixture.store.logHead() == nil)
        #expect(try await fixture.store.commit(head, after: 0, entries: entries))
        #expect(try await fixture.store.commit(head, after: 0, entries: []) == false)
        #expect(try await fixture.store.logHead() == head)
        let waiting = try await fixture.store.unpublished()
        #expect(waiting.first == 0 && waiting.entries == entries.map(\.bytes))
        try await fixture.store.published(upTo: 1)
        #expect(try await fixture.store.unpublished().first == 1)
        try await fixture.store.published(upTo: 2)
        #expect(try await fixture.store.unpublished().entries.isEmpty)
        #expect(try await fixture.store.counts().waitingEntries == 0)
        try await fixture.close()
    }

    @Test func anEntryIsSequencedOnce() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: .max)
        #expect(try await fixture.store.commit(LogHead(size: 1, checkpoint: "a", window: 1), after: 0, entries: entries))
        await #expect(throws: StoreError.self) {
            try await fixture.store.commit(LogHead(size: 2, checkpoint: "b", window: 2), after: 1, entries: entries)
        }
        #expect(try await fixture.store.logHead()?.size == 1)
        try await fixture.close()
    }

    @Test func aFullBacklogRefusesAllButPurges() async throws {
        let fixture = try Fixture(waitingLimit: 1)
        let (room, _, _) = try await fixture.create(1, life: 10_000)
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.create(2) }
        fixture.clock.advance(10_000)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).tokens == 1)
        #expect(try await fixture.store.room(room.room) == nil)
        try await fixture.close()
    }

    @Test func scrubbingEmptiesTheWriteAheadLog() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        #expect(try await fixture.store.scrub())
        #expect(try File.status(fixture.path + "-wal")?.size == 0)
        try await fixture.close()
    }

    @Test func aDamagedOrForeignFileIsRefused() throws {
        let folder = try File.makeTemporaryFolder()
        try File.write(folder + "/mayfly.sqlite", [UInt8](repeating: 0x41, count: 8192).span, mode: 0o600)
        #expect(throws: StoreError.self) { try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, now: { 0 }) }
        let other = try Database(path: folder + "/other.sqlite")
        try other.execute("CREATE TABLE t (a); PRAGMA user_version = 7")
        let error = #expect(throws: StoreError.self) {
            try SQLiteStore(path: folder + "/other.sqlite", resolution: 1, now: { 0 })
        }
        guard case .damaged = error else {
            Issue.record("another version was not refused as such")
            return
        }
        try File.removeTree(folder)
    }
}

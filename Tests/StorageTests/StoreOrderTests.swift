import Ledger
import Linux
import SQLite
import Testing

@testable import Storage

/// Entries wait in the order in which they came and go into the log by ref: some at a time, over crashes, each once.
@Suite struct StoreOrderTests {
    /// A purge that needs no token before it.
    static func entry(_ number: UInt64) -> Entry.Op {
        // Scattered over all parts of a window.
        .tokenPurged(ref: OpaqueID(UInt128(number &* 0x9e37_79b9_7f4a_7c15) << 64 | 1), cause: .expired)
    }

    /// Puts what is closed into the log in batches, and forgets it.
    static func publish(_ store: SQLiteStore, limit: Int) async throws -> [ClosedEntry] {
        var (all, size): ([ClosedEntry], UInt64) = ([], try await store.logHead()?.size ?? 0)
        while true {
            let entries = try await store.closedEntries(before: .max, limit: limit)
            guard let last = entries.last else { return all }
            let head = LogHead(size: size + UInt64(entries.count), checkpoint: "signed", window: last.window)
            #expect(try await store.commit(head, after: size, entries: entries))
            while try await store.published(upTo: head.size) {}
            (all, size) = (all + entries, head.size)
        }
    }

    static func isInOrder(_ entries: [ClosedEntry]) -> Bool { zip(entries, entries.dropFirst()).allSatisfy { $0.key < $1.key } }

    static func rows(_ path: String) throws -> Int64 {
        let statement = try Database(path: path, access: .readOnly).prepare("SELECT count(*) FROM entry")
        #expect(try statement.step())
        return statement.int(0)
    }

    @Test(arguments: [1, 7, 1_000, 2_000, .max]) func batchesOfAnySizeGiveOneOrder(limit: Int) async throws {
        let fixture = try Fixture(resolution: 60)
        // More than one row holds, and others beside it in the same transaction and window.
        try await fixture.store.record((0..<1_500).map { Self.entry($0) })
        for number in 1_500..<1_510 { try await fixture.store.record([Self.entry(UInt64(number)), .keysRatcheted(epoch: 1)]) }
        fixture.clock.advance(60_000)
        try await fixture.store.record((2_000..<2_005).map { Self.entry($0) })
        #expect(try Self.rows(fixture.path) > 13)
        #expect(try await fixture.store.counts().waitingEntries == 1_525)
        let entries = try await Self.publish(fixture.store, limit: limit)
        #expect(entries.count == 1_525 && Set(entries.map(\.window)).count == 2 && Self.isInOrder(entries))
        #expect(entries.prefix(10).allSatisfy { $0.ref.isEmpty }, "what is about no token comes first")
        #expect(Set(entries.map(\.bytes)).count == 1_516, "the ten are alike")
        #expect(try await fixture.store.counts().waitingEntries == 0)
        #expect(try Self.rows(fixture.path) == 0, "what is published is forgotten")
        try await fixture.close()
    }

    @Test func aPartIsEveryEntryOfItsStretchAndNoOther() throws {
        var packed = PackedEntries()
        for number in 0..<1_000 as Range<UInt64> { packed.append(Entry(atMs: 0, Self.entry(number))) }
        packed.append(Entry(atMs: 0, .keysRatcheted(epoch: 1)))
        let row = packed.bytes
        var keys: [EntryKey] = []
        for number in 0..<8 {
            var part = OrderedPart(run: ClosedRun(after: 0, through: 1_001), window: 60, part: number, parts: 8)
            try part.add(row.span, from: 1)
            part.sort()
            #expect(part.keys.count > 90)
            keys += part.keys.indices.map { part.entry($0).key }
        }
        #expect(keys.count == 1_001 && keys == keys.sorted() && Set(keys.map(\.sequence)) == Set(1...1_001))
    }

    @Test func aRestartGoesOnInTheMiddleOfAWindow() async throws {
        let fixture = try Fixture()
        try await fixture.store.record((0..<100).map { Self.entry($0) })
        var given = try await fixture.store.closedEntries(before: .max, limit: 30)
        // Asked for again, because it was not committed.
        #expect(try await fixture.store.closedEntries(before: .max, limit: 30) == given)
        let head = LogHead(size: 30, checkpoint: "a", window: given[0].window)
        #expect(try await fixture.store.commit(head, after: 0, entries: given))
        await fixture.store.shutDown()
        let again = try fixture.reopen()
        #expect(try await again.counts().waitingEntries == 100)
        // Killed before they were in the folder.
        #expect(try await again.unpublished() == (0, given.map(\.bytes)))
        try await again.published(upTo: 30)
        #expect(try await again.counts().waitingEntries == 70)
        // Of the same window, as after a stop: it follows what was closed before it.
        try await again.record([.keysRatcheted(epoch: 1)])
        given += try await Self.publish(again, limit: 33)
        #expect(given.count == 101 && Self.isInOrder(given.dropLast()) && given.last?.ref == [])
        #expect(given.map(\.sequence).sorted() == Array(1...101))
        await again.shutDown()
        // All is forgotten, but not what numbers were used.
        let third = try fixture.reopen()
        try await third.record([.keysRatcheted(epoch: 2)])
        #expect(try await Self.publish(third, limit: 10).map(\.sequence) == [102])
        await third.shutDown()
        try File.removeTree(fixture.folder)
    }

    @Test func anOperationThatFailsLeavesNoEntry() async throws {
        let fixture = try Fixture()
        let store = fixture.store
        let (room, _, _) = try await fixture.create(1)
        try await fixture.create(2)
        // The purge of the old token is recorded before the new one turns out to bear another's ref.
        var wrong = fixture.token(2, room: room)
        wrong.ref = Fixture.blob(2, 16)
        let token = wrong
        store.hold()
        async let before: Void = store.record((0..<700).map { Self.entry($0) })
        async let failing = store.replaceToken(room: room.room, slot: 1, proven: false, token: token)
        async let after: Void = store.record([Self.entry(1_000)])
        store.release()
        try await before
        do {
            _ = try await failing
            Issue.record("a ref stood twice")
        } catch {}
        try await after
        #expect(try await store.counts().waitingEntries == 703)
        let entries = try await Self.publish(store, limit: .max)
        #expect(entries.map(\.sequence).sorted() == Array(1...703))
        #expect(entries.count { $0.ref == Fixture.blob(1, 16) } == 1, "sealed, not purged")
        try await fixture.close()
    }

    /// Whether it fails when the entries are written or later: what was counted, and the numbers that were given, are taken back.
    @Test func aCommitThatFailsLeavesNoEntry() throws {
        let folder = try File.makeTemporaryFolder()
        let journal = Journal(resolution: 60, limit: .max, now: { Clock.wallMs })
        let tables = try Tables(path: folder + "/mayfly.sqlite", access: .readWrite, journal: journal)
        try tables.database.execute("PRAGMA max_page_count = 30")
        for count in [100_000, 1_000] as [UInt64] {
            try tables.begin()
            #expect(throws: (any Error).self) {
                for number in 0..<count { try tables.record(Self.entry(number)) }
                try tables.commit()
            }
            #expect(journal.waiting > 500)
            tables.rollBack()
            #expect(journal.waiting == 0 && journal.backlog.sequence == 0)
        }
        try tables.begin()
        try tables.record(Self.entry(1))
        try tables.commit()
        tables.rollBack()
        #expect(journal.waiting == 1 && journal.backlog.sequence == 1)
        #expect(try tables.waitingEntries() == 1)
        try File.removeTree(folder)
    }

    @Test func aRowThatIsCutOffIsDamage() throws {
        var packed = PackedEntries()
        packed.append(Entry(atMs: 0, Self.entry(1)))
        for length in 1..<packed.bytes.count {
            let row = Array(packed.bytes.prefix(length))
            #expect(throws: StoreError.self) { try PackedEntries.read(row.span) { _ in } }
        }
    }
}

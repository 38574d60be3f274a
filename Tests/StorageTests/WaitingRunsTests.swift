import Ledger
import Linux
import Policy
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Seals and purges in sorted runs: what is kept, what an image shows, and what damage causes.
@Suite struct WaitingRunsTests {
    private static let quick = StoreBatchTests.quick
    private static let sign = StoreBatchTests.sign

    // MARK: Against a plain set

    /// Random commits, rollbacks and restarts. The runs have what was committed, sorted, and no run has entries of one commit alone.
    @Test(arguments: [1, 2] as [UInt64]) func runsHoldWhatWasCommitted(seed: UInt64) throws {
        let folder = try File.makeTemporaryFolder()
        var model = RunModel(path: folder + "/mayfly.sqlite", seed: seed)
        try model.open()
        for step in 0..<60 {
            try model.step()
            if step % 10 == 0 { try model.check() }
        }
        try model.check()
        #expect(model.slices > 2 && model.restarts > 1 && model.rollbacks > 3)
        try File.removeTree(folder)
    }

    /// A user's four phones, a bite of a sweep, single rooms: whatever the sizes, each run has entries of two commits if there are two.
    // Promise: waiting-entries-tell-no-order
    @Test(arguments: [
        [4, 190], [50, 192], [150, 192, 10], [5_000, 1, 1, 1, 1, 400, 1], [1, 5_000, 1, 1], [2, 300, 1], [192, 1, 1, 1],
        [191, 1, 1], [1, 191, 1], [300, 300, 1], [1_000, 1_000, 1], [100, 92, 1, 9_000, 1, 200],
    ]) func noCommitIsAlone(sizes: [Int]) {
        for restarts in [false, true] {
            var model = CommitModel()
            for size in sizes {
                model.add(size)
                model.check("\(sizes)")
                if restarts { model.restart() }
            }
        }
    }

    /// As many single entries as fill two slices, with and without what a restart forgets.
    @Test(arguments: [Int.max, 150, 7]) func noSingleEntryIsAlone(restart: Int) {
        var model = CommitModel()
        for number in 1...17_500 {
            model.add(1)
            if number % restart == 0 { model.restart() }
            if model.runs.newest.isEmpty || model.runs.newest.count == WaitingRuns.kept { model.check("\(number)") }
        }
        #expect(model.slices.count == 3)
    }

    /// Each draw keeps other entries in the newest run.
    @Test func whatStaysIsDrawnByLot() {
        let earlier = (0..<192).map { entry($0) }.sorted { $0.id < $1.id }
        let draws = (0..<4).map { _ in
            var runs = WaitingRuns(newest: RunPage(RunPlace(batch: 1, run: RunPlace.lastRun), earlier))
            _ = runs.add([entry(1_000), entry(1_001)], readSlice: { _ in nil })
            return runs.newest.map(\.id)
        }
        #expect(Set(draws).count > 1 && draws.allSatisfy { $0.count == WaitingRuns.kept })
    }

    private func entry(_ number: Int) -> WaitingEntry { WaitingEntry(number) }

    @Test func aPageReadsBackAndIsBoundToItsPlace() throws {
        let place = RunPlace(batch: 1 << 27, rank: 4, run: RunPlace.lastRun, page: 16_383)
        #expect(RunPlace(key: place.key) == place)
        #expect(RunPlace(batch: 7, rank: 3, run: RunPlace.lastRun, page: 16_383).key + 1 == RunPlace(batch: 7, rank: 4).key)
        #expect(RunPlace(batch: 7, rank: 4).endOfRank == RunPlace(batch: 8).key)
        #expect(place.endOfRun == place.endOfRank && RunPlace(batch: 7).endOfRun == RunPlace(batch: 7, run: 1).key)
        let causes: [PurgeCause] = [.ended, .policy, .expired(untilMs: 253_402_300_799_000)]
        let entries = (0..<192).map {
            WaitingEntry(id: EntryID(UInt128($0) << 90), until: 253_402_300_799, cause: causes[$0 % 3])
        }
        let page = RunPage(place, pages: 16_384, entries)
        func read(_ place: RunPlace, count: Int64 = 192, pages: Int64 = 16_384, _ bytes: [UInt8]? = nil) -> RunPage? {
            let bytes = bytes ?? page.bytes
            return RunPage(place, count: count, pages: pages, checksum: page.checksum, bytes)
        }
        #expect(page.bytes.count == RunPage.byteCount)
        #expect(read(place) == page)
        #expect(read(RunPlace(batch: 1 << 27 - 1, rank: 4, run: RunPlace.lastRun, page: 16_383)) == nil)
        #expect(read(place.at(run: 3, page: 16_383)) == nil && read(place.at(run: RunPlace.lastRun, page: 2)) == nil)
        #expect(read(place, count: 191) == nil && read(place, count: 0) == nil && read(place, count: 193) == nil)
        #expect(read(place, pages: 16_385) == nil && read(place, pages: 16_383) == nil)
        #expect(read(place, Array(page.bytes.dropLast())) == nil && read(place, []) == nil)
        for index in page.bytes.indices {
            var bytes = page.bytes
            bytes[index] ^= 1
            #expect(read(place, bytes) == nil, "\(index)")
        }
    }

    /// Entries of any order make the page that their sorted array makes. What follows them is 0, or the page is refused.
    @Test func aPageIsTheSameInEveryOrder() {
        let place = RunPlace(batch: 1)
        for count in [1, 2, 100, 191, 192] {
            let entries = (0..<count).map { entry($0) }
            var pages = [entries, entries.reversed(), entries.shuffled()].map { entries in
                var page = RunPage(place)
                for entry in entries { page.insert(entry) }
                return page
            }
            pages.append(RunPage(place, entries.sorted { $0.id < $1.id }))
            let page = pages[0]
            #expect(pages.allSatisfy { $0 == page } && page.map(\.id) == entries.map(\.id).sorted())
            func read(_ bytes: [UInt8]) -> RunPage? {
                RunPage(place, count: Int64(count), pages: 1, checksum: page.checksum, bytes)
            }
            #expect(read(page.bytes) == page)
            #expect(page.bytes.dropFirst(count * 21).allSatisfy { $0 == 0 })
            for index in stride(from: count * 21, to: page.bytes.count, by: 10) {
                var bytes = page.bytes
                bytes[index] = 1
                #expect(read(bytes) == nil, "\(index)")
            }
        }
    }

    /// Entries, or their days of expiry, that changed places.
    @Test func aShuffledPageIsRefused() {
        let place = RunPlace(batch: 1)
        let entries = (0..<192).map { WaitingEntry(id: Fixture.ref($0), until: UInt64($0 + 1) * 86_400, cause: nil) }
            .sorted { $0.id < $1.id }
        let page = RunPage(place, entries)
        func isRefused(_ entries: [WaitingEntry]) -> Bool {
            RunPage(place, count: 192, pages: 1, checksum: page.checksum, RunPage(place, entries).bytes) == nil
        }
        #expect(!isRefused(entries))
        for index in 1..<192 {
            var swapped = entries
            swapped.swapAt(0, index)
            #expect(isRefused(swapped))
            swapped = entries
            swapped[0] = WaitingEntry(id: entries[0].id, until: entries[index].until, cause: nil)
            swapped[index] = WaitingEntry(id: entries[index].id, until: entries[0].until, cause: nil)
            #expect(isRefused(swapped))
        }
    }

    // MARK: The file

    /// A row fills a page of the file, so SQLite never stores the end of it elsewhere.
    @Test func aPageIsOnePageOfTheFile() async throws {
        let fixture = try await started()
        for numbers in [0..<190, 190..<400] { try await seal(numbers, fixture) }
        let database = try SQLiteConnection(path: fixture.path)
        let pages = try database.prepare(
            "SELECT pagetype || ' ' || ncell || ' ' || payload FROM dbstat WHERE name = 'waiting' AND pagetype <> 'internal'")
        var found = 0
        while try pages.step() {
            #expect(pages.text(0).hasPrefix("leaf 1 "))
            found += 1
        }
        #expect(found == 3, "the newest run and two pages of the slice")
        try await fixture.close()
    }

    /// Entries leave no bytes where they were, neither when they move to a slice nor when they are in the log.
    @Test func publishedEntriesLeaveNoBytes() async throws {
        let fixture = try await started()
        let numbers = 1_000_000..<1_000_600
        for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: 40) {
            try await seal(start..<start + 40, fixture)
        }
        #expect(try await fixture.store.scrub())
        func found() throws -> Int {
            let file = try File.read(fixture.path, limit: 1 << 24)
            return (2..<file.count - 14).count { at in
                // The third byte from either end of such an id.
                guard file[at] == 0x0f, file[at + 11] == 0x0f else { return false }
                let number = Int(file[at + 11]) << 16 | Int(file[at + 12]) << 8 | Int(file[at + 13])
                return numbers.contains(number) && (Fixture.ref(number) as EntryID).bytes == Array(file[at - 2..<at + 14])
            }
        }
        #expect(try found() == 600, "once each")
        fixture.clock.advance(10_000)
        _ = try await fixture.publish(before: 0)
        fixture.clock.advance(1_000)
        #expect(try await fixture.publish().count { $0.source.rank == 3 } == 600)
        #expect(try await fixture.store.scrub())
        #expect(try found() == 0)
        // Nor in memory.
        let store = fixture.store as! SQLiteStore
        #expect(try await store.inspect { $0.runs.isEmpty })
        try await fixture.close()
    }

    // MARK: Publication

    /// Several slices are merged in pieces, while entries of the next batch arrive and the store is killed.
    @Test func aBatchIsMergedWhileTheNextOneFills() async throws {
        let fixture = try await started()
        for start in stride(from: 0, to: 20_000, by: 2_500) { try await seal(start..<start + 2_500, fixture) }
        fixture.clock.advance(10_000)
        try await fixture.store.setMark("a", [1])
        fixture.clock.advance(1_000)
        var store = fixture.store
        var log: [ClosedEntry] = []
        var next = 20_000
        var rows = 110
        while true {
            let entries = try await store.closedEntries(before: fixture.clock.now / 1_000, limit: 4_096)
            guard let last = entries.last else { break }
            try await seal(next..<next + 300, fixture, store)
            next += 300
            let size = UInt64(log.count)
            let head = LogHead(size: size + UInt64(entries.count), checkpoint: "signed", window: last.window)
            #expect(try await store.commit(head, after: size, entries: entries))
            try await store.published(upTo: head.size)
            log += entries
            let books = try await (store as! SQLiteStore).inspect { $0.journal.books }
            let left = try count("SELECT count(*) FROM waiting WHERE place < \(RunPlace(batch: 2).key)", fixture)
            #expect(left < rows, "pages go with their entries")
            rows = left
            await store.shutDown()
            store = try fixture.reopen()
            let resumed = try await (store as! SQLiteStore).inspect { $0.journal.books }
            #expect(resumed.frozen == books.frozen && resumed.short == books.short)
            try await store.start([], marks: [])
        }
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.batches.map(\.seals) == [20_000])
        #expect(Set(log.map { LogModel.Line($0).key }).count == 20_001)
        #expect(try fixture.waiting().count == next - 20_000)
        await store.shutDown()
        try fixture.remove()
    }

    /// A part of a batch continues the merge of the part before it. So it reads no page again, which would show the damage here.
    @Test func aPartOfABatchContinuesTheLastOne() throws {
        let folder = try File.makeTemporaryFolder()
        let database = try RunModel.open(folder + "/mayfly.sqlite")
        for start in stride(from: 0, to: 20_000, by: 2_500) { try add(start..<start + 2_500, to: database) }
        let ids = try database.allWaiting().map(\.entry.id)
        func part(after count: Int, _ limit: Int = 101) throws -> [EntryID] {
            let last = count == 0 ? nil : (rank: 3 as UInt8, id: ids[count - 1])
            let batch = CompleteBatch(window: 1, moment: 1, numbers: [1], last: last)
            return try database.waiting(batch, rank: 3, limit: limit).compactMap { entry in
                if case .batch(_, _, let id, _, _, _) = entry.source { id } else { nil }
            }
        }
        #expect(try part(after: 0) == Array(ids[..<101]))
        try database.change("UPDATE waiting SET checksum = checksum + 1 WHERE place & 16383 = 0")
        // The log got all but the last one, then all.
        #expect(try part(after: 100) == Array(ids[100..<201]))
        #expect(try part(after: 201) == Array(ids[201..<302]))
        #expect(try part(after: 301, 30_000) == Array(ids[301...]))
        #expect(database.pausedMerge == nil, "the pages are released")
        #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) { try part(after: 301) }
        try File.removeTree(folder)
    }

    /// A commit that is repeated by mistake would put entries into the log twice.
    @Test func aBatchsEntriesAreSequencedOnce() async throws {
        let fixture = try await started()
        try await seal(0..<50, fixture)
        fixture.clock.advance(10_000)
        _ = try await fixture.publish(before: 0)
        fixture.clock.advance(1_000)
        let entries = try await fixture.store.closedEntries(before: .max, limit: 20)
        let head = LogHead(size: 20, checkpoint: "a", window: entries[19].window)
        #expect(try await fixture.store.commit(head, after: 0, entries: entries))
        try await fixture.store.published(upTo: 20)
        await #expect(throws: StoreError.damaged("a batch's entries are in the log already")) {
            try await fixture.store.commit(
                LogHead(size: 39, checkpoint: "b", window: entries[19].window), after: 20, entries: Array(entries.dropFirst()))
        }
        #expect(try await fixture.publish(before: .max).count == 31)
        try await fixture.close()
    }

    /// The clock steps over days, and back, while a batch waits for its purges and its buckets close.
    @Test(arguments: [90_000_000, -90_000_000, 400_000_000] as [Int64]) func aClockStepsWhileABucketCloses(step: Int64)
        async throws
    {
        let fixture = try await started()
        for number in 0..<260 {
            var record = fixture.registration(number, owner: number, life: number < 230 ? 15_000 : 90_000)
            record.isLong = number >= 230
            _ = try await fixture.registered(record)
        }
        // Midnight, with nothing swept.
        fixture.clock.advance(20_000)
        try await fixture.store.setMark("a", [1])
        func sweepSome() async throws { _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 50, jobSlack: 0) }
        try await sweepSome()
        fixture.clock.step(step)
        _ = try await fixture.store.closedEntries(before: fixture.clock.now / 1_000, limit: 100)
        try await sweepSome()
        fixture.clock.step(-step)
        var log: [ClosedEntry] = []
        for _ in 0..<12 {
            fixture.clock.advance(10_000)
            for _ in 0..<6 { try await sweepSome() }
            log += try await fixture.publish(before: .max, limit: 70)
        }
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.ops["token.sealed"] == 260 && model.ops["token.purged"] == 260)
        #expect(try fixture.waiting().isEmpty)
        try await fixture.close()
    }

    // MARK: Damage

    /// A change to the rows of three pages. Pages 0 and 1 are the slice, page 2 is the newest run.
    enum Damage: CaseIterable, Sendable {
        case newestEdited, sliceEdited, cut, firstPageGone, lastPageGone, fewer, toAnotherBatch, toAnotherRank, toAnotherRun
        case newestGone, sliceGone, sliceToAnotherBatch

        func sql(_ places: [Int64]) -> String {
            let batch = RunPlace(batch: 1).key
            return switch self {
            case .newestEdited: "UPDATE waiting SET bytes = zeroblob(4032) WHERE place = \(places[2])"
            case .sliceEdited:
                "UPDATE waiting SET bytes = (SELECT bytes FROM waiting WHERE place = \(places[2])) WHERE place = \(places[0])"
            case .cut: "UPDATE waiting SET bytes = substr(bytes, 1, 2016) WHERE place = \(places[1])"
            case .firstPageGone: "DELETE FROM waiting WHERE place = \(places[0])"
            case .lastPageGone: "DELETE FROM waiting WHERE place = \(places[1])"
            case .fewer: "UPDATE waiting SET count = count - 1 WHERE place = \(places[1])"
            case .toAnotherBatch: "UPDATE waiting SET place = place + \(batch) WHERE place = \(places[2])"
            case .toAnotherRank:
                "UPDATE waiting SET place = \(places[2] + RunPlace(batch: 1, rank: 4).key - batch) WHERE place = \(places[2])"
            case .toAnotherRun:
                "UPDATE waiting SET place = place - \(RunPlace(batch: 1).endOfRun - batch) WHERE place = \(places[2])"
            case .newestGone: "DELETE FROM waiting WHERE place = \(places[2])"
            case .sliceGone: "DELETE FROM waiting WHERE place < \(places[2])"
            case .sliceToAnotherBatch: "UPDATE waiting SET place = place + \(batch) WHERE place < \(places[2])"
            }
        }
    }

    /// Nothing of the batch is published, at an hour or at midnight. Operations go on.
    // Promise: damaged-runs-are-refused
    @Test(arguments: Damage.allCases, [10_000, 20_000] as [UInt64])
    func aDamagedRunIsRefused(damage: Damage, after: UInt64) async throws {
        let fixture = try await started()
        for numbers in [0..<190, 190..<400] { try await seal(numbers, fixture) }
        await fixture.store.shutDown()
        let places = try places(fixture)
        #expect(places.count == 3)
        try SQLiteConnection(path: fixture.path).execute(damage.sql(places))
        let store = try fixture.reopen()
        try await store.start([Self.sign], marks: [])
        // More than a page, so that the slice is merged.
        for start in stride(from: 1_000, to: 1_300, by: 100) { try await seal(start..<start + 100, fixture, store) }
        #expect(store.takeAlarms().count == 1)
        #expect(store.takeAlarms().isEmpty, "once")
        fixture.clock.advance(after)
        try await store.setMark("a", [1])
        fixture.clock.advance(1_000)
        for _ in 0..<2 {
            await #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) {
                _ = try await fixture.publish(store, before: .max)
            }
        }
        #expect(try await store.logHead()?.size == 2, "the starts")
        try await store.setMark("b", [1])
        await store.shutDown()
        try fixture.remove()
    }

    /// Another start tells of the damage again.
    @Test(arguments: Damage.allCases) func eachStartTellsOfADamagedRun(damage: Damage) async throws {
        let fixture = try await started()
        for numbers in [0..<190, 190..<400] { try await seal(numbers, fixture) }
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute(damage.sql(try places(fixture)))
        for start in 0..<3 {
            let store = try fixture.reopen()
            try await store.start([], marks: [])
            try await seal(1_000 + start * 10..<1_010 + start * 10, fixture, store)
            #expect(store.takeAlarms().count == 1)
            await store.shutDown()
        }
        try fixture.remove()
    }

    /// Entries whose batch has no row, or the wrong one, would never be in the log.
    @Test(arguments: [
        "DELETE FROM batch WHERE number = 1", "DELETE FROM batch WHERE number = 2", "DELETE FROM batch",
        "DELETE FROM batch WHERE number = 1; INSERT INTO batch (number, is_long) VALUES (3, 0)",
        "INSERT INTO batch (number, is_long) VALUES (3, 0)",
        "DELETE FROM batch WHERE number = 2; INSERT INTO batch (number, is_long) VALUES (3, 0)",
        "UPDATE batch SET moment = 1700000000 WHERE number = 2",
        "UPDATE batch SET rank = 4, id = x'80000000000000000000000000000000' WHERE number = 1",
        "INSERT INTO batch (number, is_long, moment) VALUES (3, 0, 1700000000), (4, 0, 1700000000)",
        "INSERT INTO batch (number, is_long, moment) VALUES (3, 0, 1700000000), (4, 1, 1700000000), (5, 1, 1700000000)",
    ])
    func batchesWithoutTheirRowsAreRefused(change: String) async throws {
        let fixture = try await started()
        try await seal(0..<50, fixture)
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute(change)
        #expect(throws: StoreError.damagedBatch) { try fixture.reopen() }
        try fixture.remove()
    }

    /// Arithmetic with such times would end the process at each start.
    @Test(arguments: [
        "UPDATE log SET window_start = 9223372036854775807", "UPDATE log SET window_start = 9000000000000000",
        "UPDATE batch SET moment = NULL, window_start = 9223372036854775807 WHERE number = 1",
        "INSERT INTO entry (window_start, rank, key, bytes) VALUES (9223372036854775807, 0, x'00', x'7b7d')",
        "UPDATE schedule SET looked = 9223372036854775807", "UPDATE schedule SET last_batch = 9000000000000000",
    ])
    func timesAfterTheYear9999AreRefused(change: String) async throws {
        let fixture = try await started()
        fixture.clock.advance(1_000)
        #expect(try await fixture.publish(before: .max).count == 1)
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute(change)
        #expect(throws: StoreError.damaged("a time of the log is after the year 9999")) { try fixture.reopen() }
        try fixture.remove()
    }

    /// A complete batch that is said to be partly in the log, or to belong before the log's end.
    @Test(arguments: ["rank = 3, id = x'80000000000000000000000000000000'", "moment = 1, window_start = 1"])
    func anEditedBatchIsRefused(change: String) async throws {
        let fixture = try await started()
        fixture.clock.advance(1_000)
        #expect(try await fixture.publish(before: .max).count == 1)
        try await seal(0..<50, fixture)
        fixture.clock.advance(10_000)
        try await fixture.store.record([Self.sign])
        try SQLiteConnection(path: fixture.path).execute("UPDATE batch SET \(change) WHERE number = 1")
        fixture.clock.advance(1_000)
        await #expect(throws: StoreError.damagedBatch) {
            for _ in 0..<2 { _ = try await fixture.publish(before: .max) }
        }
        #expect(try await fixture.store.logHead()?.size ?? 0 < 5, "none of 50 seals")
        try await fixture.close()
    }

    /// An hour's batch and the windows up to the next one, which is damaged.
    @Test func theLogStopsBeforeADamagedBatch() async throws {
        let fixture = try await started()
        try await seal(0..<50, fixture)
        fixture.clock.advance(10_000)
        try await fixture.store.record([Self.sign])
        try await seal(100..<150, fixture)
        fixture.clock.advance(10_000)
        try await fixture.store.record([Self.sign])
        fixture.clock.advance(1_000)
        try await fixture.store.record([Self.sign])
        try SQLiteConnection(path: fixture.path).execute(
            "UPDATE waiting SET checksum = 0 WHERE place >= \(RunPlace(batch: 3).key)")
        for _ in 0..<2 {
            await #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) {
                _ = try await fixture.publish(before: .max)
            }
        }
        #expect(try await fixture.store.logHead()?.size == 1 + 50 + 2)
        #expect(try fixture.tables().rows("SELECT count(*) FROM entry") { $0.int(0) } == [1])
        try await fixture.close()
    }

    /// A count that no page can have, in each row.
    @Test(arguments: [Int64.max, .min, 193, 0]) func aDamagedCountIsRefused(count: Int64) async throws {
        let fixture = try await started()
        for numbers in [0..<190, 190..<400] { try await seal(numbers, fixture) }
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute("UPDATE waiting SET count = \(count)")
        let store = try fixture.reopen()
        try await store.start([], marks: [])
        try await seal(500..<510, fixture, store)
        #expect(store.takeAlarms().count == 1)
        fixture.clock.advance(20_000)
        try await store.setMark("a", [1])
        fixture.clock.advance(1_000)
        await #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) {
            _ = try await fixture.publish(store, before: .max)
        }
        await store.shutDown()
        try fixture.remove()
    }

    /// A part ends with the first entry of this id. The next one continues the merge, or begins another after a restart.
    @Test(arguments: [false, true]) func anIDThatOccursTwiceIsNoticedBetweenParts(restarts: Bool) throws {
        let folder = try File.makeTemporaryFolder()
        let database = try RunModel.open(folder + "/mayfly.sqlite")
        // The smallest id again.
        for numbers in [0..<300, 0..<1] { try add(numbers, to: database) }
        var batch = CompleteBatch(window: 1, moment: 1, numbers: [1], last: nil)
        #expect(try database.waiting(batch, rank: 3, limit: 1).count == 1)
        if restarts { database.pausedMerge = nil }
        batch.last = (3, Fixture.ref(0))
        #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) {
            try database.waiting(batch, rank: 3, limit: 1)
        }
        try File.removeTree(folder)
    }

    private func places(_ fixture: Fixture) throws -> [Int64] {
        let rows = try SQLiteConnection(path: fixture.path, access: .readOnly).prepare("SELECT place FROM waiting ORDER BY place")
        var places: [Int64] = []
        while try rows.step() { places.append(rows.int(0)) }
        return places
    }

    // MARK: Faults

    /// The disk fills up at each page of a merge. Nothing of that commit is kept, and all of the others.
    @Test func aFullDiskInAMergeLeavesWholeCommits() async throws {
        let fixture = try await started()
        let store = fixture.store as! SQLiteStore
        try await seal(0..<1_000, fixture)
        var next = 1_000
        var (failures, kept) = (0, 0)
        for room in (0..<12).flatMap({ [$0, $0] }) {
            let pages = try await store.inspect(turn: .alone) { database in
                try database.rows("PRAGMA page_count") { $0.int(0) }[0]
            }
            try await store.inspect(turn: .alone) { try $0.connection.execute("PRAGMA max_page_count = \(pages + Int64(room))") }
            do {
                try await seal(next..<next + 1_500, fixture)
                kept += 1
                next += 1_500
            } catch {
                #expect(error as? StoreError == .full)
                failures += 1
            }
            try await store.inspect(turn: .alone) { try $0.connection.execute("PRAGMA max_page_count = 1000000") }
            try await seal(next..<next + 3, fixture)
            next += 3
            #expect(try fixture.waiting().map(\.entry.id) == (0..<next).map { Fixture.ref($0) as EntryID }.sorted())
            #expect(try await store.inspect { $0.journal.books.short.seals } == next)
        }
        #expect(failures > 5 && kept > 2, "\(failures) \(kept)")
        try await fixture.close()
    }

    // MARK: Parts

    private func started() async throws -> Fixture {
        let fixture = try Fixture(timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        return fixture
    }

    /// Adds seals in one commit, without tokens.
    private func seal(
        _ numbers: Range<Int>, _ fixture: Fixture, _ store: (any Store)? = nil, life: UInt64 = 200_000, isLong: Bool = false
    ) async throws {
        let expires = fixture.clock.now + life
        try await (store ?? fixture.store).write { transaction in
            for number in numbers {
                try transaction.database.record(.sealed(Fixture.ref(number), expires: expires, isLong: isLong))
            }
        }
    }

    /// Adds seals to batch 1 in one commit.
    private func add(_ numbers: Range<Int>, to database: SQLiteDatabase) throws {
        try database.begin()
        for number in numbers {
            database.addWaiting(batch: 1, rank: 3, id: Fixture.ref(number), until: 1_700_000_000_000, cause: nil)
        }
        try database.commit()
    }

    private func count(_ sql: String, _ fixture: Fixture) throws -> Int {
        let rows = try SQLiteConnection(path: fixture.path, access: .readOnly).prepare(sql)
        _ = try rows.step()
        return Int(rows.int(0))
    }
}

extension WaitingEntry {
    fileprivate init(_ number: Int) { self.init(id: Fixture.ref(number), until: 1_700_000_000, cause: nil) }
}

/// The runs of one batch and rank in memory, and the commit of each entry.
private struct CommitModel {
    private(set) var runs = WaitingRuns(newest: RunPage(RunPlace(batch: 1, run: RunPlace.lastRun)))
    private(set) var slices: [Int: [WaitingEntry]] = [:]
    private var commits: [EntryID: Int] = [:]
    private var number = 0

    mutating func add(_ size: Int) {
        number += 1
        let entries = (0..<size).map { WaitingEntry(number * 100_000 + $0) }
        for entry in entries { commits[entry.id] = number }
        let content = runs.add(entries, readSlice: { [slices] in slices[$0.run] })
        if let content, let slice = runs.slice {
            slices[slice.run] = content
            #expect(slice.count == content.count)
        }
    }

    /// Forgets what only the writer's memory has.
    mutating func restart() { runs = WaitingRuns(newest: runs.newest, slice: runs.slice) }

    func check(_ story: String) {
        #expect(slices.values.flatMap(\.self).count + runs.newest.count == commits.count)
        #expect(runs.newest.pages == 1 + slices.values.map { RunPage.count(of: $0.count) }.reduce(0, +), "\(story)")
        for run in Array(slices.values) + [Array(runs.newest)] where !run.isEmpty {
            #expect(zip(run, run.dropFirst()).allSatisfy { $0.id < $1.id })
            #expect(number == 1 || Set(run.map { commits[$0.id] }).count > 1, "\(story): \(run.count) of one commit")
        }
    }
}

/// A plain set beside the runs of two batches.
private struct RunModel {
    struct Key: Hashable {
        let batch: Int64
        let rank: UInt8
    }

    let path: String
    private var chance: Chance
    private var database: SQLiteDatabase?
    private var number = 0
    private(set) var committed: [Key: Set<EntryID>] = [:]
    /// The commit of each entry.
    private var commits: [EntryID: Int] = [:]
    private var commit = 0
    private(set) var (slices, restarts, rollbacks) = (0, 0, 0)

    init(path: String, seed: UInt64) {
        self.path = path
        chance = Chance(state: seed)
    }

    mutating func open() throws {
        database = nil
        database = try Self.open(path)
    }

    static func open(_ path: String) throws -> SQLiteDatabase {
        let journal = Journal(resolution: 1, timing: .standard, limit: 1_000, now: { 1_700_000_000_000 })
        let database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
        try database.connection.execute("PRAGMA synchronous = OFF")
        return database
    }

    mutating func step() throws {
        if chance.next() % 12 == 0 {
            try open()
            restarts += 1
        }
        guard let database else { return }
        try database.begin()
        var added: [Key: Set<EntryID>] = [:]
        for _ in 0...chance.next() % 3 {
            let key = Key(batch: Int64(1 + chance.next() % 2), rank: chance.next() % 4 == 0 ? 4 : 3)
            let isForgotten = chance.next() % 8 == 0
            database.beginOperation()
            for _ in 0..<size() {
                number += 1
                let id: EntryID = Fixture.ref(number)
                database.addWaiting(
                    batch: key.batch, rank: key.rank, id: id, until: 1_700_000_000_000, cause: key.rank == 4 ? .ended : nil)
                if !isForgotten { added[key, default: []].insert(id) }
            }
            if isForgotten { database.forgetOperation() }
        }
        if chance.next() % 6 == 0 {
            if chance.next() % 2 == 0 { try database.writeWaiting() }
            database.rollBack()
            rollbacks += 1
            return
        }
        try database.commit()
        committed.merge(added) { $0.union($1) }
        commit += 1
        for id in added.values.joined() { commits[id] = commit }
    }

    private mutating func size() -> Int {
        switch chance.next() % 40 {
        case 0..<24: 1 + Int(chance.next() % 4)
        case 24..<34: 40 + Int(chance.next() % 160)
        case 34..<38: 300 + Int(chance.next() % 400)
        default: 2_500
        }
    }

    mutating func check() throws {
        guard let database else { return }
        let found = try database.allWaiting()
        for (key, ids) in committed {
            let entries = found.filter { $0.batch == key.batch && $0.rank == key.rank }
            #expect(entries.map(\.entry.id) == ids.sorted())
        }
        let counts = try database.waitingCounts()
        for (key, ids) in committed {
            #expect((key.rank == 3 ? counts[key.batch]?.seals : counts[key.batch]?.purges) == ids.count)
        }
        for number in [1, 2] as [Int64] { try database.checkRuns(number) }
        // Each run by itself.
        var runs: [Int64: [EntryID]] = [:]
        try database.each("SELECT place, count, pages, checksum, bytes FROM waiting ORDER BY place") { row in
            let place = RunPlace(key: row.int(0))
            let page = RunPage(place, count: row.int(1), pages: row.int(2), checksum: row.int(3), row.blob(4))
            runs[place.at(run: place.run).key, default: []] += page?.map(\.id) ?? []
        }
        for (key, ids) in runs {
            let place = RunPlace(key: key)
            #expect(ids == ids.sorted() && (place.isNewest || !ids.isEmpty))
            #expect(ids.count <= (place.isNewest ? RunPage.capacity : WaitingRuns.sliceCapacity + 7_500))
            let all = committed[Key(batch: place.batch, rank: place.rank)] ?? []
            if ids.isEmpty || Set(all.map { commits[$0] }).count < 2 { continue }
            #expect(Set(ids.map { commits[$0] }).count > 1, "a run of one commit")
        }
        slices = runs.keys.count { !RunPlace(key: $0).isNewest }
    }
}

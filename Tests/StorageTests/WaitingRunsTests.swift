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

    /// Random commits, rollbacks and restarts. The runs have what was committed, sorted, and no run has entries of the last commit alone.
    // Promise: waiting-entries-tell-no-order
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

    /// The first overflow has few earlier entries, or none.
    @Test(arguments: [(0, 5_000), (1, 5_000), (2, 300), (192, 1), (191, 1), (1, 191)])
    func aLargeCommitIsNeverAlone(earlier: Int, added: Int) throws {
        var runs = WaitingRuns(newest: RunPage(RunPlace(batch: 1, run: RunPlace.lastRun)))
        var slices: [Int: [WaitingEntry]] = [:]
        var all: Set<EntryID> = []
        for (number, count) in [earlier, added, 1, 1, 400, 1].enumerated() where count > 0 {
            let entries = (0..<count).map { entry(number * 100_000 + $0) }.sorted { $0.id < $1.id }
            if let content = runs.add(entries, readSlice: { slices[$0] }) { slices[runs.slice!.run] = content }
            let ids = Set(entries.map(\.id))
            for run in Array(slices.values) + [Array(runs.newest)] where all.count > 1 {
                #expect(ids.isDisjoint(with: run.map(\.id)) || !all.isDisjoint(with: run.map(\.id)), "\(number)")
            }
            all.formUnion(ids)
            #expect(runs.newest.count <= RunPage.capacity)
            #expect(slices.values.flatMap(\.self).count + runs.newest.count == all.count)
        }
    }

    /// Each draw keeps other entries in the newest run.
    @Test func whatStaysIsDrawnByLot() {
        let earlier = (0..<192).map { entry($0) }.sorted { $0.id < $1.id }
        let draws = (0..<4).map { _ in
            var runs = WaitingRuns(newest: RunPage(RunPlace(batch: 1, run: RunPlace.lastRun), earlier))
            _ = runs.add([entry(1_000)], readSlice: { _ in nil })
            return runs.newest.map(\.id)
        }
        #expect(Set(draws).count > 1 && draws.allSatisfy { $0.count == WaitingRuns.kept })
    }

    private func entry(_ number: Int) -> WaitingEntry { WaitingEntry(id: Fixture.ref(number), until: 1_700_000_000, cause: nil) }

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
        let database = try Connection(path: fixture.path)
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
            }
        }
    }

    /// Nothing of the batch is published. Operations go on.
    // Promise: damaged-runs-are-refused
    @Test(arguments: Damage.allCases) func aDamagedRunIsRefused(damage: Damage) async throws {
        let fixture = try await started()
        for numbers in [0..<190, 190..<400] { try await seal(numbers, fixture) }
        await fixture.store.shutDown()
        let database = try Connection(path: fixture.path)
        let places = try places(fixture)
        #expect(places.count == 3)
        try database.execute(damage.sql(places))
        let store = try fixture.reopen()
        try await store.start([Self.sign], marks: [])
        // More than a page, so that the slice is merged.
        for start in stride(from: 1_000, to: 1_300, by: 100) { try await seal(start..<start + 100, fixture, store) }
        let isNoticed = [.newestEdited, .sliceEdited, .cut, .firstPageGone, .lastPageGone, .fewer, .toAnotherRun].contains(damage)
        #expect(store.takeAlarms().count == (isNoticed ? 1 : 0))
        #expect(store.takeAlarms().isEmpty, "once")
        // Midnight, when all batches are published.
        fixture.clock.advance(20_000)
        try await store.setMark("a", [1])
        fixture.clock.advance(1_000)
        for _ in 0..<2 {
            await #expect(throws: StoreError.damaged("ledger entries that wait for their batch")) {
                _ = try await store.closedEntries(before: .max, limit: 5_000)
            }
        }
        #expect(try await store.logHead() == nil)
        try await store.setMark("b", [1])
        await store.shutDown()
        try fixture.remove()
    }

    private func places(_ fixture: Fixture) throws -> [Int64] {
        let rows = try Connection(path: fixture.path, access: .readOnly).prepare("SELECT place FROM waiting ORDER BY place")
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

    private func count(_ sql: String, _ fixture: Fixture) throws -> Int {
        let rows = try Connection(path: fixture.path, access: .readOnly).prepare(sql)
        _ = try rows.step()
        return Int(rows.int(0))
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
    private var last: [Key: Set<EntryID>] = [:]
    private(set) var (slices, restarts, rollbacks) = (0, 0, 0)

    init(path: String, seed: UInt64) {
        self.path = path
        chance = Chance(state: seed)
    }

    mutating func open() throws {
        let journal = Journal(resolution: 1, timing: .standard, limit: 1_000, now: { 1_700_000_000_000 })
        database = nil
        database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
        try database?.connection.execute("PRAGMA synchronous = OFF")
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
            last = [:]
            return
        }
        let before = committed
        try database.commit()
        committed.merge(added) { $0.union($1) }
        last = added.filter { before[$0.key, default: []].count > 1 }
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
        // Each run by itself.
        var runs: [Int64: [EntryID]] = [:]
        try database.each("SELECT place, count, pages, checksum, bytes FROM waiting ORDER BY place") { row in
            let place = RunPlace(key: row.int(0))
            let page = RunPage(place, count: row.int(1), pages: row.int(2), checksum: row.int(3), row.blob(4))
            runs[place.at(run: place.run).key, default: []] += page?.map(\.id) ?? []
        }
        for (key, ids) in runs {
            let place = RunPlace(key: key)
            #expect(ids == ids.sorted() && !ids.isEmpty)
            #expect(ids.count <= (place.run >= WaitingRuns.firstNewestRun ? RunPage.capacity : WaitingRuns.sliceCapacity))
            if let added = last[Key(batch: place.batch, rank: place.rank)] {
                #expect(!Set(ids).isSubset(of: added), "a run of one commit")
            }
        }
        slices = runs.keys.count { RunPlace(key: $0).run < WaitingRuns.firstNewestRun }
    }
}

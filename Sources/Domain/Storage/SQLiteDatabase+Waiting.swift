import Ledger
import SQLite
import Vocabulary

// Statements on the runs of waiting entries. See `WaitingRuns`.
extension SQLiteDatabase {
    /// Adds a seal or a purge to a batch. The commit writes it.
    /// - Parameter until: unix ms.
    func addWaiting(batch: Int64, rank: UInt8, id: EntryID, until: UInt64, cause: PurgeCause?) {
        let entry = WaitingEntry(id: id, until: until / 1_000, cause: cause)
        added.append((RunPlace(batch: batch, rank: rank), entry))
    }

    /// Writes the transaction's waiting entries.
    func writeWaiting() throws {
        while let place = added.last?.place {
            try write(added.compactMap { $0.place == place ? $0.entry : nil }, to: place)
            added.removeAll { $0.place == place }
        }
    }

    /// - Parameter place: the first place of the batch and rank.
    private func write(_ entries: [WaitingEntry], to place: RunPlace) throws {
        var runs = try self.runs.removeValue(forKey: place.key) ?? readRuns(place)
        let before = runs.slice
        if let moved = try runs.add(entries, readSlice: { try readSlice($0, of: place) }), let slice = runs.slice {
            for page in RunPage.pages(place.at(run: slice.run), moved) { try write(page) }
            if let before, before.run == slice.run {
                for page in stride(from: RunPage.count(of: moved.count), to: RunPage.count(of: before.count), by: 1) {
                    try delete(place.at(run: slice.run, page: page).key)
                }
            }
        }
        try write(runs.newest)
        self.runs[place.key] = runs
    }

    private func write(_ page: RunPage) throws {
        try change(
            "REPLACE INTO waiting (place, count, pages, checksum, bytes) VALUES ($1, $2, $3, $4, $5)", .int(page.place.key),
            .number(page.count), .number(page.pages), .int(page.checksum), .blob(page.bytes))
    }

    private func delete(_ key: Int64) throws { try queue("DELETE FROM waiting WHERE place = $1", .int(key)) }

    /// Reads the runs of a batch and rank. Leaves a damaged newest run in place and raises an alarm. Commits go on, but the log stops before this
    /// batch.
    private func readRuns(_ place: RunPlace) throws -> WaitingRuns {
        let found = try firstPage(from: place.at(run: WaitingRuns.firstNewestRun).key, before: place.endOfRank)
        if let page = found?.page { return WaitingRuns(newest: page, slice: try lastSlice(place)) }
        var run = RunPlace.lastRun
        if try found != nil || !beginRank(place) {
            journal.alarm(Self.damagedRun)
            // Not the last run, so that a missing one still shows.
            run = max(found?.place.run ?? run, WaitingRuns.firstNewestRun + 1) - 1
        }
        return WaitingRuns(newest: RunPage(place.at(run: run)), slice: try lastSlice(place))
    }

    /// Records that a batch has entries of a rank. From then on it has a newest run.
    /// - Returns: false if that was recorded before.
    private func beginRank(_ place: RunPlace) throws -> Bool {
        try change(
            "UPDATE batch SET ranks = ranks | $1 WHERE number = $2 AND ranks & $1 = 0", .int(Self.bit(place.rank)),
            .int(place.batch)) == 1
    }

    /// The bit of a rank in `batch.ranks`.
    private static func bit(_ rank: UInt8) -> Int64 { 1 << Int64(rank - 3) }

    private static var damagedRun: String {
        "entries that wait for the log are damaged in the database. New ones are stored apart, but the log stops before their batch. Check the "
            + "disk, then begin a new log with an empty state folder"
    }

    private func lastSlice(_ place: RunPlace) throws -> WaitingRuns.Slice? {
        let end = place.at(run: WaitingRuns.firstNewestRun).key
        let last = try first(
            "SELECT place FROM waiting WHERE place >= $1 AND place < $2 ORDER BY place DESC LIMIT 1", .int(place.key), .int(end)
        ) { RunPlace(key: $0.int(0)) }
        guard let last else { return nil }
        return try rows(
            "SELECT sum(min(max(count, 0), $1)) FROM waiting WHERE place >= $2 AND place < $3", .number(RunPage.capacity),
            .int(last.at(run: last.run).key), .int(last.endOfRun)
        ) { WaitingRuns.Slice(run: last.run, count: $0.number(0)) }[0]
    }

    /// Reads a whole slice. Returns nil if it is damaged.
    private func readSlice(_ slice: WaitingRuns.Slice, of place: RunPlace) throws -> [WaitingEntry]? {
        let place = place.at(run: slice.run)
        var entries: [WaitingEntry] = []
        guard try eachPage(from: place.key, before: place.endOfRun, { entries += $0 }), entries.count == slice.count else {
            journal.alarm(Self.damagedRun)
            return nil
        }
        return entries
    }

    /// Reads whole runs, a page after the other.
    /// - Returns: false if a page is damaged or missing.
    private func eachPage(from key: Int64, before end: Int64, _ body: (RunPage) -> Void) throws -> Bool {
        var (last, isWhole): (RunPage?, Bool) = (nil, true)
        try eachFound(from: key, before: end) { found in
            guard let page = found.page, page.follows(last) else {
                isWhole = false
                return
            }
            last = page
            body(page)
        }
        return isWhole && last?.isLast ?? true
    }

    private func eachFound(from key: Int64, before end: Int64, _ body: (FoundPage) -> Void) throws {
        try each(
            "SELECT place, count, pages, checksum, bytes FROM waiting WHERE place >= $1 AND place < $2 ORDER BY place", .int(key),
            .int(end)
        ) { body(Self.page($0)) }
    }

    private typealias FoundPage = (place: RunPlace, page: RunPage?)

    /// - Returns: the place, and the page unless it is damaged.
    private static func page(_ row: any Row) -> FoundPage {
        let place = RunPlace(key: row.int(0))
        return (place, RunPage(place, count: row.int(1), pages: row.int(2), checksum: row.int(3), row.blob(4)))
    }

    private func firstPage(from key: Int64, before end: Int64) throws -> FoundPage? {
        try first(
            "SELECT place, count, pages, checksum, bytes FROM waiting WHERE place >= $1 AND place < $2 ORDER BY place LIMIT 1",
            .int(key), .int(end), read: Self.page)
    }

    /// - Throws: `.damaged` if the page is damaged or missing.
    fileprivate func page(at place: RunPlace) throws -> RunPage {
        guard let page = try firstPage(from: place.key, before: place.key + 1)?.page else { throw StoreError.damagedBatch }
        return page
    }

    // MARK: Publication

    func waiting(_ batch: CompleteBatch, rank: UInt8, limit: Int) throws -> [ClosedEntry] {
        if let last = batch.last, last.rank > rank { return [] }
        var merge = try resumeMerge(batch, rank)
        let found = try read(&merge, of: batch, rank, limit: limit)
        if found.count == limit { pausedMerge = (batch.numbers, rank, merge) }
        return found
    }

    /// Returns the merge of the previous call if that ended where this one begins. Otherwise begins another.
    private func resumeMerge(_ batch: CompleteBatch, _ rank: UInt8) throws -> RunMerge {
        let last = batch.last.flatMap { $0.rank == rank ? $0.id : nil }
        if var paused = pausedMerge {
            pausedMerge = nil
            if paused.numbers == batch.numbers, paused.rank == rank, paused.merge.resume(after: last) { return paused.merge }
        }
        // Nothing of a damaged batch is published, so look at all of it first.
        if batch.last == nil, rank == 3 { for number in batch.numbers { try checkRuns(number) } }
        return try merge(batch.numbers, rank: rank, after: last)
    }

    private func read(_ merge: inout RunMerge, of batch: CompleteBatch, _ rank: UInt8, limit: Int) throws -> [ClosedEntry] {
        var found: [ClosedEntry] = []
        while found.count < limit, let (entry, place, endsPage) = try merge.next() {
            found.append(
                ClosedEntry(
                    of: batch, place.batch, rank: rank, id: entry.id, until: entry.until, cause: entry.cause,
                    page: endsPage ? place.key : nil))
        }
        return found
    }

    /// Returns all batches. `last` is the last entry that is in the log.
    func batches() throws -> [(number: Int64, isLong: Bool, moment: UInt64?, last: (rank: UInt8, id: EntryID)?)] {
        try rows("SELECT number, is_long, moment, rank, id FROM batch") {
            ($0.int(0), $0.bool(1), $0.timeOrNil(2), try $0.last(3))
        }
    }

    /// Raises an alarm if a run is damaged whose entries are not in the log. Without it the operator would learn of that when the batch is due.
    func checkRuns() throws {
        for number in try rows("SELECT number FROM batch WHERE rank IS NULL", read: { $0.int(0) }) {
            do { try checkRuns(number) } catch {
                guard case .damaged = StoreError(any: error) else { throw error }
                journal.alarm(Self.damagedRun)
            }
        }
    }

    /// Checks the runs of a batch of which nothing is in the log.
    ///
    /// It does not notice an earlier copy of the newest run's page, since a commit may change no other page. Once a part of the batch is in the log,
    /// a missing run could also be one that was published.
    /// - Throws: `.damaged` if a page is damaged or missing.
    func checkRuns(_ number: Int64) throws {
        let ranks = try first("SELECT ranks FROM batch WHERE number = $1", .int(number)) { $0.int(0) } ?? 0
        for rank in [3, 4] as [UInt8] {
            let place = RunPlace(batch: number, rank: rank)
            var (pages, newest): (Int, RunPage?) = (0, nil)
            let isWhole = try eachPage(from: place.key, before: place.endOfRank) { page in
                pages += 1
                newest = page
            }
            let isBegun = ranks & Self.bit(rank) != 0
            guard isWhole, newest?.place.run == (isBegun ? RunPlace.lastRun : nil), newest?.pages ?? 0 == pages else {
                throw StoreError.damagedBatch
            }
        }
    }

    /// Merges the runs of a batch's numbers.
    /// - Parameter id: the last id in the log. Nil for none.
    func merge(_ numbers: [Int64], rank: UInt8, after id: EntryID?) throws -> RunMerge {
        var readers: [RunReader] = []
        for number in numbers {
            try eachFirstPage(RunPlace(batch: number, rank: rank)) { found in
                guard let page = found.page, page.place.page == 0 || id != nil else { throw StoreError.damagedBatch }
                if page.isEmpty { return }
                var reader = RunReader(self, page)
                if try reader.skip(to: id) { readers.append(reader) }
            }
        }
        return try RunMerge(readers, after: id)
    }

    /// Forgets the runs of a batch that is in the log. A page is deleted when the folder has its entries. An empty newest run has none, so this deletes it.
    func endRuns(of number: Int64) throws {
        let (seals, purges) = (RunPlace(batch: number), RunPlace(batch: number, rank: 4))
        for place in [seals, purges] { runs[place.key] = nil }
        try change("DELETE FROM waiting WHERE place >= $1 AND place < $2 AND count = 0", .int(seals.key), .int(purges.endOfRank))
    }

    /// Calls `body` with the first page of each run. Earlier pages are deleted, since the folder has their entries.
    private func eachFirstPage(_ place: RunPlace, _ body: (FoundPage) throws -> Void) throws {
        var key = place.key
        while let found = try firstPage(from: key, before: place.endOfRank) {
            try body(found)
            key = found.place.endOfRun
        }
    }

    /// Counts the entries of each batch that are not in the log.
    func waitingCounts() throws -> [Int64: Batch] {
        var batches: [Int64: Batch] = [:]
        try each("SELECT place, count FROM waiting WHERE count BETWEEN 1 AND $1", .number(RunPage.capacity)) { row in
            let place = RunPlace(key: row.int(0))
            batches[place.batch, default: Batch(number: place.batch)].add(rank: place.rank, row.number(1))
        }
        for batch in try self.batches() {
            guard let last = batch.last else { continue }
            // Pages of seals in the log may be left until the folder has them.
            if last.rank == 4 { batches[batch.number]?.seals = 0 }
            let place = RunPlace(batch: batch.number, rank: last.rank)
            try eachFound(from: place.key, before: place.endOfRank) { found in
                let inLog = found.page?.prefix { $0.id <= last.id }.count ?? 0
                batches[batch.number]?.add(rank: last.rank, -inLog)
            }
        }
        return batches
    }

    // MARK: The folder

    /// Keeps what the folder lacks: entries of windows in rows, those of batches in their runs.
    func cover(_ entries: [ClosedEntry], from size: UInt64) throws {
        var covered = Books.Covered()
        var next = entries[...]
        while let first = next.first {
            let part = next.prefix { $0.isOfBatch == first.isOfBatch && (!first.isOfBatch || $0.window == first.window) }
            let start = size + UInt64(covered.count)
            let added = try first.isOfBatch ? addRange(part, from: start) : addUnpublished(part, from: start)
            covered.count += added.count
            covered.limited += added.limited
            next = next.dropFirst(part.count)
        }
        journal.books.covered = covered
    }

    /// - Parameter entries: adjacent seals and purges of one window.
    private func addRange(_ entries: ArraySlice<ClosedEntry>, from start: UInt64) throws -> Books.Covered {
        let (window, seals) = (entries[entries.startIndex].window, entries.prefix { $0.source.rank == 3 }.count)
        var (numbers, pages): ([UInt8], [UInt8]) = ([], [])
        var (rank, id): (SQLValue, SQLValue) = (.null, .null)
        try each("SELECT number, rank, id FROM batch WHERE window_start = $1 ORDER BY number", .time(window)) { row in
            numbers.append(bigEndian: row.int(0))
            if let last = try row.last(1) { (rank, id) = (.number(last.rank), .id(last.id)) }
        }
        for case .batch(_, _, _, _, _, let page?) in entries.lazy.map(\.source) { pages.append(bigEndian: page) }
        try change(
            """
            INSERT INTO unpublished (first, count, limited, bytes, window_start, numbers, rank, id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            """, .time(start), .number(entries.count), .number(seals), .blob(pages), .time(window), .blob(numbers), rank, id)
        return Books.Covered(count: entries.count, limited: seals)
    }

    func unpublished(after size: UInt64) throws -> (first: UInt64, entries: [[UInt8]]) {
        let parts = try rows(
            """
            SELECT first, bytes, count, window_start, numbers, rank, id FROM unpublished WHERE first + count > $1 ORDER BY first
            """, .time(size)
        ) { row in
            let batch = try row.timeOrNil(3).map {
                CompleteBatch(window: $0, moment: 0, numbers: Self.numbers(row.blob(4)), last: try row.last(5))
            }
            return (first: row.time(0), bytes: row.blob(1), count: Int(row.int(2)), batch: batch)
        }
        var entries: [[UInt8]] = []
        for part in parts {
            guard let batch = part.batch else {
                entries += try unpacked(part.bytes)
                continue
            }
            var found: [[UInt8]] = []
            for rank in [3, 4] as [UInt8] where rank >= batch.last?.rank ?? 3 {
                var merge = try merge(batch.numbers, rank: rank, after: batch.last?.rank == rank ? batch.last?.id : nil)
                found += try read(&merge, of: batch, rank, limit: part.count - found.count).map(\.bytes)
            }
            guard found.count == part.count else { throw StoreError.damagedBatch }
            entries += found
        }
        return (try parts.first?.first ?? logHead()?.size ?? 0, entries)
    }

    func published(upTo size: UInt64) throws {
        guard let head = try logHead(), size >= head.size else { return }
        let pages = try rows("SELECT bytes FROM unpublished WHERE window_start IS NOT NULL") { Self.numbers($0.blob(0)) }
        for page in pages.joined() { try delete(page) }
        try change("DELETE FROM unpublished")
        journal.books.covered = Books.Covered()
    }

    /// Returns the batches whose entries the folder may lack. Their rows may be gone.
    func unpublishedBatches() throws -> [Int64] {
        Array(try rows("SELECT numbers FROM unpublished WHERE numbers IS NOT NULL") { Self.numbers($0.blob(0)) }.joined())
    }

    private static func numbers(_ bytes: [UInt8]) -> [Int64] {
        (0..<bytes.count / 8).map { Int64(bitPattern: bytes.span.bigEndian64(at: $0 * 8)) }
    }
}

extension ClosedEntry {
    fileprivate var isOfBatch: Bool { if case .batch = source { true } else { false } }
}

/// Reads a run in order, a page at a time.
private struct RunReader {
    /// The database may have the merge of this reader.
    private unowned let database: SQLiteDatabase
    private(set) var page: RunPage
    private var index = 0

    init(_ database: SQLiteDatabase, _ page: RunPage) { (self.database, self.page) = (database, page) }

    var entry: WaitingEntry { page[index] }
    var endsPage: Bool { index + 1 == page.count }

    /// - Returns: false at the end of the run.
    mutating func advance() throws -> Bool {
        guard endsPage else {
            index += 1
            return true
        }
        if page.isLast { return false }
        let next = try database.page(at: page.place.at(run: page.place.run, page: page.place.page + 1))
        guard next.follows(page) else { throw StoreError.damagedBatch }
        (page, index) = (next, 0)
        return true
    }

    /// Skips the entries before `id`.
    /// - Returns: false at the end of the run.
    mutating func skip(to id: EntryID?) throws -> Bool {
        while let id, entry.id < id { guard try advance() else { return false } }
        return true
    }
}

/// Merges runs. Keeps one page of each in memory.
struct RunMerge {
    typealias Found = (entry: WaitingEntry, place: RunPlace, endsPage: Bool)

    /// A binary heap by the readers' entries.
    private var readers: [RunReader]
    /// The id of the last entry.
    private var last: EntryID?
    /// The id of the entry before the last one.
    private var previous: EntryID?
    private var found: Found?
    /// True if `found` comes again.
    private var repeats = false

    /// - Parameter id: the last id in the log. Nil for none.
    fileprivate init(_ readers: [RunReader], after id: EntryID?) throws {
        self.readers = readers
        last = id
        for index in (0..<readers.count / 2).reversed() { sink(index) }
        // Its page may be left. A second entry of this id is damage.
        if let first = self.readers.first, first.entry.id == id { try advance() }
    }

    /// Continues after `id`, if this is the id of the last entry or of the one before it. Nil is the start.
    /// - Returns: false if this merge is elsewhere.
    mutating func resume(after id: EntryID?) -> Bool {
        repeats = found != nil && id == previous
        return repeats || id == last
    }

    /// Returns the next entry, its page's place, and whether it ends the page. Returns nil at the end.
    /// - Throws: `.damaged` if a page is damaged, or if two entries have one id.
    mutating func next() throws -> Found? {
        if repeats {
            repeats = false
            return found
        }
        guard let first = readers.first else { return nil }
        let entry = first.entry
        if let last, last >= entry.id { throw StoreError.damagedBatch }
        found = (entry, first.page.place, first.endsPage)
        (previous, last) = (last, entry.id)
        try advance()
        return found
    }

    /// Advances the reader of the first entry.
    private mutating func advance() throws {
        if try !readers[0].advance() {
            readers.swapAt(0, readers.count - 1)
            readers.removeLast()
        }
        sink(0)
    }

    private mutating func sink(_ start: Int) {
        var index = start
        while 2 * index + 1 < readers.count {
            var child = 2 * index + 1
            if child + 1 < readers.count, readers[child + 1].entry.id < readers[child].entry.id { child += 1 }
            guard readers[child].entry.id < readers[index].entry.id else { return }
            readers.swapAt(index, child)
            index = child
        }
    }
}

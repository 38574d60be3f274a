import Vocabulary

// Seals and purges wait for their batch in sorted runs, like those of a log-structured merge tree. With a row for each, every one of them would
// dirty a page of the file at a random place. This file has the rules; `SQLiteDatabase+Waiting.swift` has the statements.

/// A seal or purge that waits for its batch.
struct WaitingEntry: Sendable, Equatable {
    let id: EntryID
    /// `until` in unix seconds, then two bits: the code of the cause, or 3 for a seal.
    fileprivate let word: UInt64

    /// - Parameters:
    ///   - until: unix seconds.
    ///   - cause: nil for a seal.
    init(id: EntryID, until: UInt64, cause: PurgeCause?) {
        self.id = id
        word = min(until, Self.latest) << 2 | UInt64(cause?.column ?? 3)
    }

    var until: UInt64 { word >> 2 }
    var cause: PurgeCause? { PurgeCause(column: Int64(word & 3), until: until) }

    /// The year 10,680.
    private static let latest: UInt64 = 1 << 38 - 1
    /// The bytes of an entry in a page: 16 of the id, 5 of the word.
    fileprivate static let byteCount = 21

    fileprivate init(_ bytes: Span<UInt8>, at offset: Int) {
        id = EntryID(bytes, at: offset)
        word = bytes.bigEndian64(at: offset + 13) & 0xff_ffff_ffff
    }

    fileprivate func write(to bytes: inout MutableSpan<UInt8>, at offset: Int) {
        // The id's last bytes then replace the word's first three, which are 0.
        bytes.write(bigEndian: word, at: offset + 13)
        bytes.write(bigEndian: id.high, at: offset)
        bytes.write(bigEndian: id.low, at: offset + 8)
    }

    /// Padding has the hash 0.
    fileprivate var hash: UInt64 { mix(mix(mix(0, id.high), id.low), word) }
}

/// FNV-1a with a word in place of a byte. The shift carries high bits down.
private func mix(_ hash: UInt64, _ word: UInt64) -> UInt64 {
    let product = (hash ^ word) &* 0x9e37_79b9_7f4a_7c15
    return product ^ product >> 29
}

/// The place of a page of entries: batch, rank, run, and the page's number in the run.
struct RunPlace: Sendable, Equatable {
    let batch: Int64
    let rank: UInt8
    let run: Int
    let page: Int

    init(batch: Int64, rank: UInt8 = 3, run: Int = 0, page: Int = 0) {
        (self.batch, self.rank, self.run, self.page) = (batch, rank, run, page)
    }

    private static let (runBits, pageBits): (Int64, Int64) = (20, 14)
    /// The latest run of a batch and rank.
    static let lastRun = 1 << 20 - 1

    /// Sorts like the place.
    var key: Int64 { ((batch << 1 | (Int64(rank) - 3)) << Self.runBits | Int64(run)) << Self.pageBits | Int64(page) }

    init(key: Int64) {
        page = Int(key & (1 << Self.pageBits - 1))
        run = Int(key >> Self.pageBits & (1 << Self.runBits - 1))
        rank = UInt8(3 + key >> (Self.pageBits + Self.runBits) & 1)
        batch = key >> (Self.pageBits + Self.runBits + 1)
    }

    func at(run: Int, page: Int = 0) -> RunPlace { RunPlace(batch: batch, rank: rank, run: run, page: page) }

    /// The first key after the run's.
    var endOfRun: Int64 { at(run: run).key + 1 << Self.pageBits }
    /// True for the place of a newest run.
    var isNewest: Bool { run >= WaitingRuns.firstNewestRun }

    /// The first key after those of batch and rank.
    var endOfRank: Int64 { at(run: 0).key + 1 << (Self.runBits + Self.pageBits) }
}

/// A page of a run, encoded as in its row. The row fills a page of the file, so that it is overwritten in place.
struct RunPage: Sendable, Equatable, RandomAccessCollection {
    /// The most entries. SQLite would store the end of a row of more than 4,061 bytes in another page of the file.
    static let capacity = 192
    static let byteCount = capacity * WaitingEntry.byteCount

    let place: RunPlace
    /// The number of pages of the run. In a newest run's page: of all runs of its batch and rank, so that a missing one shows.
    let pages: Int
    private(set) var count = 0
    /// The entries, sorted by id and padded with zeros to `byteCount`.
    private(set) var bytes: [UInt8]
    /// The sum of the entries' hashes. It doesn't depend on their order, so an insertion adds one hash.
    private var sum: UInt64 = 0

    /// - Parameter entries: sorted, at most `capacity`.
    init(_ place: RunPlace, pages: Int = 1, _ entries: some Collection<WaitingEntry> = [WaitingEntry]()) {
        (self.place, self.pages) = (place, pages)
        bytes = [UInt8](repeating: 0, count: Self.byteCount)
        for entry in entries { write(entry, at: count) }
    }

    /// Reads a page. Returns nil if it was edited, cut or moved.
    init?(_ place: RunPlace, count: Int64, pages: Int64, checksum: Int64, _ bytes: [UInt8]) {
        let least: Int64 = place.isNewest ? 0 : 1
        guard least <= count, count <= Self.capacity, bytes.count == Self.byteCount, place.page < pages else { return nil }
        (self.place, self.pages, self.count, self.bytes) = (place, Int(pages), Int(count), bytes)
        for index in 0..<Self.capacity { sum &+= self[index].hash }
        guard self.checksum == checksum, zip(self, dropFirst()).allSatisfy({ $0.id <= $1.id }),
            allSatisfy({ ($0.cause == nil) == (place.rank == 3) })
        else { return nil }
    }

    var startIndex: Int { 0 }
    var endIndex: Int { count }
    subscript(index: Int) -> WaitingEntry { WaitingEntry(bytes.span, at: index * WaitingEntry.byteCount) }

    /// Adds an entry. The page must have less than `capacity`.
    mutating func insert(_ entry: WaitingEntry) {
        var (index, end) = (0, count)
        while index < end {
            let middle = (index + end) / 2
            if self[middle].id < entry.id { index = middle + 1 } else { end = middle }
        }
        bytes.removeLast(WaitingEntry.byteCount)
        bytes.insert(contentsOf: repeatElement(0, count: WaitingEntry.byteCount), at: index * WaitingEntry.byteCount)
        write(entry, at: index)
    }

    private mutating func write(_ entry: WaitingEntry, at index: Int) {
        var span = bytes.mutableSpan
        entry.write(to: &span, at: index * WaitingEntry.byteCount)
        sum &+= entry.hash
        count += 1
    }

    /// Binds the entries to their place and to `pages`. It shows damage, not forgery: whoever can write the file can compute it.
    var checksum: Int64 {
        Int64(bitPattern: mix(mix(sum, UInt64(bitPattern: place.key)), UInt64(pages) << 32 | UInt64(count)))
    }

    var isLast: Bool { place.isNewest || place.page + 1 == pages }

    /// Returns true if this page may come after `previous` in a batch's whole pages, which are in the order of their places.
    func follows(_ previous: RunPage?) -> Bool {
        guard let previous, !previous.isLast else { return place.page == 0 }
        return place == previous.place.at(run: previous.place.run, page: previous.place.page + 1) && pages == previous.pages
            && previous[previous.count - 1].id <= self[0].id
    }

    /// Returns the pages of a run.
    static func pages(_ place: RunPlace, _ entries: [WaitingEntry]) -> [RunPage] {
        let pages = count(of: entries.count)
        return (0..<pages).map { page in
            RunPage(place.at(run: place.run, page: page), pages: pages, entries.dropFirst(page * capacity).prefix(capacity))
        }
    }

    static func count(of entries: Int) -> Int { (entries + capacity - 1) / capacity }
}

/// The runs of a batch's seals, or of its purges: the newest run, which is one page, and slices of hundreds to thousands.
///
/// Each commit adds its entries to the newest run. When this overflows, most of it is merged into the latest slice, until that is full and another
/// one begins. So a file shows of an entry's age only which run it is in. Each run has entries of two commits at least, if two have added some,
/// until entries of the batch go to the log. Of one of the two it may have a single entry. After damage a run may have entries of one commit only.
struct WaitingRuns: Sendable {
    /// Empty if a split could leave a run with one commit's entries.
    private(set) var newest: RunPage
    private(set) var slice: Slice?
    /// Two entries of different commits in the newest run, or in the latest slice if the newest run is empty. Nil if none are known, e.g. after a
    /// start. No file has them.
    private(set) var pair: (EntryID, EntryID)?

    struct Slice: Sendable {
        var run: Int
        var count: Int
    }

    /// The most entries of a slice. Large commits may exceed it.
    static let sliceCapacity = 8_192
    /// How many entries the newest run keeps when it overflows.
    static let kept = 32
    /// Newest runs have numbers from here on. The lowest one in the file is in use; higher ones are damaged.
    static let firstNewestRun = RunPlace.lastRun - 1_023

    /// Adds a commit's entries.
    /// - Parameters:
    ///   - added: not empty.
    ///   - read: reads the latest slice. Returns nil if it is damaged; then another one begins.
    /// - Returns: the new content of the latest slice if that changes.
    mutating func add(_ added: [WaitingEntry], readSlice read: (Slice) throws -> [WaitingEntry]?) rethrows -> [WaitingEntry]? {
        guard newest.count + added.count > RunPage.capacity || newest.isEmpty && slice != nil else {
            if pair == nil, let earlier = newest.randomElement(), let other = added.randomElement() {
                pair = (earlier.id, other.id)
            }
            for entry in added { newest.insert(entry) }
            return nil
        }
        var (earlier, joined): ([WaitingEntry], [WaitingEntry]) = (Array(newest), [])
        var (run, replacedPages) = (slice.map { $0.run + 1 } ?? 0, 0)
        if let slice, newest.isEmpty || slice.count + newest.count + added.count <= Self.sliceCapacity,
            let entries = try read(slice)
        {
            if newest.isEmpty { earlier = entries } else { joined = entries }
            (run, replacedPages) = (slice.run, RunPage.count(of: slice.count))
        }
        let entries = earlier + added
        let kept = draw(from: entries, earlier: earlier.count, isSliceMixed: !joined.isEmpty)
        let pages = RunPage.count(of: joined.count + entries.count - kept.count)
        // Beside a damaged newest run, another one begins without the slices' pages.
        newest = RunPage(newest.place, pages: max(newest.pages + pages - replacedPages, 1))
        var (moved, start) = (joined, 0)
        moved.reserveCapacity(joined.count + entries.count)
        for index in kept {
            newest.insert(entries[index])
            moved += entries[start..<index]
            start = index + 1
        }
        moved += entries[start...]
        // Linear, since these are a few sorted parts.
        moved.sort { $0.id < $1.id }
        slice = Slice(run: run, count: moved.count)
        return moved
    }

    /// Draws the entries that the newest run keeps. Both it and the slice get an entry of an earlier commit and one of another.
    /// - Parameters:
    ///   - earlier: how many of `entries`, the first ones, are of earlier commits. The others are of one commit.
    ///   - isSliceMixed: true if the slice has entries of several commits already.
    /// - Returns: their indices, ascending. Empty if no split is known to leave the slice entries of two commits.
    private mutating func draw(from entries: [WaitingEntry], earlier count: Int, isSliceMixed: Bool) -> [Int] {
        let (earlier, added) = (0..<count, count..<entries.count)
        var moved: Set<Int> = []
        if !isSliceMixed {
            if earlier.count > 1, added.count > 1 {
                moved = [Int.random(in: earlier), Int.random(in: added)]
            } else if earlier.count > 2, let pair, let first = entries.firstIndex(where: { $0.id == pair.0 }),
                let second = entries.firstIndex(where: { $0.id == pair.1 }), max(first, second) < count
            {
                moved = [first, second]
            } else {
                pair = earlier.randomElement().map { (entries[$0].id, entries[Int.random(in: added)].id) }
                return []
            }
        }
        var kept: Set<Int> = []
        func keep(oneOf range: Range<Int>) -> EntryID {
            while true {
                let index = Int.random(in: range)
                if !moved.contains(index), kept.insert(index).inserted { return entries[index].id }
            }
        }
        pair = (keep(oneOf: earlier), keep(oneOf: added))
        while kept.count < min(Self.kept, entries.count - moved.count) { _ = keep(oneOf: entries.indices) }
        return kept.sorted()
    }
}

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
    /// Of an entry in a page: 16 of the id, 5 of the word.
    fileprivate static let byteCount = 21

    fileprivate init(_ bytes: Span<UInt8>, at offset: Int) {
        id = EntryID(bytes, at: offset)
        word = UInt64(bytes[offset + 16]) << 32 | UInt64(bytes.bigEndian32(at: offset + 17))
    }

    fileprivate func write(to bytes: inout MutableSpan<UInt8>, at offset: Int) {
        bytes.write(bigEndian: id.high, at: offset)
        bytes.write(bigEndian: id.low, at: offset + 8)
        bytes[offset + 16] = UInt8(truncatingIfNeeded: word >> 32)
        bytes.write(bigEndian: UInt32(truncatingIfNeeded: word), at: offset + 17)
    }
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
    /// The first key after those of batch and rank.
    var endOfRank: Int64 { at(run: 0).key + 1 << (Self.runBits + Self.pageBits) }
}

/// A page of a run. Its row fills a page of the file, so that it is overwritten in place.
struct RunPage: Sendable, Equatable {
    /// The most entries. SQLite would store the end of a row of more than 4,061 bytes in another page of the file.
    static let capacity = 192
    static let byteCount = capacity * WaitingEntry.byteCount

    let place: RunPlace
    /// The number of pages of the run.
    let pages: Int
    let entries: [WaitingEntry]

    init(_ place: RunPlace, pages: Int, _ entries: some Collection<WaitingEntry>) {
        (self.place, self.pages, self.entries) = (place, pages, Array(entries))
    }

    /// Reads a page. Returns nil if it was edited, cut or moved.
    init?(_ place: RunPlace, count: Int64, pages: Int64, checksum: Int64, _ bytes: Span<UInt8>) {
        guard (1...Int64(Self.capacity)).contains(count), bytes.count == Self.byteCount, place.page < pages else { return nil }
        var entries: [WaitingEntry] = []
        entries.reserveCapacity(Int(count))
        for index in 0..<Int(count) { entries.append(WaitingEntry(bytes, at: index * WaitingEntry.byteCount)) }
        self.init(place, pages: Int(pages), entries)
        guard self.checksum == checksum, zip(entries, entries.dropFirst()).allSatisfy({ $0.id <= $1.id }),
            entries.allSatisfy({ ($0.cause == nil) == (place.rank == 3) })
        else { return nil }
    }

    /// The entries, padded with zeros to `byteCount`.
    var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.byteCount)
        var span = bytes.mutableSpan
        for (index, entry) in entries.enumerated() { entry.write(to: &span, at: index * WaitingEntry.byteCount) }
        return bytes
    }

    /// Binds the entries to their place and their run's length. It shows damage, not forgery: whoever can write the file can compute it.
    var checksum: Int64 {
        // FNV-1a with words in place of bytes. The shift carries high bits down.
        var sum: UInt64 = 0xcbf2_9ce4_8422_2325
        func add(_ word: UInt64) {
            sum = (sum ^ word) &* 0x9e37_79b9_7f4a_7c15
            sum ^= sum >> 29
        }
        add(UInt64(bitPattern: place.key))
        add(UInt64(pages) << 32 | UInt64(entries.count))
        for entry in entries {
            add(entry.id.high)
            add(entry.id.low)
            add(entry.word)
        }
        return Int64(bitPattern: sum)
    }

    var isLast: Bool { place.page + 1 == pages }

    /// Returns true if this page may come after `previous` in a batch's whole pages, which are in the order of their places.
    func follows(_ previous: RunPage?) -> Bool {
        guard let previous, !previous.isLast else { return place.page == 0 }
        return place == previous.place.at(run: previous.place.run, page: previous.place.page + 1) && pages == previous.pages
            && previous.entries[previous.entries.count - 1].id <= entries[0].id
    }

    /// Returns the pages of a run.
    static func pages(_ place: RunPlace, _ entries: [WaitingEntry]) -> [RunPage] {
        let pages = count(of: entries.count)
        return (0..<pages).map { page in
            let start = page * capacity
            return RunPage(
                place.at(run: place.run, page: page), pages: pages, entries[start..<min(start + capacity, entries.count)])
        }
    }

    static func count(of entries: Int) -> Int { (entries + capacity - 1) / capacity }
}

/// The runs of a batch's seals, or of its purges: the newest run, which is one page, and slices of thousands.
///
/// Each commit adds its entries to the newest run. When this overflows, most of it is merged into the latest slice, until that is full and another
/// one begins. So a file shows of an entry's age only which run it is in. Every run with entries of a commit also has earlier ones, if two waited.
struct WaitingRuns: Sendable, Equatable {
    /// Sorted.
    private(set) var newest: [WaitingEntry]
    let newestRun: Int
    private(set) var slice: Slice?

    struct Slice: Sendable, Equatable {
        var run: Int
        var count: Int
    }

    /// The most entries of a slice, unless a commit has more.
    static let sliceCapacity = 8_192
    /// How many entries of earlier commits the newest run keeps.
    static let kept = 32
    /// Runs from here on are newest runs. The last one is in use, or the one before those that are damaged.
    static let firstNewestRun = RunPlace.lastRun - 1_023

    init(newest: [WaitingEntry] = [], newestRun: Int = RunPlace.lastRun, slice: Slice? = nil) {
        (self.newest, self.newestRun, self.slice) = (newest, newestRun, slice)
    }

    /// Adds a commit's entries to the newest run.
    /// - Parameters:
    ///   - added: sorted, not empty.
    ///   - read: reads the latest slice. Returns nil if it is damaged; then another one begins.
    /// - Returns: the new content of the latest slice if that changes.
    mutating func add(_ added: [WaitingEntry], readSlice read: (Int) throws -> [WaitingEntry]?) rethrows -> [WaitingEntry]? {
        guard newest.count + added.count > RunPage.capacity || newest.isEmpty && slice != nil else {
            newest = Self.merged(newest, added)
            return nil
        }
        var earlier = newest
        var run = slice.map { $0.run + 1 } ?? 0
        // Without two entries in the newest run, one run would get the commit's alone.
        if let slice, newest.count < 2 || slice.count + newest.count + added.count <= Self.sliceCapacity,
            let entries = try read(slice.run)
        {
            earlier = Self.merged(entries, newest)
            run = slice.run
        }
        var kept: Set<Int> = []
        while kept.count < min(Self.kept, earlier.count - 1) { kept.insert(Int.random(in: earlier.indices)) }
        newest = []
        var (moved, start): ([WaitingEntry], Int) = ([], 0)
        for index in kept.sorted() {
            newest.append(earlier[index])
            moved += earlier[start..<index]
            start = index + 1
        }
        moved += earlier[start...]
        let entries = Self.merged(moved, added)
        slice = Slice(run: run, count: entries.count)
        return entries
    }

    private static func merged(_ one: [WaitingEntry], _ other: [WaitingEntry]) -> [WaitingEntry] {
        var merged: [WaitingEntry] = []
        merged.reserveCapacity(one.count + other.count)
        var next = 0
        for entry in one {
            while next < other.count, other[next].id < entry.id {
                merged.append(other[next])
                next += 1
            }
            merged.append(entry)
        }
        return merged + other[next...]
    }
}

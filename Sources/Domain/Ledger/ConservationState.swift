import Vocabulary

/// The times in which no broker ran. Each ends with a `broker.started`. All times are unix seconds.
struct Gaps {
    /// A shorter silence isn't a gap.
    static let shortest = 60
    /// The longest total of gaps in one UTC day.
    static let dayLimit = 3_600

    struct Span: Equatable {
        var start = 0
        var end = 0
    }

    private(set) var total = 0
    private var spans: [Span] = []
    /// The last UTC day with a gap, and how long its gaps are.
    private var day = -1
    private var daySeconds = 0

    /// Adds a gap. Returns true if a day now has more than an hour of gaps.
    mutating func record(_ span: Span) -> Bool {
        spans.append(span)
        total += span.end - span.start
        var isTooLong = false
        // Days between the first and the last are gaps as a whole.
        for start in Set([span.start / 86_400 * 86_400, span.end / 86_400 * 86_400]).sorted() {
            if start != day { (day, daySeconds) = (start, 0) }
            daySeconds += min(span.end, start + 86_400) - max(span.start, start)
            isTooLong = isTooLong || daySeconds > Self.dayLimit
        }
        return isTooLong || span.end - span.start > 86_400
    }

    /// Returns how many seconds from `due` to `at` were gaps.
    func overlap(from due: Int, to at: Int) -> Int {
        var sum = 0
        for span in spans.reversed() {
            if span.end <= due { break }
            sum += max(0, min(span.end, at) - max(span.start, due))
        }
        return sum
    }

    /// Returns whether a gap begins by `limit` and ends at `due` or later.
    func cover(_ due: Int, upTo limit: Int) -> Bool { spans.contains { $0.start <= limit && $0.end >= due } }

    /// Returns the first multiple of `step` after `time` that is in no gap. Each gap is extended by `margin` on both sides.
    func firstOutside(after time: Int, step: Int, margin: Int) -> Int {
        var found = (time / step + 1) * step
        for span in spans {
            if found < span.start - margin { break }
            if found <= span.end + margin { found = ((span.end + margin) / step + 1) * step }
        }
        return found
    }

    mutating func forget(before time: Int) { spans.removeAll { $0.end < time } }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&total)
        coder.code(&day)
        coder.code(&daySeconds)
        coder.code(&spans, empty: Span()) { span, coder in
            coder.code(&span.start)
            coder.code(&span.end)
        }
    }
}

/// Published totals of the tokens that expire on one day. All times are unix seconds.
struct Bucket: Equatable {
    var until = 0
    var sealed = 0
    var carried = 0
    var expired = 0

    /// Tokens that have not expired; some may have been purged early.
    var remaining: Int { sealed + carried - expired }
}

/// The buckets that are not closed yet: at most one for each day of the longest token life.
///
/// The log's operator chooses the length of a day and of a life, so there may be very many. Sorted pages keep a change from moving all of them.
struct Buckets {
    private static let pageLimit = 512

    /// Oldest first, in pages that are not empty. Almost every log needs one page.
    private var pages: [[Bucket]] = []
    /// The sum over all buckets.
    private(set) var remaining = 0

    var first: Bucket? { pages.first?.first }

    func allSatisfy(_ isTrue: (Bucket) -> Bool) -> Bool { pages.allSatisfy { $0.allSatisfy(isTrue) } }

    /// Returns an empty bucket if none ends at `until`.
    func find(_ until: Int) -> Bucket { place(of: until).map { pages[$0.page][$0.index] } ?? Bucket(until: until) }

    mutating func carry(_ live: Int, until: Int) {
        let place = findOrInsert(until)
        pages[place.page][place.index].carried += live
        remaining += live
    }

    mutating func seal(until: Int) {
        let place = findOrInsert(until)
        pages[place.page][place.index].sealed += 1
        remaining += 1
    }

    /// Returns false if nothing is left to expire.
    mutating func expire(until: Int) -> Bool {
        guard let place = place(of: until), pages[place.page][place.index].remaining > 0 else { return false }
        pages[place.page][place.index].expired += 1
        remaining -= 1
        return true
    }

    mutating func close(_ until: Int) {
        guard let place = place(of: until) else { return }
        remaining -= pages[place.page].remove(at: place.index).remaining
        if pages[place.page].isEmpty { pages.remove(at: place.page) }
    }

    private mutating func findOrInsert(_ until: Int) -> (page: Int, index: Int) {
        if let place = place(of: until) { return place }
        guard !pages.isEmpty else {
            pages = [[Bucket(until: until)]]
            return (0, 0)
        }
        let page = page(of: until)
        let index = Self.firstIndex(in: pages[page]) { $0.until >= until }
        pages[page].insert(Bucket(until: until), at: index)
        guard pages[page].count > Self.pageLimit else { return (page, index) }
        // Ends that ascend leave full pages. Elsewhere only halves keep the number of pages small.
        let kept = index == Self.pageLimit && page == pages.count - 1 ? index : Self.pageLimit / 2
        pages.insert(Array(pages[page][kept...]), at: page + 1)
        pages[page].removeSubrange(kept...)
        return index < kept ? (page, index) : (page + 1, index - kept)
    }

    private func place(of until: Int) -> (page: Int, index: Int)? {
        guard !pages.isEmpty else { return nil }
        let page = page(of: until)
        let index = Self.firstIndex(in: pages[page]) { $0.until >= until }
        return index < pages[page].count && pages[page][index].until == until ? (page, index) : nil
    }

    /// Returns the last page that begins at `until` or before, or else the first page.
    private func page(of until: Int) -> Int { max(0, Self.firstIndex(in: pages) { $0[0].until > until } - 1) }

    /// Returns the index of the first element for which `isAfter` is true. The elements must be sorted by it.
    private static func firstIndex<Element>(in list: [Element], _ isAfter: (Element) -> Bool) -> Int {
        var (low, high) = (0, list.count)
        while low < high {
            let middle = (low + high) / 2
            if isAfter(list[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&remaining)
        var open = pages.flatMap(\.self)
        coder.code(&open, empty: Bucket()) { bucket, coder in
            coder.code(&bucket.until)
            coder.code(&bucket.sealed)
            coder.code(&bucket.carried)
            coder.code(&bucket.expired)
        }
        pages = stride(from: 0, to: open.count, by: Self.pageLimit).map { Array(open[$0..<min($0 + Self.pageLimit, open.count)]) }
    }
}

/// Pushes whose outcome isn't known yet. Each outcome has a deadline, which bounds their number.
struct OpenJobs {
    private struct Window {
        var at = 0
        var jobs = 0
    }

    private var openedAt: [JobID: Int] = [:]
    /// The windows that had open jobs, oldest first. Only the first one certainly still has some.
    private var windows: [Window] = []

    var count: Int { openedAt.count }
    var oldest: Int? { windows.first?.at }

    /// Returns false if the job is open already.
    mutating func open(_ job: JobID, at: Int) -> Bool {
        guard openedAt.updateValue(at, forKey: job) == nil else { return false }
        if windows.last?.at != at { windows.append(Window(at: at)) }
        windows[windows.count - 1].jobs += 1
        return true
    }

    /// Returns when the job was opened. Returns nil if it isn't open.
    mutating func close(_ job: JobID) -> Int? {
        guard let at = openedAt.removeValue(forKey: job) else { return nil }
        let window = windows.lastIndex { $0.at == at }!
        windows[window].jobs -= 1
        if window == 0 { windows.removeFirst(windows.prefix { $0.jobs == 0 }.count) }
        return at
    }

    mutating func code(_ coder: inout StateCoder) {
        var jobs = openedAt.map { (job: $0.key.value, at: $0.value) }.sorted { $0.at < $1.at }
        coder.code(&jobs, empty: (job: 0, at: 0)) { entry, coder in
            coder.code(&entry.job)
            coder.code(&entry.at)
        }
        (openedAt, windows) = ([:], [])
        for (job, at) in jobs where !open(JobID(job), at: at) { coder.isDamaged = true }
    }
}

/// Checks the order of the entries within a window.
///
/// An entry of rank 0 restarts the order. A stop publishes its window early, and the next start continues that window.
struct EntryOrder {
    private var rank = 0
    private var key: UInt128 = 0

    /// Returns false if the entry is out of order.
    mutating func admit(_ entry: EntryFields, isNewWindow: Bool) -> Bool {
        let rank = Int(entry.op.rank)
        let key: UInt128 =
            switch rank {
            case 1, 3, 4: entry.id.value
            case 2: entry.job.value
            case 5: UInt128(entry.untilMs)
            default: 0
            }
        defer { (self.rank, self.key) = (rank, key) }
        return isNewWindow || rank == 0 || rank > self.rank || rank == self.rank && key > self.key
    }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&rank)
        coder.code(&key)
    }
}

/// Writes or reads a verifier's state field by field, with the same code for both.
struct StateCoder {
    private(set) var bytes: [UInt8]
    private var position = 0
    private let isReading: Bool
    /// The input is truncated or invalid.
    var isDamaged = false

    init() { (bytes, isReading) = ([], false) }

    init(reading bytes: [UInt8]) { (self.bytes, isReading) = (bytes, true) }

    var isAtEnd: Bool { position == bytes.count }

    mutating func code(_ number: inout UInt64) {
        guard isReading else {
            return bytes.append(bigEndian: number)
        }
        guard !isDamaged, bytes.count - position >= 8 else {
            isDamaged = true
            return
        }
        number = bytes[position..<position + 8].reduce(0) { $0 << 8 | UInt64($1) }
        position += 8
    }

    mutating func code(_ number: inout Int) {
        var raw = UInt64(bitPattern: Int64(number))
        code(&raw)
        number = Int(Int64(bitPattern: raw))
    }

    mutating func code(_ flag: inout Bool) {
        var raw = flag ? 1 : 0
        code(&raw)
        flag = raw == 1
    }

    mutating func code(_ number: inout Int?) {
        var raw = [number].compactMap(\.self)
        code(&raw, empty: 0) { $1.code(&$0) }
        number = raw.first
    }

    mutating func code(_ number: inout UInt64?) {
        var raw = [number].compactMap(\.self)
        code(&raw, empty: 0) { $1.code(&$0) }
        number = raw.first
    }

    mutating func code(_ id: inout UInt128) {
        var (high, low) = (UInt64(truncatingIfNeeded: id >> 64), UInt64(truncatingIfNeeded: id))
        code(&high)
        code(&low)
        id = UInt128(high) << 64 | UInt128(low)
    }

    mutating func code(_ digests: inout [Digest]) {
        code(&digests, empty: .emptyRoot) { digest, coder in
            var bytes: [UInt8] = []
            bytes.append(digest)
            coder.code(&bytes)
            if let read = Digest(bytes: bytes.span) { digest = read } else { coder.isDamaged = true }
        }
    }

    mutating func code(_ text: inout [UInt8]) {
        var count = text.count
        code(&count)
        guard isReading else { return bytes.append(contentsOf: text) }
        guard !isDamaged, (0...bytes.count - position).contains(count) else {
            isDamaged = true
            return
        }
        text = Array(bytes[position..<position + count])
        position += count
    }

    mutating func code<Element>(
        _ list: inout [Element], empty: Element, _ each: (inout Element, inout StateCoder) -> Void
    ) {
        var count = list.count
        code(&count)
        if isReading {
            // Each element is at least one byte long.
            guard !isDamaged, (0...bytes.count - position).contains(count) else {
                isDamaged = true
                return
            }
            list = Array(repeating: empty, count: count)
        }
        for index in list.indices where !isDamaged { each(&list[index], &self) }
    }
}

/// How much each owner holds of one resource: an open-addressing table over names that are uniformly distributed keyed hashes.
struct Holdings {
    private struct Entry {
        /// 0 for an empty place.
        var name: UInt64 = 0
        var held = 0
        /// When this owner's window began.
        var since: UInt64 = 0
    }

    private let windowMs: UInt64?
    /// Names at a time, so that memory stays bounded.
    private let most: Int
    private static let smallest = 64
    private var entries = [Entry](repeating: Entry(), count: smallest)
    private(set) var count = 0
    /// A full table looks for rows to drop no more often than this, since that reads all of it.
    private var nextSweep: UInt64 = 0

    init(windowMs: UInt64?, most: Int) { (self.windowMs, self.most) = (windowMs, most) }

    /// Where the row of this name is; nil if there is none.
    func index(_ name: UInt64) -> Int? {
        var index = place(name)
        while entries[index].name != 0 {
            if entries[index].name == name { return index }
            index = (index + 1) & (entries.count - 1)
        }
        return nil
    }

    func held(_ name: UInt64, _ now: UInt64) -> Int { index(name).map { held(at: $0, now) } ?? 0 }

    func held(at index: Int, _ now: UInt64) -> Int { isCurrent(entries[index], now) ? entries[index].held : 0 }

    /// How long what this row holds still counts.
    func remainingMs(at index: Int, _ now: UInt64) -> UInt64 {
        guard let windowMs, isCurrent(entries[index], now) else { return 0 }
        return entries[index].since + windowMs - now
    }

    /// Whether there is room for another name.
    mutating func hasRoom(_ now: UInt64) -> Bool {
        if count >= most, let windowMs, now >= nextSweep {
            rebuild(now)
            nextSweep = now + max(1, windowMs / 8)
        }
        return count < most
    }

    mutating func add(_ amount: Int, at index: Int, _ now: UInt64) {
        if isCurrent(entries[index], now) {
            entries[index].held += amount
        } else {
            entries[index].held = amount
            entries[index].since = now
        }
    }

    /// Adds a row. Rows may be somewhere else afterwards.
    mutating func insert(_ amount: Int, _ name: UInt64, _ now: UInt64) {
        if 2 * count >= entries.count { rebuild(now) }
        insert(Entry(name: name, held: amount, since: now))
    }

    /// Takes away what was added at `since` or later.
    mutating func remove(_ amount: Int, _ name: UInt64, since: UInt64) {
        guard let index = index(name), windowMs == nil || entries[index].since <= since else { return }
        entries[index].held = max(0, entries[index].held - amount)
        if entries[index].held == 0 { remove(at: index) }
    }

    /// Drops the rows whose window is over.
    mutating func forget(_ now: UInt64) {
        if windowMs != nil, count > 0 { rebuild(now) }
    }

    mutating func clear() {
        entries = [Entry](repeating: Entry(), count: Self.smallest)
        count = 0
    }

    private func isCurrent(_ entry: Entry, _ now: UInt64) -> Bool {
        guard let windowMs else { return true }
        return now < entry.since + windowMs
    }

    private func place(_ name: UInt64) -> Int { Int(truncatingIfNeeded: name) & (entries.count - 1) }

    private mutating func insert(_ entry: Entry) {
        var index = place(entry.name)
        while entries[index].name != 0 { index = (index + 1) & (entries.count - 1) }
        entries[index] = entry
        count += 1
    }

    /// Moves the rows behind the gap forward, so that searches still find them.
    private mutating func remove(at gap: Int) {
        let mask = entries.count - 1
        var (gap, index) = (gap, (gap + 1) & mask)
        while entries[index].name != 0 {
            if (index - place(entries[index].name)) & mask >= (index - gap) & mask {
                entries[gap] = entries[index]
                gap = index
            }
            index = (index + 1) & mask
        }
        entries[gap] = Entry()
        count -= 1
    }

    /// Drops the rows whose window is over, and leaves room for as many again as are left.
    private mutating func rebuild(_ now: UInt64) {
        let kept = entries.filter { $0.name != 0 && isCurrent($0, now) }
        var size = Self.smallest
        while size < 4 * kept.count { size *= 2 }
        entries = [Entry](repeating: Entry(), count: size)
        count = 0
        for entry in kept { insert(entry) }
    }
}

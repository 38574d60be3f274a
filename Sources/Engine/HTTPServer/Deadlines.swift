/// Deadlines of connections by slot. A slot has at most one deadline, and all deadlines of a kind have the same length. So each kind is a list
/// ordered by expiry, and all operations take constant time.
struct Deadlines {
    enum Kind: Int, CaseIterable { case handshake, header, body, idle, write, linger, streams, firstMessage, ping, pong, close }

    private struct Entry {
        var kind: Kind?
        var dueMs: UInt64 = 0
        var previous: Int32 = -1
        var next: Int32 = -1
    }

    private let lengths: [UInt64]
    private var entries: [Entry] = []
    private var first: [Int32]
    private var last: [Int32]
    /// For each kind, true if a timer is set.
    private var hasTimer: [Bool]

    /// - Parameter lengthMs: the length of each kind.
    init(lengthMs: (Kind) -> UInt64) {
        lengths = Kind.allCases.map(lengthMs)
        first = lengths.map { _ in -1 }
        last = first
        hasTimer = lengths.map { _ in false }
    }

    func kind(_ slot: Int) -> Kind? { slot < entries.count ? entries[slot].kind : nil }

    /// Sets the slot's deadline, starting now. Replaces an earlier one.
    /// - Returns: true if the kind needs a timer.
    @discardableResult mutating func set(_ slot: Int, _ kind: Kind, nowMs: UInt64) -> Bool {
        while slot >= entries.count { entries.append(Entry()) }
        unlink(slot)
        let end = last[kind.rawValue]
        entries[slot] = Entry(kind: kind, dueMs: nowMs + lengths[kind.rawValue], previous: end, next: -1)
        if end >= 0 { entries[Int(end)].next = Int32(slot) } else { first[kind.rawValue] = Int32(slot) }
        last[kind.rawValue] = Int32(slot)
        return !hasTimer[kind.rawValue]
    }

    /// Records that a timer is set for the kind.
    /// - Returns: when it must fire, or nil if there is no deadline.
    mutating func startTimer(_ kind: Kind) -> UInt64? {
        let due = nextDue(kind)
        hasTimer[kind.rawValue] = due != nil
        return due
    }

    mutating func endTimer(_ kind: Kind) { hasTimer[kind.rawValue] = false }

    mutating func clear(_ slot: Int) {
        if slot < entries.count { unlink(slot) }
    }

    /// When the next deadline of this kind expires.
    func nextDue(_ kind: Kind) -> UInt64? {
        let slot = first[kind.rawValue]
        return slot < 0 ? nil : entries[Int(slot)].dueMs
    }

    /// Removes and returns a slot with an expired deadline of this kind.
    mutating func takeExpired(_ kind: Kind, nowMs: UInt64) -> Int? {
        guard let due = nextDue(kind), due <= nowMs else { return nil }
        let slot = Int(first[kind.rawValue])
        unlink(slot)
        return slot
    }

    private mutating func unlink(_ slot: Int) {
        let entry = entries[slot]
        guard let kind = entry.kind?.rawValue else { return }
        if entry.previous >= 0 { entries[Int(entry.previous)].next = entry.next } else { first[kind] = entry.next }
        if entry.next >= 0 { entries[Int(entry.next)].previous = entry.previous } else { last[kind] = entry.previous }
        entries[slot].kind = nil
    }
}

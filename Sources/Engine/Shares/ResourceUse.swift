/// A resource's quota, its use, and the holdings of each owner.
struct ResourceUse {
    private let resource: Resource
    private let side: Share?
    private let connection: Share?
    private let network: Share?
    private let backEnd: Share?
    private let exempt: Share
    private let windowMs: UInt64?
    /// Indexed by urgency.
    private let ceilings: InlineArray<3, Int>
    private var used = 0
    /// The start of the window of `used`.
    private var since: UInt64 = 0
    private var holdings: Holdings
    private(set) var refusals = Shares.Refusals()
    /// How many nodes share the quota.
    var nodes = 1

    /// A row that is charged.
    private struct Row {
        /// 0 for none.
        var name: UInt64 = 0
        /// -1 if no row has this name yet.
        var index = -1
        var held = 0
        var cap = Int.max
        var part = 0
        /// A /48 may hold twice the share of a /56.
        var factor = 1

        /// One unit is always within a share. Otherwise the last ones, or those of a small total, would be nobody's.
        func limit(free: Int) -> Int { part == 0 ? cap : min(cap, max(1, free * factor / part)) }
    }

    /// Named properties, because the compiler would copy an array at every access.
    private struct Rows {
        var payer = Row()
        var wide = Row()
        var connection = Row()
        var side = Row()

        @inline(__always) func visit(_ use: (borrowing Row) -> Void) {
            if payer.name != 0 { use(payer) }
            if wide.name != 0 { use(wide) }
            if connection.name != 0 { use(connection) }
            if side.name != 0 { use(side) }
        }
    }

    /// The retry time for resources without a window, where the next refund can't be predicted.
    private static let refundSeconds = 5

    init(_ resource: Resource, _ quota: Quota, mostOwners: Int) {
        self.resource = resource
        side = quota.side
        connection = quota.connection
        network = quota.network
        backEnd = quota.backEnd
        exempt = quota.exempt
        windowMs = quota.windowMs
        ceilings = [quota.ceiling(.creation), quota.ceiling(.knock), quota.ceiling(.acknowledged)]
        holdings = Holdings(windowMs: quota.windowMs, most: mostOwners)
    }

    func used(_ now: UInt64) -> Int { isOver(now) ? 0 : used }

    mutating func grow(_ charge: inout Charge, _ amount: Int, _ urgency: Urgency) -> Shortage? {
        let now = charge.since
        if isOver(now) { (used, since) = (0, now) }
        let rows = rows(&charge.owners, now)
        if let shortage = shortage(rows, amount, now, urgency) {
            if case .exhausted = shortage { refusals.exhausted += 1 } else { refusals.overShare += 1 }
            return shortage
        }
        used += amount
        charge.amount += amount
        rows.visit { if $0.index >= 0 { holdings.add(amount, at: $0.index, now) } }
        rows.visit { if $0.index < 0 { holdings.insert(amount, $0.name, now) } }
        return nil
    }

    mutating func allows(_ amount: Int, _ owners: Owners, _ now: UInt64) -> Bool {
        if isOver(now) { (used, since) = (0, now) }
        var owners = owners
        return shortage(rows(&owners, now), amount, now, .creation) == nil
    }

    mutating func shrink(_ charge: Charge, _ amount: Int) {
        if windowMs == nil || since <= charge.since { used = max(0, used - amount) }
        holdings.remove(amount, charge.owners.payer.name, since: charge.since)
        if charge.owners.payer.wide != 0 { holdings.remove(amount, charge.owners.payer.wide, since: charge.since) }
        if connection != nil, let owner = charge.owners.connection { holdings.remove(amount, owner.name, since: charge.since) }
        if side != nil, let owner = charge.owners.side { holdings.remove(amount, owner.name, since: charge.since) }
    }

    mutating func mustStayFree(_ charge: Charge) -> Int {
        var owners = charge.owners
        var most = 0
        rows(&owners, charge.since).visit { row in
            // One unit is always within a share.
            if row.held > 1 { most = max(most, (row.held * row.part - 1) / row.factor) }
        }
        return most
    }

    mutating func clear() {
        used = 0
        holdings.clear()
    }

    mutating func forget(_ now: UInt64) { holdings.forget(now) }

    private func isOver(_ now: UInt64) -> Bool {
        guard let windowMs else { return false }
        return now >= since + windowMs
    }

    private func shortage(_ rows: Rows, _ amount: Int, _ now: UInt64, _ urgency: Urgency) -> Shortage? {
        let free = max(0, part(of: ceilings[urgency.rawValue]) - used)
        var holdsNothing = true
        var (overCap, overFraction): (Int?, Int?) = (nil, nil)
        rows.visit { row in
            if row.held + amount > row.cap { overCap = row.index }
            if row.held + amount > row.limit(free: free) { overFraction = row.index }
            if row.held > 0 { holdsNothing = false }
        }
        func overShare(_ row: Int) -> Shortage {
            .overShare(resource, retryAfterSeconds: wait(row < 0 ? 0 : holdings.remainingMs(at: row, now)))
        }
        if let overCap { return overShare(overCap) }
        if amount > free {
            return .exhausted(resource, retryAfterSeconds: wait(windowMs.map { since + $0 - now } ?? 0))
        }
        guard let overFraction else { return nil }
        // An owner that holds nothing isn't over its share: others have left too little.
        return holdsNothing ? .exhausted(resource, retryAfterSeconds: wait(0)) : overShare(overFraction)
    }

    private func part(of limit: Int) -> Int { nodes == 1 || limit == .max ? limit : (limit + nodes - 1) / nodes }

    private func wait(_ ms: UInt64) -> Int { ms == 0 ? Self.refundSeconds : Int((ms + 999) / 1_000) }

    /// Returns the owners' rows. If the table is full, owners without a row are renamed to a shared row.
    private mutating func rows(_ owners: inout Owners, _ now: UInt64) -> Rows {
        var rows = Rows()
        // Call it first, because it may move rows.
        let hasRoom = holdings.hasRoom(now)
        let payer: Share? =
            switch owners.payer.kind {
            case .backEnd: backEnd
            case .proxy: network == nil ? nil : exempt
            case .side: side
            case .connection: connection
            case .network, .user: network
            }
        if let payer {
            rows.payer = row(&owners.payer.name, payer, rest: 1, hasRoom, now)
            if owners.payer.wide != 0 {
                rows.wide = row(&owners.payer.wide, payer, rest: 2, hasRoom, now)
                if rows.wide.name >= Owner.firstName {
                    rows.wide.factor = 2
                    rows.wide.cap = payer.cap < .max / 2 ? 2 * part(of: payer.cap) : payer.cap
                }
            }
        }
        if let connection, owners.connection != nil {
            rows.connection = row(&owners.connection!.name, connection, rest: 3, hasRoom, now)
        }
        if let side, owners.side != nil { rows.side = row(&owners.side!.name, side, rest: 4, hasRoom, now) }
        return rows
    }

    private func row(_ name: inout UInt64, _ share: Share, rest: UInt64, _ hasRoom: Bool, _ now: UInt64) -> Row {
        var (index, share) = (holdings.index(name), share)
        if index == nil, name >= Owner.firstName, !hasRoom {
            name = rest
            index = holdings.index(rest)
        }
        if name < Owner.firstName { share = exempt }
        return Row(
            name: name, index: index ?? -1, held: index.map { holdings.held(at: $0, now) } ?? 0, cap: part(of: share.cap),
            part: share.part)
    }
}

/// The holdings of each owner of a resource: an open-addressing table. Names are uniformly distributed keyed hashes.
struct Holdings {
    private struct Entry {
        /// 0 for an empty entry.
        var name: UInt64 = 0
        var held = 0
        /// The start of this owner's window.
        var since: UInt64 = 0
    }

    private let windowMs: UInt64?
    /// The limit on rows, to bound memory.
    private let most: Int
    private static let smallest = 64
    private var entries = [Entry](repeating: Entry(), count: smallest)
    private(set) var count = 0
    /// The next time a full table may drop expired rows, which reads all of it.
    private var nextSweep: UInt64 = 0

    init(windowMs: UInt64?, most: Int) { (self.windowMs, self.most) = (windowMs, most) }

    /// Returns the index of a name's row, or nil.
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

    /// How long this row's holding still counts.
    func remainingMs(at index: Int, _ now: UInt64) -> UInt64 {
        guard let windowMs, isCurrent(entries[index], now) else { return 0 }
        return entries[index].since + windowMs - now
    }

    /// Whether another row fits.
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

    /// Adds a row. Other rows may move.
    mutating func insert(_ amount: Int, _ name: UInt64, _ now: UInt64) {
        if 2 * count >= entries.count { rebuild(now) }
        insert(Entry(name: name, held: amount, since: now))
    }

    /// Subtracts `amount`, charged at `since`. Does nothing if that window is over.
    mutating func remove(_ amount: Int, _ name: UInt64, since: UInt64) {
        guard let index = index(name), windowMs == nil || entries[index].since <= since else { return }
        entries[index].held = max(0, entries[index].held - amount)
        if entries[index].held == 0 { remove(at: index) }
    }

    /// Drops rows whose window is over.
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

    /// Moves the rows after the gap forward, so that searches still find them.
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

    /// Drops rows whose window is over, and makes room for as many rows again.
    private mutating func rebuild(_ now: UInt64) {
        let kept = entries.filter { $0.name != 0 && isCurrent($0, now) }
        var size = Self.smallest
        while size < 4 * kept.count { size *= 2 }
        entries = [Entry](repeating: Entry(), count: size)
        count = 0
        for entry in kept { insert(entry) }
    }
}

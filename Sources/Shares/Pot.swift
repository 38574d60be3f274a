/// One resource: its quota, how much of it is in use, and by whom.
struct Pot {
    private let resource: Resource
    private let side: Share?
    private let connection: Share?
    private let network: Share?
    private let backEnd: Share?
    private let exempt: Share
    private let windowMs: UInt64?
    /// By urgency.
    private let ceilings: InlineArray<3, Int>
    private var used = 0
    /// When the window of `used` began.
    private var since: UInt64 = 0
    private var holdings: Holdings
    private(set) var refusals = Shares.Refusals()

    /// A row that a charge goes to.
    private struct Row {
        /// 0 for none.
        var name: UInt64 = 0
        /// -1 if there is no row of this name yet.
        var index = -1
        var held = 0
        var cap = Int.max
        var part = 0
        /// A /48 may hold twice a /56's share.
        var factor = 1

        func limit(free: Int) -> Int { part == 0 ? cap : min(cap, free * factor / part) }
    }

    /// Named one by one: the compiler copies an array of them at every access.
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

    /// Without a window an owner waits for a refund, and nobody knows when that comes.
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
        remove(amount, charge.owners.payer.name, charge.since)
        if charge.owners.payer.wide != 0 { remove(amount, charge.owners.payer.wide, charge.since) }
        if connection != nil, let owner = charge.owners.connection { remove(amount, owner.name, charge.since) }
        if side != nil, let owner = charge.owners.side { remove(amount, owner.name, charge.since) }
    }

    private mutating func remove(_ amount: Int, _ name: UInt64, _ since: UInt64) {
        holdings.remove(amount, name, since: since)
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
        let free = max(0, ceilings[urgency.rawValue] - used)
        var isOverFraction = false
        var holdsNothing = true
        var overCap: Int?
        rows.visit { row in
            if row.held + amount > row.cap { overCap = row.index }
            if row.held + amount > row.limit(free: free) { isOverFraction = true }
            if row.held > 0 { holdsNothing = false }
        }
        if let overCap {
            let remaining = overCap < 0 ? 0 : holdings.remainingMs(at: overCap, now)
            return .overShare(resource, retryAfterSeconds: wait(remaining))
        }
        if amount > free {
            return .exhausted(resource, retryAfterSeconds: wait(windowMs.map { since + $0 - now } ?? 0))
        }
        guard isOverFraction else { return nil }
        // An owner that holds nothing is over no share: others left too little.
        return holdsNothing
            ? .exhausted(resource, retryAfterSeconds: wait(0)) : .overShare(resource, retryAfterSeconds: wait(0))
    }

    private func wait(_ ms: UInt64) -> Int { ms == 0 ? Self.refundSeconds : Int((ms + 999) / 1_000) }

    /// The rows of these owners. An owner without a row in a full table is renamed to the row that such owners share.
    private mutating func rows(_ owners: inout Owners, _ now: UInt64) -> Rows {
        var rows = Rows()
        // First, since it may move rows.
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
                    rows.wide.cap = payer.cap < .max / 2 ? 2 * payer.cap : payer.cap
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
            name: name, index: index ?? -1, held: index.map { holdings.held(at: $0, now) } ?? 0, cap: share.cap,
            part: share.part)
    }
}

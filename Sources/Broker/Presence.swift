/// Who is there: sockets, and apps that say so over HTTP. In memory only; a restart forgets it.
struct Presence {
    /// How long a side that left still counts as present, and how long a word over HTTP holds, in milliseconds.
    let graceMs: UInt64
    let heldMs: UInt64

    private struct Side {
        var sockets = 0
        /// Present by its own word until then.
        var heldUntil: UInt64 = 0
        /// Counts as present until then, after it left.
        var graceUntil: UInt64 = 0

        /// Without the grace of who has left.
        func isHere(_ now: UInt64) -> Bool { sockets > 0 || now < heldUntil }
        func isPresent(_ now: UInt64) -> Bool { isHere(now) || now < graceUntil }
    }

    private var rooms: [[UInt8]: (Side, Side)] = [:]
    /// Rooms that may be forgotten at a time, oldest first: whatever is kept without a socket ends within `heldMs`.
    private var checks: [(at: UInt64, room: [UInt8])] = []
    private var checked = 0

    init(graceMs: UInt64, heldMs: UInt64) {
        self.graceMs = graceMs
        self.heldMs = heldMs
    }

    var count: Int { rooms.count }

    private mutating func with<Value>(_ room: [UInt8], _ slot: UInt8, _ body: (inout Side) -> Value) -> Value {
        var sides = rooms[room] ?? (Side(), Side())
        defer { rooms[room] = sides }
        return slot == 1 ? body(&sides.0) : body(&sides.1)
    }

    private func side(_ room: [UInt8], _ slot: UInt8) -> Side? {
        rooms[room].map { slot == 1 ? $0.0 : $0.1 }
    }

    func isPresent(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> Bool { side(room, slot)?.isPresent(now) ?? false }

    /// Whether a side has a socket or holds its word: one that has left is not here, even while it still counts as present.
    func isHere(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> Bool { side(room, slot)?.isHere(now) ?? false }

    /// Until when a side without a socket counts as present; nil when it does not, or has a socket.
    func graceEnd(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> UInt64? {
        guard let side = side(room, slot), side.sockets == 0, side.isPresent(now) else { return nil }
        return max(side.graceUntil, side.heldUntil)
    }

    /// A socket joined.
    /// - Returns: whether the side was away before.
    mutating func arrive(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> Bool {
        return with(room, slot) { side in
            let away = !side.isHere(now)
            side.sockets += 1
            return away
        }
    }

    /// A socket went.
    /// - Returns: whether the side is away now (its grace has begun).
    mutating func leave(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> Bool {
        let away = with(room, slot) { [graceMs] side in
            side.sockets = max(0, side.sockets - 1)
            guard side.sockets == 0, now >= side.heldUntil else { return false }
            side.graceUntil = now + graceMs
            return true
        }
        check(room, at: now + heldMs)
        return away
    }

    /// A side says over HTTP that it is there.
    mutating func hold(_ room: [UInt8], _ slot: UInt8, now: UInt64) {
        with(room, slot) { [heldMs] in $0.heldUntil = now + heldMs }
        check(room, at: now + heldMs)
    }

    /// A side says over HTTP that it leaves.
    mutating func release(_ room: [UInt8], _ slot: UInt8, now: UInt64) {
        with(room, slot) { [graceMs] side in
            if now < side.heldUntil { side.graceUntil = now + graceMs }
            side.heldUntil = 0
        }
        check(room, at: now + heldMs)
    }

    /// Whether a side's word over HTTP has run out, and nothing else keeps it present; true once.
    mutating func takeLapse(_ room: [UInt8], _ slot: UInt8, now: UInt64) -> Bool {
        guard let side = side(room, slot), side.heldUntil > 0, side.heldUntil <= now else { return false }
        return with(room, slot) { side in
            side.heldUntil = 0
            return !side.isPresent(now)
        }
    }

    mutating func forget(_ room: [UInt8]) { rooms[room] = nil }

    private mutating func check(_ room: [UInt8], at time: UInt64) {
        checks.append((time, room))
    }

    /// Drops rooms that nobody is in any more.
    mutating func prune(now: UInt64) {
        while checked < checks.count, checks[checked].at <= now {
            let room = checks[checked].room
            if let (first, second) = rooms[room], !first.isPresent(now), !second.isPresent(now) { rooms[room] = nil }
            checked += 1
        }
        if checked > 1_024, checked * 2 > checks.count {
            checks.removeFirst(checked)
            checked = 0
        }
    }
}

import Vocabulary

/// How long knocks in a room wait before they leave. All times are broker time, unix ms.
struct KnockHolds {
    static let recentMs: UInt64 = 10_000
    static let holdMs: UInt64 = 250

    private let startGraceEnd: UInt64
    /// Rooms made since the start, until the grace after the start is over.
    var newRooms: Set<Digest> = []
    /// When each room was accepted, for rooms that were accepted a moment ago.
    var accepts: [Digest: UInt64] = [:]
    /// The same in order of time.
    private var order = Queue<(at: UInt64, room: Digest)>()

    init(startedAt: UInt64, startGraceMs: UInt64) { startGraceEnd = startedAt + startGraceMs }

    /// Nobody was in this room before the start, so nobody lost a socket there by the restart.
    mutating func recordNewRoom(_ room: Digest, now: UInt64) {
        if now < startGraceEnd { newRooms.insert(room) }
    }

    mutating func recordAccept(_ room: Digest, now: UInt64) {
        while let oldest = order.first, oldest.at + Self.recentMs <= now {
            accepts[oldest.room] = nil
            _ = order.popFirst()
        }
        accepts[room] = now
        order.append((now, room))
    }

    /// Returns when a knock in this room may leave, or 0 if it may leave at once.
    ///
    /// After a start the peer may be about to come back. After an accept the two people often arrive together, and neither phone should ring.
    mutating func end(_ room: Digest, now: UInt64) -> UInt64 {
        if now >= startGraceEnd { newRooms = [] }
        let graceEnd = now >= startGraceEnd || newRooms.contains(room) ? 0 : startGraceEnd
        guard let accepted = accepts[room], now < accepted + Self.recentMs else { return graceEnd }
        return max(graceEnd, now + Self.holdMs)
    }
}

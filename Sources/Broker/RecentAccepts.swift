import Vocabulary

/// Rooms that were accepted a moment ago, in broker time. Their two people often arrive together: knocks wait a quarter of a second, so that
/// neither phone rings then.
struct RecentAccepts {
    static let recentMs: UInt64 = 10_000
    static let holdMs: UInt64 = 250

    private var times: [Digest: UInt64] = [:]
    /// The same in order of time, from `first` on.
    private var order: [(at: UInt64, room: Digest)] = []
    private var first = 0

    var count: Int { times.count }

    mutating func add(_ room: Digest, now: UInt64) {
        while first < order.count, order[first].at + Self.recentMs <= now {
            times[order[first].room] = nil
            first += 1
        }
        if first > 1_024, first * 2 > order.count {
            order.removeFirst(first)
            first = 0
        }
        times[room] = now
        order.append((now, room))
    }

    /// Until when a knock in this room waits; 0 if it need not.
    func holdEnd(_ room: Digest, now: UInt64) -> UInt64 {
        guard let accepted = times[room], now < accepted + Self.recentMs else { return 0 }
        return now + Self.holdMs
    }
}

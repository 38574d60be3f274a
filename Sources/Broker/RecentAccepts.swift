import Vocabulary

/// Rooms that were accepted a moment ago, in broker time. Their two people often arrive together: knocks wait a quarter of a second, so that
/// neither phone rings then.
struct RecentAccepts {
    static let recentMs: UInt64 = 10_000
    static let holdMs: UInt64 = 250

    private var times: [Digest: UInt64] = [:]
    /// The same in order of time.
    private var order = Queue<(at: UInt64, room: Digest)>()

    var count: Int { times.count }

    mutating func add(_ room: Digest, now: UInt64) {
        while let oldest = order.first, oldest.at + Self.recentMs <= now {
            times[oldest.room] = nil
            _ = order.popFirst()
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

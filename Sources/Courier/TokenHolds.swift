/// Tokens that Apple wants left alone for a while (429 TooManyRequests), by a hash; all others go on.
struct TokenHolds {
    private var holds: [Int: UInt64] = [:]
    private static let most = 10_000

    var isEmpty: Bool { holds.isEmpty }

    mutating func hold(_ delivery: Delivery, until: UInt64) {
        let key = delivery.tokenKey
        holds[key] = max(holds[key] ?? 0, until)
        if holds.count > Self.most { holds.removeAll() }  // forgetting costs one more 429 each
    }

    /// Until when this token is held, if it still is.
    mutating func until(_ delivery: Delivery, _ now: UInt64) -> UInt64? {
        guard !holds.isEmpty else { return nil }
        let key = delivery.tokenKey
        guard let until = holds[key] else { return nil }
        guard until > now else {
            holds[key] = nil
            return nil
        }
        return until
    }
}

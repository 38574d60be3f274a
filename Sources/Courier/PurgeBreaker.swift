/// Tells bad tokens from a bad configuration: a wrong topic or environment makes Apple refuse every token, and none of them may be purged for it.
/// Open while, of the answers of the last minute, at least 20 and more than half refused the token.
struct PurgeBreaker: Sendable {
    static let leastRefusals = 20
    static let windowS: UInt64 = 60

    private struct Second {
        var second: UInt64 = .max
        var answers = 0
        var refusals = 0
    }

    private var seconds = [Second](repeating: Second(), count: Int(windowS))

    /// Counts one answer; `nowMs` of a clock that doesn't step.
    mutating func record(refused: Bool, nowMs: UInt64) {
        let second = nowMs / 1000
        let index = Int(second % Self.windowS)
        if seconds[index].second != second { seconds[index] = Second(second: second) }
        seconds[index].answers += 1
        if refused { seconds[index].refusals += 1 }
    }

    func isOpen(nowMs: UInt64) -> Bool {
        let now = nowMs / 1000
        var answers = 0
        var refusals = 0
        for second in seconds where second.second <= now && now - second.second < Self.windowS {
            answers += second.answers
            refusals += second.refusals
        }
        return refusals >= Self.leastRefusals && refusals * 2 > answers
    }
}

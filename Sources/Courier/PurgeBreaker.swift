/// Tells bad tokens from a bad configuration: a wrong topic or environment makes Apple refuse every token, and none of them may be purged for it.
/// One for each topic and environment.
struct PurgeBreaker: Sendable {
    enum State: Sendable {
        /// A token that is refused is bad.
        case closed
        /// Apple has taken no push yet: what it refuses may be bad or not.
        case unproven
        /// The configuration is likely wrong.
        case open
    }

    enum Answer: Sendable {
        /// 200.
        case taken
        /// The token was refused; by its hash.
        case refused(Int)
        /// The token was good once for that topic and environment.
        case gone
    }

    /// So many tokens, and no push taken in between: however slowly they come.
    static let leastInARow = 3
    /// And so many, more than half of all that say something of their token, in a minute: where some are taken.
    static let leastRefusals = 20
    static let windowS: UInt64 = 60

    private struct Second {
        var second: UInt64 = .max
        var answers = 0
        var refusals = 0
    }

    private var seconds = [Second](repeating: Second(), count: Int(windowS))
    private var isProven = false
    /// Different tokens that were refused since a push was taken; no more than count.
    private var refusedInARow: Set<Int> = []

    /// Counts one answer; `nowMs` of a clock that doesn't step.
    mutating func record(_ answer: Answer, nowMs: UInt64) {
        let second = nowMs / 1000
        let index = Int(second % Self.windowS)
        if seconds[index].second != second { seconds[index] = Second(second: second) }
        seconds[index].answers += 1
        switch answer {
        case .taken:
            isProven = true
            if !refusedInARow.isEmpty { refusedInARow = [] }
        case .refused(let token):
            seconds[index].refusals += 1
            if refusedInARow.count < Self.leastInARow { refusedInARow.insert(token) }
        case .gone: break
        }
    }

    func state(nowMs: UInt64) -> State {
        if refusedInARow.count >= Self.leastInARow || areMostRefused(nowMs) { return .open }
        return isProven ? .closed : .unproven
    }

    private func areMostRefused(_ nowMs: UInt64) -> Bool {
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

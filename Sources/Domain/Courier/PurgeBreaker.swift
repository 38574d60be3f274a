/// Distinguishes invalid tokens from a wrong configuration. With a wrong topic or environment, Apple rejects every token, and none may be purged.
/// Each topic and environment has its own.
struct PurgeBreaker: Sendable {
    enum State: Sendable {
        /// A rejected token is invalid.
        case closed
        /// Apple has accepted no push yet, so a rejected token may still be valid.
        case unproven
        /// The configuration is likely wrong.
        case open
    }

    enum Answer: Sendable {
        /// 200.
        case taken
        /// The token with this hash was rejected.
        case refused(Int)
        /// The token was once valid for this topic and environment.
        case gone
    }

    /// Opens after this many different rejected tokens without an accepted push in between.
    static let leastInARow = 3
    /// Also opens after this many rejections in a minute, if they are more than half of the responses.
    static let leastRefusals = 20
    static let windowS: UInt64 = 60

    private struct Second {
        var second: UInt64 = .max
        var answers = 0
        var refusals = 0
    }

    private var seconds = [Second](repeating: Second(), count: Int(windowS))
    private var isProven = false
    /// Different tokens rejected since the last accepted push, up to `leastInARow`.
    private var refusedInARow: Set<Int> = []

    /// Counts one response.
    /// - Parameter nowMs: monotonic.
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

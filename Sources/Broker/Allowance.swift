import Policy

/// So many in a window of time, whoever it is. A window begins with the first that asks after the last one's end.
struct Allowance {
    private let budget: Budget
    private var end: UInt64 = 0
    private var taken = 0

    init(_ budget: Budget) { self.budget = budget }

    /// - Returns: nil if one more is open, else the seconds until one may be.
    mutating func refusal(now: UInt64) -> Int? {
        renew(now)
        return taken >= budget.count ? Int((end - now + 999) / 1_000) : nil
    }

    mutating func take(now: UInt64) {
        renew(now)
        taken += 1
    }

    mutating func giveBack(now: UInt64) {
        renew(now)
        taken = max(0, taken - 1)
    }

    private mutating func renew(_ now: UInt64) {
        guard now >= end else { return }
        (end, taken) = (now + budget.windowMs, 0)
    }
}

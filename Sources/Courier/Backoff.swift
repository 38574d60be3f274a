/// How long to wait before the next attempt: doubling, bounded, the upper half random, so that those who failed together don't come back together.
struct Backoff: Sendable {
    var firstMs: UInt64 = 500
    var longestMs: UInt64 = 30_000

    /// - Parameters:
    ///   - attempt: 1 after the first failure.
    ///   - leastMs: what the peer asked for (`Retry-After`).
    func delayMs(_ attempt: Int, leastMs: UInt64 = 0, using generator: inout some RandomNumberGenerator) -> UInt64 {
        precondition(attempt >= 1)
        let doublings = min(attempt - 1, 32)
        let whole = min(firstMs << UInt64(doublings), longestMs)
        // The remainder's bias is far below a millisecond.
        return max(leastMs, whole / 2 + generator.next() % (whole - whole / 2 + 1))
    }
}

import Shares

/// Finds out whether most requests come from one network, in constant memory: Boyer and Moore's majority vote over one window names a suspect,
/// and the next window counts it.
struct Dominance {
    private var candidate: Owner?
    private var votes = 0
    private var suspect: Owner?
    private var hits = 0
    private var total = 0
    /// Fewer requests in a window say nothing.
    static let fewest = 1_000

    mutating func add(_ payer: Owner) {
        total += 1
        if payer == suspect { hits += 1 }
        if votes == 0 {
            (candidate, votes) = (payer, 1)
        } else {
            votes += payer == candidate ? 1 : -1
        }
    }

    /// Ends a window.
    /// - Returns: whether most of its requests came from one network that is neither a trusted proxy nor a back end.
    mutating func endWindow() -> Bool {
        let isDominated = suspect?.isNetwork == true && total >= Self.fewest && 2 * hits > total
        (suspect, candidate) = (candidate, nil)
        (votes, hits, total) = (0, 0, 0)
        return isDominated
    }
}

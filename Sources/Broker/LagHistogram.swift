/// How late something was, as Prometheus counts it: in buckets, each with what is below its bound.
struct LagHistogram {
    /// Milliseconds; and as the text format has them.
    private static let bounds: [(ms: UInt64, seconds: String)] = [
        (10, "0.01"), (25, "0.025"), (50, "0.05"), (100, "0.1"), (250, "0.25"), (500, "0.5"), (1_000, "1"), (2_500, "2.5"),
        (5_000, "5"), (10_000, "10"), (30_000, "30"), (60_000, "60"),
    ]

    /// By bucket, those of lower buckets not counted; the last has no bound.
    private var counts = [Int](repeating: 0, count: bounds.count + 1)
    private var sumMs: UInt64 = 0

    mutating func add(_ ms: UInt64) {
        counts[Self.bounds.firstIndex { ms <= $0.ms } ?? Self.bounds.count] += 1
        sumMs += ms
    }

    /// The Prometheus text format, rounded as all counts are.
    func exposition(named name: String) -> String {
        var text = ""
        var below = 0
        for (count, bound) in zip(counts, Self.bounds.map(\.seconds) + ["+Inf"]) {
            below += count
            text += "\(name)_bucket{le=\"\(bound)\"} \(Metrics.rounded(below))\n"
        }
        text += "\(name)_sum \(Metrics.rounded(Int(clamping: sumMs / 1_000)))\n"
        return text + "\(name)_count \(Metrics.rounded(below))\n"
    }
}

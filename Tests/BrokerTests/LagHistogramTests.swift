import Testing

@testable import Broker

@Suite struct LagHistogramTests {
    @Test func bucketsHoldWhatIsBelowTheirBound() {
        let metrics = Metrics()
        let end: UInt64 = 1_800_000_000_000
        metrics.notePurges(of: Array(repeating: end, count: 240), at: end + 10)
        metrics.notePurges(of: [end, end + 100, end + 5_000], at: end + 1_000)
        metrics.notePurges(of: Array(repeating: end, count: 20), at: end + 60_001)
        let lines = metrics.exposition(version: "1", gauges: []).split(separator: "\n").map(String.init)
            .filter { $0.contains("mayfly_purge_lag") }
        #expect(metrics.value(.purgesLate) == 20)
        #expect(lines.dropFirst().first == "# TYPE mayfly_purge_lag_seconds histogram")
        // What is early is not late; counts are rounded.
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="0.01"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="0.5"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="60"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="+Inf"} 260"#))
        #expect(lines.suffix(2) == ["mayfly_purge_lag_seconds_sum 1200", "mayfly_purge_lag_seconds_count 260"])
    }
}

import Synchronization
import Testing

@testable import Broker

/// Counts are rounded, so alerts go by the times of the last alarm and the last key step.
@Suite struct MetricsTests {
    private final class Now: Sendable {
        let ms = Mutex<UInt64>(1_800_000_000_999)
    }

    @Test(arguments: [(1, "fewer than 10"), (9, "fewer than 10"), (10, "about 10"), (1_234, "about 1200")])
    func roundedCountsAreInWords(count: Int, words: String) { #expect(Metrics.inWords(count) == words) }

    private func line(_ metrics: Metrics, _ name: String) -> String? {
        metrics.exposition(version: "1", gauges: []).split(separator: "\n").first { $0.hasPrefix(name + " ") }.map(String.init)
    }

    @Test func theLastTimesAreNotRounded() {
        let now = Now()
        let metrics = Metrics(wallMs: { now.ms.withLock(\.self) })
        let (alarm, step) = ("mayfly_last_alarm_timestamp_seconds", "mayfly_last_ratchet_step_timestamp_seconds")
        #expect(line(metrics, alarm) == alarm + " 0" && line(metrics, step) == step + " 0")
        metrics.add(.knocksQueued)
        #expect(line(metrics, alarm) == alarm + " 0" && line(metrics, step) == step + " 0")
        metrics.add(.alarms)
        now.ms.withLock { $0 += 61_000 }
        metrics.add(.ratchetSteps)
        #expect(line(metrics, alarm) == alarm + " 1800000000" && line(metrics, step) == step + " 1800000061")
        // The rounded count does not show the second alarm.
        metrics.add(.alarms)
        #expect(line(metrics, alarm) == alarm + " 1800000061")
        #expect(line(metrics, "mayfly_alarms_total") == "mayfly_alarms_total 5")
    }
}

@Suite struct LagHistogramTests {
    @Test func bucketsCountDelaysUpToTheirBound() {
        let metrics = Metrics()
        let end: UInt64 = 1_800_000_000_000
        metrics.recordPurges(of: Array(repeating: end, count: 240), at: end + 10)
        metrics.recordPurges(of: [end, end + 100, end + 5_000], at: end + 1_000)
        metrics.recordPurges(of: Array(repeating: end, count: 20), at: end + 60_001)
        let lines = metrics.exposition(version: "1", gauges: []).split(separator: "\n").map(String.init)
            .filter { $0.contains("mayfly_purge_lag") }
        #expect(metrics.value(.purgesLate) == 20)
        #expect(lines.dropFirst().first == "# TYPE mayfly_purge_lag_seconds histogram")
        // Early purges have no delay. Counts are rounded.
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="0.01"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="0.5"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="60"} 240"#))
        #expect(lines.contains(#"mayfly_purge_lag_seconds_bucket{le="+Inf"} 260"#))
        #expect(lines.suffix(2) == ["mayfly_purge_lag_seconds_sum 1200", "mayfly_purge_lag_seconds_count 260"])
    }
}

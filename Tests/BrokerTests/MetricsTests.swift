import Synchronization
import Testing

@testable import Broker

/// Counts are rounded, so alerts go by the times of the last alarm and the last key step.
@Suite struct MetricsTests {
    private final class Now: Sendable {
        let ms = Mutex<UInt64>(1_800_000_000_999)
    }

    @Test(arguments: [(1, "fewer than 10"), (9, "fewer than 10"), (10, "about 10"), (1_234, "about 1200")])
    func aRoundedCountIsNotGivenAsTheNumber(count: Int, words: String) { #expect(Metrics.inWords(count) == words) }

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
        // The second is not to be seen in the count.
        metrics.add(.alarms)
        #expect(line(metrics, alarm) == alarm + " 1800000061")
        #expect(line(metrics, "mayfly_alarms_total") == "mayfly_alarms_total 5")
    }
}

import Linux
import Synchronization

/// Counters of this process, for the operator. What they count is never who.
public final class Metrics: Sendable {
    /// Numbered, so that counting is quick: an enum of strings hashes as its string.
    public enum Counter: Int, Sendable, CaseIterable {
        case roomsCreated, roomsAccepted, roomsClosed
        case knocksQueued, knocksThrottled, knocksUnneeded
        case pushesDelivered, pushesFailed, tokensRegistered, tokensPurged
        /// Of those that failed: there is neither key nor certificate for APNs.
        case pushesNotConfigured
        /// More than a second after they were to end.
        case purgesLate
        case refused, ratchetSteps, entriesPublished
        /// Cosignatures that came, requests to witnesses that brought none, and heads without the witnesses' quorum, counted at each try.
        case cosignatures, witnessFailures, quorumMissed
        /// Something an operator must look at: a clock step, a setting that APNs refuses, a log that can't be written.
        case alarms

        /// As Prometheus knows it.
        var name: String {
            switch self {
            case .roomsCreated: "mayfly_rooms_created_total"
            case .roomsAccepted: "mayfly_rooms_accepted_total"
            case .roomsClosed: "mayfly_rooms_closed_total"
            case .knocksQueued: "mayfly_knocks_queued_total"
            case .knocksThrottled: "mayfly_knocks_throttled_total"
            case .knocksUnneeded: "mayfly_knocks_peer_present_total"
            case .pushesDelivered: "mayfly_pushes_delivered_total"
            case .pushesFailed: "mayfly_pushes_failed_total"
            case .pushesNotConfigured: "mayfly_pushes_not_configured_total"
            case .tokensRegistered: "mayfly_tokens_registered_total"
            case .tokensPurged: "mayfly_tokens_purged_total"
            case .purgesLate: "mayfly_purges_late_total"
            case .refused: "mayfly_requests_refused_total"
            case .ratchetSteps: "mayfly_ratchet_steps_total"
            case .entriesPublished: "mayfly_ledger_entries_published_total"
            case .cosignatures: "mayfly_ledger_cosignatures_total"
            case .witnessFailures: "mayfly_ledger_witness_failures_total"
            case .quorumMissed: "mayfly_ledger_quorum_missed_total"
            case .alarms: "mayfly_alarms_total"
            }
        }
    }

    /// Of what alerts ask when it happened last: unix seconds, 0 for not since the start. Times, which say nothing of anyone and are not rounded.
    private struct LastTimes {
        var alarm: UInt64 = 0
        var ratchetStep: UInt64 = 0
    }

    private let counts = Mutex([Int](repeating: 0, count: Counter.allCases.count))
    private let lastTimes = Mutex(LastTimes())
    private let purgeLag = Mutex(LagHistogram())
    private let wallMs: @Sendable () -> UInt64

    public convenience init() { self.init(wallMs: { Clock.wallMs }) }

    init(wallMs: @escaping @Sendable () -> UInt64) { self.wallMs = wallMs }

    public func add(_ counter: Counter, _ count: Int = 1) {
        counts.withLock { $0[counter.rawValue] += count }
        switch counter {
        case .alarms: lastTimes.withLock { $0.alarm = wallMs() / 1_000 }
        case .ratchetSteps: lastTimes.withLock { $0.ratchetStep = wallMs() / 1_000 }
        default: break
        }
    }

    /// Tokens that were to end at these times are gone, durably, at `now`; unix ms.
    public func notePurges(of ends: [UInt64], at now: UInt64) {
        if ends.isEmpty { return }
        purgeLag.withLock { lag in for end in ends { lag.add(now - min(now, end)) } }
        add(.purgesLate, ends.count { now > $0 + 1_000 })
    }

    public func value(_ counter: Counter) -> Int { counts.withLock { $0[counter.rawValue] } }

    /// Rounds down to two significant digits, so that a scrape does not publish exact small movements of a quiet broker:
    /// below 10 only 0 is told from some.
    public static func rounded(_ count: Int) -> Int {
        if count <= 0 { return 0 }
        if count < 10 { return 5 }
        var scale = 1
        while count / scale >= 100 { scale *= 10 }
        return count / scale * scale
    }

    /// Such a count in a sentence, where a number that is none would be taken for one.
    static func inWords(_ count: Int) -> String { count < 10 ? "fewer than 10" : "about \(rounded(count))" }

    /// The Prometheus text format, version 0.0.4.
    /// - Parameter counters: of others, beside these.
    public func exposition(gauges: [(name: String, value: Int)], counters: [(name: String, value: Int)] = []) -> String {
        var text = ""
        for counter in Counter.allCases.map({ ($0.name, value($0)) }) + counters {
            text += "# TYPE \(counter.0) counter\n\(counter.0) \(Self.rounded(counter.1))\n"
        }
        for gauge in gauges {
            text += "# TYPE \(gauge.name) gauge\n\(gauge.name) \(Self.rounded(gauge.value))\n"
        }
        let last = lastTimes.withLock(\.self)
        for (name, seconds) in [("ratchet_step", last.ratchetStep), ("alarm", last.alarm)] {
            let gauge = "mayfly_last_\(name)_timestamp_seconds"
            text += "# TYPE \(gauge) gauge\n\(gauge) \(seconds)\n"
        }
        text += purgeLag.withLock { $0.exposition(named: "mayfly_purge_lag_seconds") }
        return text
    }
}

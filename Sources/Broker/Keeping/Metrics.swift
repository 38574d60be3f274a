import Linux
import Sealing
import Synchronization
import Vocabulary

/// Counters of this process, for the operator. They never identify anyone.
public final class Metrics: Sendable {
    /// Raw values are array indexes, so that counting needs no hashing.
    public enum Counter: Int, Sendable, CaseIterable {
        case roomsCreated, roomsAccepted, roomsClosed
        case knocksQueued, knocksThrottled, knocksUnneeded
        case pushesDelivered, webPushesDelivered, pushesFailed, webPushesFailed
        /// Failed pushes for which this broker has no key or certificate.
        case pushesNotConfigured, webPushesNotConfigured
        case tokensRegistered, tokensPurged
        /// Purges more than a second after the expiry.
        case purgesLate
        case refused, ratchetSteps, entriesPublished
        /// Requests refused and pushes delayed because no locked memory was free.
        case secretShortages
        /// Received cosignatures, requests to witnesses without one, and attempts at a head that missed the witnesses' quorum.
        case cosignatures, witnessFailures, quorumMissed
        /// Conditions that need the operator's attention: a clock step, a setting that APNs refuses, a log that can't be written.
        case alarms

        /// Name and help in Prometheus.
        fileprivate var text: (name: String, help: String) {
            switch self {
            case .roomsCreated: ("mayfly_rooms_created_total", "Rooms created.")
            case .roomsAccepted: ("mayfly_rooms_accepted_total", "Rooms accepted.")
            case .roomsClosed: ("mayfly_rooms_closed_total", "Rooms closed by a member.")
            case .knocksQueued: ("mayfly_knocks_queued_total", "Pushes queued: knocks, and pushes to audiences.")
            case .knocksThrottled:
                ("mayfly_knocks_throttled_total", "Knocks and pushes to audiences that a limit refused or delayed.")
            case .knocksUnneeded:
                ("mayfly_knocks_peer_present_total", "Knocks that were not needed because the peer was present.")
            case .pushesDelivered, .webPushesDelivered: ("mayfly_pushes_delivered_total", "Pushes that the service accepted.")
            case .pushesFailed, .webPushesFailed:
                (
                    "mayfly_pushes_failed_total",
                    "Pushes that the service did not accept. Those that were withdrawn before don't count."
                )
            case .pushesNotConfigured, .webPushesNotConfigured:
                ("mayfly_pushes_not_configured_total", "Failed pushes for which this broker has no key or certificate.")
            case .tokensRegistered:
                ("mayfly_tokens_registered_total", "Registrations of apps with accounts that were sealed, renewals included.")
            case .tokensPurged: ("mayfly_tokens_purged_total", "Tokens purged by expiry, withdrawal, close or deletion.")
            case .purgesLate: ("mayfly_purges_late_total", "Expired tokens that were purged more than a second late.")
            case .refused: ("mayfly_requests_refused_total", "Requests answered with an error of the API.")
            case .ratchetSteps: ("mayfly_ratchet_steps_total", "Steps of the key ratchet.")
            case .secretShortages:
                ("mayfly_secret_shortages_total", "Requests refused and pushes delayed because no locked memory was free.")
            case .entriesPublished: ("mayfly_ledger_entries_published_total", "Entries published in the ledger.")
            case .cosignatures: ("mayfly_ledger_cosignatures_total", "Cosignatures received from witnesses.")
            case .witnessFailures: ("mayfly_ledger_witness_failures_total", "Requests to witnesses that returned no cosignature.")
            case .quorumMissed:
                ("mayfly_ledger_quorum_missed_total", "Attempts at a checkpoint that missed the witnesses' quorum.")
            case .alarms: ("mayfly_alarms_total", "Conditions that need an operator's attention.")
            }
        }

        fileprivate var labels: String {
            switch self {
            case .pushesDelivered, .pushesFailed, .pushesNotConfigured: #"{service="apns"}"#
            case .webPushesDelivered, .webPushesFailed, .webPushesNotConfigured: #"{service="web_push"}"#
            default: ""
            }
        }
    }

    /// The end of a push. Counts for Apple and for all of Web Push. A counter per browser maker could reveal when the only user of a rare browser gets
    /// pushes. Pushes to an unknown service count as Apple's.
    enum PushEnd {
        case delivered, failed, notConfigured

        func counter(of destination: Destination) -> Counter {
            let isWebPush =
                switch destination {
                case .apns, .other: false
                case .webPush: true
                }
            return switch self {
            case .delivered: isWebPush ? .webPushesDelivered : .pushesDelivered
            case .failed: isWebPush ? .webPushesFailed : .pushesFailed
            case .notConfigured: isWebPush ? .webPushesNotConfigured : .pushesNotConfigured
            }
        }
    }

    /// A metric whose value is read elsewhere.
    public struct Sample: Sendable {
        let name: String
        let help: String
        let value: Int
        /// True for a number that says nothing about callers, so it isn't rounded.
        let isExact: Bool

        public init(_ name: String, _ help: String, _ value: Int, isExact: Bool = false) {
            self.name = name
            self.help = help
            self.value = value
            self.isExact = isExact
        }
    }

    /// The last times of conditions with alerts, unix seconds. 0 for none since the start. They identify nobody and are not rounded.
    private struct LastTimes {
        var alarm: UInt64 = 0
        var ratchetStep: UInt64 = 0
    }

    private let counts = Mutex([Int](repeating: 0, count: Counter.allCases.count))
    private let refusals = Mutex<[PushReason: Int]>([:])
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

    /// Records that tokens with these expiries were durably purged at `now`. Times are unix ms.
    public func recordPurges(of ends: [UInt64], at now: UInt64) {
        if ends.isEmpty { return }
        purgeLag.withLock { lag in for end in ends { lag.add(now - min(now, end)) } }
        add(.purgesLate, ends.count { now > $0 + 1_000 })
    }

    /// Counts a push that its service refused for good.
    func addRefusal(_ reason: PushReason) { refusals.withLock { $0[reason, default: 0] += 1 } }

    public func value(_ counter: Counter) -> Int { counts.withLock { $0[counter.rawValue] } }

    /// Rounds down to two significant digits, and 1 to 9 to 5. So scrapes do not show single events on a quiet broker.
    public static func rounded(_ count: Int) -> Int {
        if count <= 0 { return 0 }
        if count < 10 { return 5 }
        var scale = 1
        while count / scale >= 100 { scale *= 10 }
        return count / scale * scale
    }

    /// A rounded count in words, for a sentence in which a rounded number would look exact.
    static func inWords(_ count: Int) -> String { count < 10 ? "fewer than 10" : "about \(rounded(count))" }

    /// The Prometheus text format, version 0.0.4.
    /// - Parameter version: the program's.
    public func exposition(version: String, gauges: [Sample], counters: [Sample] = []) -> String {
        let build = "mayfly_build_info"
        var text = Self.head(build, "gauge", "The program's version; the value is always 1.")
        text += "\(build){version=\"\(version)\"} 1\n"
        var last = ""
        for counter in Counter.allCases {
            let (name, help) = counter.text
            // Counters of one name are neighbors.
            if name != last { text += Self.head(name, "counter", help) }
            text += "\(name)\(counter.labels) \(Self.rounded(value(counter)))\n"
            last = name
        }
        for sample in counters {
            text += Self.head(sample.name, "counter", sample.help) + "\(sample.name) \(Self.rounded(sample.value))\n"
        }
        text += refusalLines
        for sample in gauges {
            let value = sample.isExact ? sample.value : Self.rounded(sample.value)
            text += Self.head(sample.name, "gauge", sample.help) + "\(sample.name) \(value)\n"
        }
        let lastTimes = lastTimes.withLock(\.self)
        let times = [
            Sample(
                "mayfly_last_ratchet_step_timestamp_seconds",
                "Time of the last key step, unix seconds; 0 for none since the start.",
                Int(clamping: lastTimes.ratchetStep)),
            Sample(
                "mayfly_last_alarm_timestamp_seconds", "Time of the last alarm, unix seconds; 0 for none since the start.",
                Int(clamping: lastTimes.alarm)),
        ]
        for sample in times { text += Self.head(sample.name, "gauge", sample.help) + "\(sample.name) \(sample.value)\n" }
        let lag = "mayfly_purge_lag_seconds"
        text += Self.head(lag, "histogram", "Time from a token's expiry to its durable purge.")
        return text + purgeLag.withLock { $0.exposition(named: lag) }
    }

    static let refused = "mayfly_pushes_refused_total"

    /// All of Apple's reasons, so that an alert can see one leave 0.
    private var refusalLines: String {
        let counts = refusals.withLock(\.self)
        return PushReason.allCases.filter { $0.status != nil || $0 == .other }.reduce(
            into: Self.head(Self.refused, "counter", "Pushes that their service refused for good, by reason.")
        ) { $0 += "\(Self.refused){reason=\"\($1.rawValue)\"} \(Self.rounded(counts[$1] ?? 0))\n" }
    }

    /// The two header lines of a metric.
    public static func head(_ name: String, _ type: String, _ help: String) -> String {
        "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }
}

/// A Prometheus histogram of delays.
struct LagHistogram {
    /// The upper bounds of the buckets, in milliseconds and in the text format.
    private static let bounds: [(ms: UInt64, seconds: String)] = [
        (10, "0.01"), (25, "0.025"), (50, "0.05"), (100, "0.1"), (250, "0.25"), (500, "0.5"), (1_000, "1"), (2_500, "2.5"),
        (5_000, "5"), (10_000, "10"), (30_000, "30"), (60_000, "60"),
    ]

    /// The count of each bucket, without lower buckets. The last bucket has no bound.
    private var counts = [Int](repeating: 0, count: bounds.count + 1)
    private var sumMs: UInt64 = 0

    mutating func add(_ ms: UInt64) {
        counts[Self.bounds.firstIndex { ms <= $0.ms } ?? Self.bounds.count] += 1
        sumMs += ms
    }

    /// The Prometheus text format, with rounded counts.
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

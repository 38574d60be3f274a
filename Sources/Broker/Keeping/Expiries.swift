public import EventLoop
import Linux
import Synchronization
import Vocabulary

/// Something that the broker works with and that expires, e.g. a certificate.
public struct Expiry: Equatable, Sendable {
    /// The certificate's use, e.g. `node-certificate`. It becomes a metric's label, so it is never a path, a subject or a host.
    public let use: String
    /// Unix seconds.
    public let endS: UInt64
    /// The subject of a sentence, e.g. `the certificate of --node-certificate`.
    private let name: String
    /// The remedy, for the operator.
    private let remedy: String

    public init(_ use: String, _ name: String, endS: UInt64, remedy: String) {
        (self.use, self.name, self.endS, self.remedy) = (use, name, endS, remedy)
    }

    /// When the operator is warned, and when alarmed, in seconds before the expiry.
    static let (warnS, alarmS): (UInt64, UInt64) = (30 * dayS, 7 * dayS)
    private static let dayS: UInt64 = 86_400

    /// Returns nil while there is time.
    /// - Parameter nowS: unix seconds.
    public func finding(nowS: UInt64) -> (level: Logger.Level, hasExpired: Bool, text: String)? {
        guard endS < nowS + Self.warnS else { return nil }
        let day = Timestamp.text(endS * 1_000).prefix(10)
        guard endS > nowS else { return (.error, true, "\(name) expired on \(day). \(remedy)") }
        let days = (endS - nowS) / Self.dayS
        let left = days == 0 ? "within a day" : days == 1 ? "in a day" : "in \(days) days"
        return (endS < nowS + Self.alarmS ? .error : .warning, false, "\(name) expires \(left), on \(day). \(remedy)")
    }
}

/// Reports what expires soon: as a metric, and once a day in the log.
public final class Expiries: Sendable {
    private struct State {
        var sources: [String: [Expiry]] = [:]
        var reportedS: UInt64 = 0
    }

    private let state = Mutex(State())
    private let metrics: Metrics
    private let log: Logger

    private static let roundMs: UInt64 = 600_000
    private static let dayS: UInt64 = 86_400

    public init(metrics: Metrics, log: Logger) { (self.metrics, self.log) = (metrics, log) }

    /// Replaces what one part of the broker has in use, after a start or a reload. A change makes the next report due.
    public func replace(_ source: String, by expiries: [Expiry]) {
        state.withLock { state in
            guard state.sources.updateValue(expiries, forKey: source) != expiries else { return }
            state.reportedS = 0
        }
    }

    /// The earliest expiry of each use, by use.
    public var all: [Expiry] {
        let found = state.withLock { $0.sources.values.flatMap(\.self) }
        return Dictionary(grouping: found, by: \.use).values.compactMap { $0.min { $0.endS < $1.endS } }.sorted {
            $0.use < $1.use
        }
    }

    /// Reports once a day until the task is cancelled.
    /// - Parameter update: called before each report, for what can change without a reload.
    public func run(on loop: EventLoop, update: @Sendable () -> Void) async {
        while !Task.isCancelled {
            update()
            report(nowS: Clock.wallMs / 1_000)
            do { try await loop.sleep(Self.roundMs) } catch { return }
        }
    }

    /// Logs what expires soon, unless that was done less than a day ago.
    func report(nowS: UInt64) {
        let isDue = state.withLock { state in
            // A clock that was set back must not silence the reports.
            guard state.reportedS > nowS || nowS - state.reportedS >= Self.dayS else { return false }
            state.reportedS = nowS
            return true
        }
        guard isDue else { return }
        for expiry in state.withLock({ $0.sources.values.flatMap(\.self) }) {
            guard let finding = expiry.finding(nowS: nowS) else { continue }
            if finding.level == .error {
                metrics.add(.alarms)
                log.error("certificates: \(finding.text)")
            } else {
                log.warning("certificates: \(finding.text)")
            }
        }
    }

    /// The metric in Prometheus' text format.
    public var exposition: String {
        let name = "mayfly_certificate_expiry_timestamp_seconds"
        let help = "When a certificate in use expires, or the last of the authorities of one setting, unix seconds, by use."
        return all.reduce(Metrics.head(name, "gauge", help)) { $0 + "\(name){use=\"\($1.use)\"} \($1.endS)\n" }
    }
}

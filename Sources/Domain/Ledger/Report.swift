public import Policy
import Vocabulary

/// The figures of a verified log.
public struct Report: Sendable, Equatable, CustomStringConvertible {
    public var origin = ""
    public var size: UInt64 = 0
    /// `at` of the first and last entry, unix ms. Nil for an empty log.
    public var fromMs: UInt64?
    public var toMs: UInt64?
    /// Tokens sealed in this log.
    public var sealed: UInt64 = 0
    /// Tokens carried over from the previous log.
    public var carried: UInt64 = 0
    /// Tokens with a published seal and no published purge, in open buckets.
    public var live: UInt64 = 0
    public var purged: UInt64 = 0
    public var opened: UInt64 = 0
    public var delivered: UInt64 = 0
    public var failed: UInt64 = 0
    /// Pushes without an outcome yet.
    public var pending: UInt64 = 0
    public var bucketsClosed: UInt64 = 0
    /// The total time without a running broker.
    public var gapSeconds: UInt64 = 0
    /// The timing from the log's policy. Nil before its first start.
    public var timing: LedgerTiming?
    /// The origin of the next log, if this one is closed.
    public var next: String?
    /// The number of older checkpoints that the log continues.
    public var compared = 0
    /// True if the verifier checked that no id repeats.
    public var isUnique = false
    /// The number of the policy's witnesses with valid cosignatures. Nil without a policy.
    public var cosignatures: Int?
    /// True if an earlier checkpoint with entries, or required witnesses, were compared.
    public var isCompared = false

    public init() {}

    /// A verdict on a log without a failure.
    public enum Verdict: String, Sendable {
        /// The log continues an earlier head.
        case good
        /// Nothing earlier was compared, so a log that was rewritten before looks the same.
        case consistent

        /// The first words of a line about the log.
        public var words: String { self == .good ? "good" : "consistent, not compared" }
    }

    public var verdict: Verdict { isCompared ? .good : .consistent }

    /// One line in a stable format.
    public var description: String {
        let span = fromMs.flatMap { from in toMs.map { "\(Timestamp.text(from)) to \(Timestamp.text($0))" } } ?? "empty"
        return
            "\(origin): \(Self.count(size, "entry", "entries")), \(span); \(sealed) sealed, \(live) live, \(purged) purged; "
            + "\(opened) opened, \(delivered) delivered, \(failed) failed, \(pending) pending; "
            + "\(Self.count(bucketsClosed, "day's total balances", "days' totals balance")); \(gapSeconds) s without a broker; "
            + Self.count(UInt64(compared), "older checkpoint holds", "older checkpoints hold")
            + (timing.map(Self.text) ?? "") + (isUnique ? "; no id twice" : "") + (next.map { "; closed, \($0) follows" } ?? "")
            + (cosignatures.map { "; " + Self.count(UInt64($0), "cosignature holds", "cosignatures hold") } ?? "")
    }

    /// Small batches and short days hide little, so any timing but the default is shown.
    private static func text(_ timing: LedgerTiming) -> String {
        guard timing != .standard else { return "" }
        return "; trial timing: an hour lasts \(timing.hourSeconds) s, a day \(timing.daySeconds) s, and "
            + "\(count(UInt64(timing.batchSeals), "seal makes", "seals make")) a batch"
    }

    private static func count(_ count: UInt64, _ one: String, _ many: String) -> String { "\(count) \(count == 1 ? one : many)" }
}

// The age of a log by the auditor's clock.
extension Report {
    /// Returns the seconds from the last entry to `now` (unix seconds). Negative if the entry is in the future. Returns nil for an empty log.
    public func age(now: UInt64) -> Int64? { toMs.map { Int64(clamping: now) - Int64(clamping: $0 / 1000) } }

    /// The age as text.
    public func ageText(now: UInt64) -> String {
        guard let age = age(now: now) else { return "no entry yet" }
        let text = Self.text(age.magnitude)
        return age < 0 ? "last entry dated \(text) ahead of this clock" : "last entry \(text) old"
    }

    /// - Throws: `.stale` if the last entry is more than `limit` seconds before or after `now`, or if there is none.
    public func checkAge(limit: UInt64, now: UInt64) throws(VerificationFailure) {
        if let age = age(now: now), age.magnitude <= limit { return }
        throw VerificationFailure(
            .stale,
            "\(ageText(now: now)), where \(Self.text(limit)) is allowed: no broker writes this log now, this copy lags, or a clock is "
                + "wrong")
    }

    /// Formats a duration with its two largest units.
    private static func text(_ seconds: UInt64) -> String {
        let units: [(UInt64, String)] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
        guard let first = units.firstIndex(where: { seconds >= $0.0 }) else { return "0 s" }
        var (rest, parts): (UInt64, [String]) = (seconds, [])
        for (length, name) in units[first...].prefix(2) {
            if rest >= length { parts.append("\(rest / length) \(name)") }
            rest %= length
        }
        return parts.joined(separator: " ")
    }
}

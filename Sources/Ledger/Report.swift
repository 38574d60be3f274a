public import Policy
import Vocabulary

/// What a verified log shows.
public struct Report: Sendable, Equatable, CustomStringConvertible {
    public var origin = ""
    public var size: UInt64 = 0
    /// `at` of the first and the last entry, unix ms; nil for an empty log.
    public var fromMs: UInt64?
    public var toMs: UInt64?
    /// Tokens sealed in this log.
    public var sealed: UInt64 = 0
    /// Taken over from the log before.
    public var carried: UInt64 = 0
    /// Published seals of open buckets without a published purge.
    public var live: UInt64 = 0
    public var purged: UInt64 = 0
    public var opened: UInt64 = 0
    public var delivered: UInt64 = 0
    public var failed: UInt64 = 0
    /// Opened and without an outcome yet.
    public var pending: UInt64 = 0
    public var bucketsClosed: UInt64 = 0
    /// How long no broker ran, in all.
    public var gapSeconds: UInt64 = 0
    /// Hour, day and batch of the log, as its policy has them; nil before its first start.
    public var timing: LedgerTiming?
    /// The origin of the log that follows, if this one is closed.
    public var next: String?
    /// Older checkpoints that the log continues.
    public var compared = 0
    /// True if the verifier compared each id with all others.
    public var isUnique = false
    /// Witnesses of the policy whose cosignatures hold; nil when no policy was given.
    public var cosignatures: Int?

    public init() {}

    /// One line whose form is stable.
    public var description: String {
        let span = fromMs.flatMap { from in toMs.map { "\(Timestamp.text(from)) to \(Timestamp.text($0))" } } ?? "empty"
        return
            "\(origin): \(size) entries, \(span); \(sealed) sealed, \(live) live, \(purged) purged; "
            + "\(opened) opened, \(delivered) delivered, \(failed) failed, \(pending) pending; "
            + "\(bucketsClosed) buckets closed; \(gapSeconds) s of gaps; \(compared) older checkpoints hold"
            + (timing.map(Self.text) ?? "") + (isUnique ? "; no id twice" : "") + (next.map { "; closed, \($0) follows" } ?? "")
            + (cosignatures.map { "; \($0) cosignatures hold" } ?? "")
    }

    /// Small batches and short days hide little, so a log that has other ones than the default says so.
    private static func text(_ timing: LedgerTiming) -> String {
        guard timing != .standard else { return "" }
        return "; its hour is \(timing.hourSeconds) s, its day \(timing.daySeconds) s, a batch \(timing.batchSeals) seals"
    }
}

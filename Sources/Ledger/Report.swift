/// What a verified log shows.
public struct Report: Sendable, Equatable, CustomStringConvertible {
    public var origin = ""
    public var size: UInt64 = 0
    /// `at` of the first and the last entry, unix ms; nil for an empty log.
    public var fromMs: UInt64?
    public var toMs: UInt64?
    /// Refs, by what became of them: `sealed` is `live` and `purged` together.
    public var sealed: UInt64 = 0
    public var live: UInt64 = 0
    public var purged: UInt64 = 0
    /// Of the purged: later than the rule allows, because no broker ran.
    public var excused: UInt64 = 0
    public var opened: UInt64 = 0
    public var delivered: UInt64 = 0
    public var failed: UInt64 = 0
    /// Older checkpoints that the log continues.
    public var compared = 0
    /// Witnesses of the policy whose cosignatures hold; nil when no policy was given.
    public var cosignatures: Int?

    public init() {}

    /// Opened and without an outcome yet.
    public var pending: UInt64 { opened - delivered - failed }

    /// One line whose form is stable.
    public var description: String {
        let span = fromMs.flatMap { from in toMs.map { "\(Timestamp.text(from)) to \(Timestamp.text($0))" } } ?? "empty"
        return
            "\(origin): \(size) entries, \(span); \(sealed) sealed, \(live) live, \(purged) purged (\(excused) late and excused); "
            + "\(opened) opened, \(delivered) delivered, \(failed) failed; \(compared) older checkpoints hold"
            + (cosignatures.map { "; \($0) cosignatures hold" } ?? "")
    }
}

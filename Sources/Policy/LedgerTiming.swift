/// When the public log publishes seals and purges: the `ledger` member of a rooms policy.
public struct LedgerTiming: Sendable, Equatable {
    /// A batch may be published at each whole multiple of this, in unix time.
    public let hourSeconds: UInt64
    /// Buckets close at each whole multiple of this, and a batch is always published then. A multiple of `hourSeconds`.
    public let daySeconds: UInt64
    /// The fewest seals of a batch that no bucket closes with.
    public let batchSeals: Int

    /// The timing of a policy without the member.
    public static let standard = LedgerTiming(hourSeconds: 3_600, daySeconds: 86_400, batchSeals: 64)

    public init(hourSeconds: UInt64, daySeconds: UInt64, batchSeals: Int) {
        self.hourSeconds = hourSeconds
        self.daySeconds = daySeconds
        self.batchSeals = batchSeals
    }

    /// The end of the day in which something expires. Unix ms.
    public func untilMs(expiryMs: UInt64) -> UInt64 {
        let day = daySeconds * 1_000
        return (expiryMs / day + 1) * day
    }
}

/// Reads `$.ledger` of a policy for rooms.
struct LedgerTimingReader {
    let findings: Findings

    func read(_ object: ObjectReader, of kind: Policy.Kind) -> LedgerTiming? {
        guard object.has("ledger") else { return .standard }
        let path = object.path.member("ledger")
        guard kind == .rooms else {
            findings.add(
                path, "is in a policy that is not for rooms",
                why: "a broker has one log, and the policy for rooms sets its timing",
                do: "move it to the policy for rooms")
            return nil
        }
        guard let timing = object.object("ledger", known: ["hourSeconds", "daySeconds", "batchSeals"]) else { return nil }
        let hour = timing.int(
            "hourSeconds", in: 1...3_600, why: "an owner waits for the next batch to prove a purge, at most an hour")
        let day = timing.int(
            "daySeconds", in: 1...86_400, why: "a bucket is checked at the end of its day, so a day is the limit")
        let seals = timing.int(
            "batchSeals", in: 1...10_000, why: "a larger number would only delay more batches until midnight")
        guard let hour, let day, let seals else { return nil }
        guard day.isMultiple(of: hour) else {
            findings.add(
                path.member("daySeconds"), "is not a multiple of hourSeconds", why: "a day ends with one of its batches",
                do: "make it a multiple of \(hour)")
            return nil
        }
        return LedgerTiming(hourSeconds: UInt64(hour), daySeconds: UInt64(day), batchSeals: seals)
    }
}

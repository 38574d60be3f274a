import JSON

/// When the public log publishes seals and purges. This is the `ledger` member of a rooms policy.
public struct LedgerTiming: Sendable, Equatable {
    /// A batch may be published at each multiple of this in unix time.
    public let hourSeconds: UInt64
    /// Buckets close at each multiple of this, and a batch is always published then. A multiple of `hourSeconds`.
    public let daySeconds: UInt64
    /// The least number of seals in a batch that closes no bucket.
    public let batchSeals: Int

    /// The default, for a policy without the member.
    public static let standard = LedgerTiming(hourSeconds: 3_600, daySeconds: 86_400, batchSeals: 64)

    public init(hourSeconds: UInt64, daySeconds: UInt64, batchSeals: Int) {
        self.hourSeconds = hourSeconds
        self.daySeconds = daySeconds
        self.batchSeals = batchSeals
    }

    /// Returns the end of the day of an expiry, unix ms.
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
        let rows = LedgerTiming.rows
        guard let timing = object.object("ledger", known: LimitValues.names(rows)) else { return nil }
        let values = LimitValues(timing, rows)
        guard values.isComplete(rows) else { return nil }
        let (hour, day) = (values["hourSeconds"], values["daySeconds"])
        guard day.isMultiple(of: hour) else {
            findings.add(
                path.member("daySeconds"), "is not a multiple of hourSeconds", why: "a day ends with one of its batches",
                do: "make it a multiple of \(hour)")
            return nil
        }
        return LedgerTiming(hourSeconds: UInt64(hour), daySeconds: UInt64(day), batchSeals: values["batchSeals"])
    }
}

/// The parts of a published policy that a verifier checks. This reader is less strict than `Policy`, since the rules of `Policy` may change.
/// `audit/log-format.md` has the grammar, which all verifiers share.
public struct PublishedRules: Sendable, Equatable {
    /// The largest published policy in bytes.
    static let maximumCount = 1 << 20
    /// The longest life of anything sealed under the policy.
    public let longestLifeSeconds: Int
    /// The names of the templates.
    public let templates: [String]
    /// The member `ledger`, or the default. Nil if the member is malformed.
    public let timing: LedgerTiming?

    private static let lives = ["deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds"]
    private static let lifeLimit = 1 << 53

    /// Returns nil if `bytes` aren't a policy.
    public init?(_ bytes: [UInt8]) {
        guard bytes.count <= Self.maximumCount, let value = try? JSONValue(bytes.span, deepest: Policy.deepest),
            case .object = value, Self.hasDistinctNames(value)
        else { return nil }
        var longest = 0
        func add(_ life: JSONValue) -> Bool {
            guard let seconds = life.int, (1..<Self.lifeLimit).contains(seconds) else { return false }
            longest = max(longest, seconds)
            return true
        }
        if let limits = value.member("limits") {
            guard case .object = limits else { return nil }
            if let room = limits.member("roomLifeSeconds") {
                guard let most = room.member("max"), add(most) else { return nil }
            }
            for life in Self.lives.compactMap(limits.member) where !add(life) { return nil }
        }
        var names: [String] = []
        if let templates = value.member("templates") {
            guard case .object(let members) = templates else { return nil }
            names = members.map(\.key)
        }
        timing = value.member("ledger").map(Self.timing) ?? .standard
        (longestLifeSeconds, templates) = (longest, names)
    }

    /// JSON readers differ in which of two members with one name they use.
    private static func hasDistinctNames(_ value: JSONValue) -> Bool {
        switch value {
        case .object(let members):
            // Compare bytes: `String` ignores different encodings of a character.
            Set(members.map { Array($0.key.utf8) }).count == members.count && members.allSatisfy { hasDistinctNames($0.value) }
        case .array(let items): items.allSatisfy(hasDistinctNames)
        case .null, .bool, .number, .string: true
        }
    }

    private static func timing(_ value: JSONValue) -> LedgerTiming? {
        guard let hour = value.member("hourSeconds")?.int, let day = value.member("daySeconds")?.int,
            let seals = value.member("batchSeals")?.int, (1...3_600).contains(hour), (1...86_400).contains(day),
            day % hour == 0, (1...10_000).contains(seals)
        else { return nil }
        return LedgerTiming(hourSeconds: UInt64(hour), daySeconds: UInt64(day), batchSeals: seals)
    }
}

extension JSONValue {
    /// Returns nil if there is no member with that name, or this is no object.
    fileprivate func member(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.key == name }?.value
    }
}

import JSON

/// The parts of a published policy that a verifier checks. This reader is less strict than `Policy`, whose rules may change.
public struct PublishedRules: Sendable, Equatable {
    /// The longest that anything sealed under the policy may live.
    public let longestLifeSeconds: Int
    /// Names of templates.
    public let templates: [String]
    /// The member `ledger`, or the default. Nil if the member is malformed.
    public let timing: LedgerTiming?

    private static let lives = ["deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds"]
    private static let lifeLimit = 1 << 53

    /// Returns nil if `bytes` aren't a policy.
    public init?(_ bytes: [UInt8]) {
        guard let value = try? JSONValue(bytes.span, deepest: Policy.deepest), case .object = value else { return nil }
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

    private static func timing(_ value: JSONValue) -> LedgerTiming? {
        guard let hour = value.member("hourSeconds")?.int, let day = value.member("daySeconds")?.int,
            let seals = value.member("batchSeals")?.int, (1...3_600).contains(hour), (1...86_400).contains(day),
            day % hour == 0, (1...10_000).contains(seals)
        else { return nil }
        return LedgerTiming(hourSeconds: UInt64(hour), daySeconds: UInt64(day), batchSeals: seals)
    }
}

extension JSONValue {
    /// The last member of that name: what other readers of JSON return for a repeated key. Nil if this is no object or has none.
    fileprivate func member(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.last { $0.key == name }?.value
    }
}

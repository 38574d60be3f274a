/// The policies in force: one for rooms, at most one of each other kind, and each template in one of them.
///
/// What they must have between them is found out once, here, so that nobody else has to ask for it.
public struct Policies: Sendable {
    /// By kind, that for rooms first.
    public let all: [Policy]
    public let rooms: Limits
    /// The public log's timing, from the policy for rooms.
    public let ledger: LedgerTiming
    /// Of all of them, by name.
    public let templates: [String: Template]

    /// - Throws: `PoliciesError` when one of them is missing, stands against another, or lacks what the broker sends.
    public init(_ given: [Policy]) throws(PoliciesError) {
        var ofKind: [Policy.Kind: Policy] = [:]
        var owners: [String: Policy] = [:]
        var templates: [String: Template] = [:]
        for policy in given {
            if let other = ofKind.updateValue(policy, forKey: policy.kind) {
                throw .kindTwice(policy.kind, other.name, policy.name)
            }
        }
        let all = Policy.Kind.allCases.compactMap { ofKind[$0] }
        for policy in all {
            if all.contains(where: { $0.kind != policy.kind && $0.name == policy.name }) { throw .nameTwice(policy.name) }
            for template in policy.templates.values.sorted(by: { $0.name < $1.name }) {
                if let other = owners.updateValue(policy, forKey: template.name) {
                    throw .templateTwice(template.name, other.name, policy.name)
                }
                templates[template.name] = template
            }
            if let misfit = policy.misfit() { throw misfit }
        }
        guard let rooms = ofKind[.rooms], case .rooms(let limits) = rooms.limits else { throw .noRooms }
        self.all = all
        self.rooms = limits
        ledger = rooms.ledger
        self.templates = templates
    }

    /// The policy for one kind of app with accounts, with its limits; nil where none is in force.
    public func audience(_ kind: Policy.Kind) -> (policy: Policy, limits: AudienceLimits)? {
        guard let policy = all.first(where: { $0.kind == kind }), case .audience(let limits) = policy.limits else { return nil }
        return (policy, limits)
    }

    /// The one template of that name, nil if no policy in force has it.
    public func template(_ name: String) -> Template? { templates[name] }

    /// The longest that any job may try to reach Apple.
    public var jobDeadlineMs: UInt64 { all.map(\.limits.jobs.deadlineMs).max() ?? 0 }

    /// The longest life of anything that is sealed under any of them: how far ahead keys must reach.
    public var longestLifeSeconds: Int { all.map(\.limits.longestLifeSeconds).max() ?? 0 }
}

/// Why policies can't be in force together.
public enum PoliciesError: Error, Sendable, Equatable, CustomStringConvertible {
    case noRooms
    case kindTwice(Policy.Kind, String, String)
    case nameTwice(String)
    case templateTwice(String, String, String)
    /// The policy's name, then what it lacks that its kind's built-in one has.
    case misfit(String, Policy.Kind, String)

    public var description: String {
        switch self {
        case .noRooms: "there is no policy for rooms. Name one, or the built-in rooms"
        case .kindTwice(let kind, let first, let second):
            "the policies \(first) and \(second) are both of kind \(kind.rawValue), but only one of a kind can be in force. Remove one"
        case .nameTwice(let name):
            "two policies are named \(name), but the log identifies policies by name. Rename one"
        case .templateTwice(let template, let first, let second):
            "the policies \(first) and \(second) both have a template \(template), but the log identifies pushes by template. Rename one"
        case .misfit(let policy, let kind, let what):
            "the policy \(policy) has no \(what), which the broker needs. Copy it from the built-in policy \(kind.rawValue)"
        }
    }
}

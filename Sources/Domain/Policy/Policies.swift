import Vocabulary

/// The policies in force: one for rooms, at most one of each other kind. Template names are unique. The initializer checks all of this.
public struct Policies: Sendable {
    /// By kind, the one for rooms first.
    public let all: [Policy]
    public let rooms: Limits
    /// The public log's timing, from the policy for rooms.
    public let ledger: LedgerTiming
    /// The templates of all policies, by name.
    public let templates: [String: Template]

    /// - Throws: `PoliciesError` if one is missing, conflicts with another, or lacks a template that the broker needs.
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
            if let error = policy.incompatibility() { throw error }
        }
        guard let rooms = ofKind[.rooms], case .rooms(let limits) = rooms.limits else { throw .noRooms }
        self.all = all
        self.rooms = limits
        ledger = rooms.ledger
        self.templates = templates
    }

    /// Returns the policy for a kind of app with accounts, with its limits. Returns nil if none is in force.
    public func audience(_ kind: Policy.Kind) -> (policy: Policy, limits: AudienceLimits)? {
        guard let policy = all.first(where: { $0.kind == kind }), case .audience(let limits) = policy.limits else { return nil }
        return (policy, limits)
    }

    /// Returns the template of that name, or nil if there is none.
    public func template(_ name: String) -> Template? { templates[name] }

    /// The longest time limit for sending a push.
    public var jobDeadlineMs: UInt64 { all.map(\.limits.jobs.deadlineMs).max() ?? 0 }

    /// The longest life of anything sealed. Keys must reach that far ahead.
    public var longestLifeSeconds: Int { all.map(\.limits.longestLifeSeconds).max() ?? 0 }
}

/// Why policies can't be in force together.
public enum PoliciesError: Error, Sendable, Equatable, CustomStringConvertible {
    case noRooms
    case kindTwice(Policy.Kind, String, String)
    case nameTwice(String)
    case templateTwice(String, String, String)
    /// The policy's name, its kind, and what it lacks compared with the kind's built-in policy.
    case incompatible(String, Policy.Kind, String)

    public var description: String {
        switch self {
        case .noRooms: "there is no policy for rooms. Name one, or the built-in rooms"
        case .kindTwice(let kind, let first, let second):
            "the policies \(first) and \(second) are both of kind \(kind.rawValue), but only one of a kind can be in force. Remove one"
        case .nameTwice(let name):
            "two policies are named \(name), but the log identifies policies by name. Rename one"
        case .templateTwice(let template, let first, let second):
            "the policies \(first) and \(second) both have a template \(template), but the log identifies pushes by template. Rename one"
        case .incompatible(let policy, let kind, let what):
            "the policy \(policy) has no \(what), which the broker needs. Copy it from the built-in policy \(kind.rawValue)"
        }
    }
}

extension Policy {
    /// The policies in the binary, byte for byte the files in `policies/`. `trial` is derived from `rooms`.
    public static let builtInNames = Kind.allCases.map(\.rawValue) + [trial]
    private static let trial = "trial"

    /// Returns a built-in policy, or nil if none has that name.
    /// - Throws: `PolicyError` if the policy is invalid. A test checks that none is.
    public static func builtIn(_ name: String) throws(PolicyError) -> Policy? {
        guard let bytes = builtInBytes(name) else { return nil }
        return try Policy(bytes)
    }

    /// Returns the exact bytes of a built-in policy, or nil if none has that name.
    public static func builtInBytes(_ name: String) -> [UInt8]? {
        if name == trial { return trialBytes }
        return switch Kind(rawValue: name) {
        case .rooms: PackageResources.rooms_json
        case .companion: PackageResources.companion_json
        case .monitor: PackageResources.monitor_json
        case .calls: PackageResources.calls_json
        case nil: nil
        }
    }

    /// The policy for rooms with hours and days of ten seconds in the log, for `mayfly demo`.
    private static var trialBytes: [UInt8] {
        let published = #""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#
        let name = #""name": "rooms""#
        let rooms = String(decoding: PackageResources.rooms_json, as: UTF8.self)
        precondition(rooms.contains(published) && rooms.contains(name), "policies/rooms.json is spelled in another way")
        return Array(
            rooms
                .replacing(published, with: #""hourSeconds": 10, "daySeconds": 10, "batchSeals": 1"#)
                .replacing(name, with: #""name": "trial""#).utf8)
    }
}

// A custom policy needs all templates of the built-in one of its kind, since the broker sends them by name. Texts, sounds, priorities and lives
// can differ, and more templates are allowed.
extension Policy {
    /// Returns what the broker needs and this policy lacks. Returns nil if it has everything.
    public func incompatibility() -> PoliciesError? {
        guard let model = try? Policy.builtIn(kind.rawValue) else { return nil }
        for wanted in model.templates.values.sorted(by: { $0.name < $1.name })
        where templates[wanted.name]?.serves(as: wanted) != true {
            return .incompatible(name, kind, "template \(wanted.name) \(wanted.shape)")
        }
        if case .audience(let limits) = limits, let answerable = limits.approvals?.answerableMs,
            templates["approval_request"]?.times.contains(where: { $0.seconds.secondsInMs != answerable }) == true
        {
            return .incompatible(name, kind, "template approval_request whose times are approvalSeconds, \(answerable / 1_000)")
        }
        return nil
    }
}

extension Template {
    /// Returns true if this template accepts all fields of `model` and is for the same kind of token.
    fileprivate func serves(as model: Template) -> Bool {
        pushType.token == model.pushType.token && fields.count == model.fields.count
            && zip(fields, model.fields).allSatisfy { $0.name == $1.name && $0.kind.takesAll(of: $1.kind) }
    }

    fileprivate var shape: String {
        let sent = "sent to \(pushType.token) tokens, "
        guard !fields.isEmpty else { return sent + "without fields" }
        return sent + "with the fields " + fields.map { "\($0.name) (\($0.kind.words))" }.joined(separator: ", ")
    }
}

extension Field.Kind {
    fileprivate func takesAll(of model: Field.Kind) -> Bool {
        switch (self, model) {
        case (.handle, .handle), (.flag, .flag): true
        case (.oneOf(let words), .oneOf(let wanted)): wanted.allSatisfy { words.contains($0) }
        case (.number(let range, let step), .number(let wanted, let wantedStep)):
            range.contains(wanted.lowerBound) && range.contains(wanted.upperBound) && wantedStep % step == 0
                && (wanted.lowerBound - range.lowerBound) % step == 0
        default: false
        }
    }
}

extension PushType {
    /// The kind of token, as in the log.
    fileprivate var token: String {
        switch self {
        case .alert, .background: "alert"
        case .voip: "voip"
        case .liveactivity: "liveactivity"
        }
    }
}

import JSON
import Sodium
public import Vocabulary

/// The limits for one kind of app, and the only pushes that the broker can send for it. Read from a JSON file whose hash is in the ledger.
public struct Policy: Sendable {
    public let name: String
    public let kind: Kind
    public let limits: PolicyLimits
    /// All numbers of `limits`, for `summary()`.
    let values: LimitValues
    public let templates: [String: Template]
    /// The public log's timing. Only a policy for rooms can set it.
    public let ledger: LedgerTiming
    /// SHA-256 of the file's exact bytes, which is its name beside the ledger.
    public let digest: Digest
    /// The file's exact bytes, to be published beside the ledger.
    public let bytes: [UInt8]

    /// The largest policy file in bytes.
    public static let maximumCount = 262_144
    /// The greatest nesting of objects and lists.
    static let deepest = 33

    /// Reads a policy file.
    /// - Throws: `PolicyError` with all findings.
    public init(_ bytes: [UInt8]) throws(PolicyError) {
        let findings = Findings()
        guard let parts = PolicyReader(findings: findings).read(bytes), findings.list.isEmpty else {
            throw PolicyError(findings: findings.list)
        }
        name = parts.name
        kind = parts.kind
        (limits, values) = parts.limits
        ledger = parts.ledger
        templates = Dictionary(parts.templates.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        digest = .sha256(bytes.span)
        self.bytes = bytes
    }

    /// Returns all findings for a policy file. Empty if it is valid.
    public static func lint(_ bytes: [UInt8]) -> [Finding] {
        let findings = Findings()
        _ = PolicyReader(findings: findings).read(bytes)
        return findings.list
    }
}

/// Reads a whole policy file.
struct PolicyReader {
    let findings: Findings

    struct Parts {
        let name: String
        let kind: Policy.Kind
        let limits: (PolicyLimits, LimitValues)
        let ledger: LedgerTiming
        let templates: [Template]
    }

    func read(_ bytes: [UInt8]) -> Parts? {
        let root = JSONPath()
        guard bytes.count <= Policy.maximumCount else {
            findings.add(
                root, "is longer than \(Policy.maximumCount) bytes", why: "a policy is published in full, for people to read",
                do: "say less")
            return nil
        }
        let value: JSONValue
        do throws(JSONError) {
            value = try JSONValue(bytes.span, deepest: Policy.deepest)
        } catch {
            findings.add(
                root, "is not JSON: \(error.words(in: bytes.span))",
                why: "a policy must be unambiguous", do: "correct the file there")
            return nil
        }
        findRepeats(value, at: root)
        guard
            let object = ObjectReader(
                value, at: root, known: ["$schema", "kind", "name", "limits", "ledger", "templates"], findings)
        else {
            return nil
        }
        let name = object.string("name")
        if let name, !Self.isName(name) {
            findings.add(
                root.member("name"), "is not a valid policy name", why: "the name is published in the ledger",
                do: "use 1 to 64 lower-case letters, digits and -")
        }
        let kind = kind(object)
        let limits = kind.flatMap { LimitsReader(findings: findings).read(object["limits"], of: $0, at: root.member("limits")) }
        let ledger = kind.flatMap { LedgerTimingReader(findings: findings).read(object, of: $0) }
        let templates = templates(object["templates"], at: root.member("templates"), jobs: limits?.0.jobs)
        guard let name, let kind, let limits, let ledger else { return nil }
        return Parts(name: name, kind: kind, limits: limits, ledger: ledger, templates: templates)
    }

    /// The key is optional, since older policies don't have it. They are for rooms.
    private func kind(_ object: ObjectReader) -> Policy.Kind? {
        guard object.has("kind") else { return .rooms }
        guard let name = object.string("kind") else { return nil }
        guard let kind = Policy.Kind(rawValue: name) else {
            findings.add(
                object.path.member("kind"), "is not one of \(Policy.Kind.allCases.map(\.rawValue).joined(separator: ", "))",
                why: "the kind determines the limits and the templates",
                do: "use one of these, or remove it in a policy for rooms")
            return nil
        }
        return kind
    }

    private func templates(_ value: JSONValue?, at path: JSONPath, jobs: JobLimits?) -> [Template] {
        guard let value else {
            findings.addMissing(path)
            return []
        }
        guard case .object(let members) = value, !members.isEmpty else {
            findings.add(
                path, "is not an object with at least one template", why: "without one nothing can be sent",
                do: "add a template")
            return []
        }
        let reader = TemplateReader(findings: findings, jobs: jobs)
        return members.compactMap { reader.read($0.key, $0.value, at: path.member($0.key)) }
    }

    /// Repeated keys are ambiguous, since JSON readers differ in which one they use.
    private func findRepeats(_ value: JSONValue, at path: JSONPath) {
        switch value {
        case .object(let members):
            var seen: Set<String> = []
            for member in members {
                let memberPath = path.member(member.key)
                if !seen.insert(member.key).inserted {
                    findings.add(
                        memberPath, "is duplicate", why: "JSON readers differ in which of the two they use",
                        do: "remove one of them")
                }
                findRepeats(member.value, at: memberPath)
            }
        case .array(let items):
            for (index, item) in items.enumerated() { findRepeats(item, at: path.item(index)) }
        case .null, .bool, .number, .string: break
        }
    }

    private static func isName(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                    || byte == UInt8(ascii: "-")
            }
    }
}

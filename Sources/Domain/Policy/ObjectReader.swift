import JSON
import Vocabulary

/// Reads the members of one object of a policy file.
///
/// Each method returns nil after it has added a finding. So one run finds all problems.
final class ObjectReader {
    let path: JSONPath
    private let members: [String: JSONValue]
    private let findings: Findings

    /// - Parameters:
    ///   - known: the allowed keys. Any other key is a finding.
    ///   - foreign: special findings for some unknown keys.
    init?(
        _ value: JSONValue?, at path: JSONPath, known: [String], foreign: [String: (why: String, remedy: String)] = [:],
        _ findings: Findings
    ) {
        guard let value else {
            findings.addMissing(path)
            return nil
        }
        guard case .object(let list) = value else {
            findings.wrongType(path, value, wanted: "an object")
            return nil
        }
        self.path = path
        self.findings = findings
        members = Dictionary(list.map { ($0.key, $0.value) }, uniquingKeysWith: { first, _ in first })
        let absent = known.filter { members[$0] == nil }
        for key in list.map(\.key) where !known.contains(key) {
            let meant = foreign[key] == nil ? Spelling.nearest(to: key, in: absent) : nil
            let words =
                foreign[key] ?? (
                    "an unknown key looks like a rule but has no effect",
                    meant.map { "write \($0)" } ?? "remove it, or use one of: \(known.joined(separator: ", "))"
                )
            findings.add(path.member(key), "is an unknown key", why: words.why, do: words.remedy)
            if let meant { findings.noteMisspelled(path.member(meant)) }
        }
    }

    subscript(key: String) -> JSONValue? { members[key] }

    func has(_ key: String) -> Bool { members[key] != nil }

    /// Reads the object under `key`.
    func object(_ key: String, known: [String]) -> ObjectReader? {
        ObjectReader(members[key], at: path.member(key), known: known, findings)
    }

    func int(_ key: String, in bounds: ClosedRange<Int>, why: String) -> Int? {
        guard let value = required(key) else { return nil }
        guard let number = value.int else {
            findings.wrongType(path.member(key), value, wanted: "a whole number")
            return nil
        }
        guard bounds.contains(number) else {
            findings.add(
                path.member(key), "is \(number), outside \(bounds.lowerBound) to \(bounds.upperBound)", why: why,
                do: "choose a number from \(bounds.lowerBound) to \(bounds.upperBound)")
            return nil
        }
        return number
    }

    func string(_ key: String) -> String? {
        guard let value = required(key) else { return nil }
        guard case .string(let text) = value else {
            findings.wrongType(path.member(key), value, wanted: "a text")
            return nil
        }
        return text
    }

    func bool(_ key: String) -> Bool? {
        guard let value = required(key) else { return nil }
        guard case .bool(let flag) = value else {
            findings.wrongType(path.member(key), value, wanted: "true or false")
            return nil
        }
        return flag
    }

    private func required(_ key: String) -> JSONValue? {
        if let value = members[key] { return value }
        findings.addMissing(path.member(key))
        return nil
    }
}

/// The findings so far.
final class Findings {
    private(set) var list: [Finding] = []
    private var misspelled: Set<String> = []

    /// Reports a missing value, unless a misspelled key in its place is reported already.
    func addMissing(_ path: JSONPath) {
        if misspelled.contains(path.text) { return }
        add(path, "is missing", why: "the file must contain every value in force", do: "add it")
    }

    func noteMisspelled(_ path: JSONPath) { misspelled.insert(path.text) }

    func add(_ path: JSONPath, _ problem: String, why reason: String, do remedy: String) {
        list.append(Finding(path: path.text, problem: problem, reason: reason, remedy: remedy))
    }

    func wrongType(_ path: JSONPath, _ value: JSONValue, wanted: String) {
        var found = value.typeName
        if case .number(let spelling) = value { found = spelling }
        add(
            path, "is \(found), not \(wanted)", why: "a value of another type would be ambiguous",
            do: "write \(wanted)")
    }
}

extension JSONValue {
    fileprivate var typeName: String {
        switch self {
        case .null: "null"
        case .bool: "true or false"
        case .number: "a number"
        case .string: "text"
        case .array: "a list"
        case .object: "an object"
        }
    }
}

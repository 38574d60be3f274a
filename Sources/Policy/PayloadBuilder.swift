import JSON
import Vocabulary

/// Puts a template's constants, handle, fields and texts together and finds what clashes or is never used.
struct PayloadBuilder {
    let findings: Findings
    let path: JSONPath
    let fields: [Field]
    private var tree = PayloadTree.object([:])
    private var used: Set<Int> = []

    init(findings: Findings, path: JSONPath, fields: [Field]) {
        self.findings = findings
        self.path = path
        self.fields = fields
    }

    mutating func addConstants(_ value: JSONValue?) {
        guard let value else { return }
        let path = path.member("constants")
        guard case .object(let members) = value else {
            findings.wrongType(path, value, wanted: "an object")
            return
        }
        for member in members where member.key == "aps" {
            findings.add(
                path.member(member.key), "reaches into aps",
                why: "aps is Apple's, and only the template's own keys write to it",
                do: "use the template's own keys, or a key beside aps")
        }
        findUnfilled(value, at: path)
        tree = PayloadTree(value)
    }

    /// Constants stand as they are written: a field named in one would be sent as its name.
    private func findUnfilled(_ value: JSONValue, at path: JSONPath) {
        switch value {
        case .string(let text):
            for field in fields where text.contains("{\(field.name)}") {
                findings.add(
                    path, "names the field \(field.name)",
                    why: "constants are sent unchanged, so the field's name itself would be sent",
                    do: "remove it and give the field a key")
            }
        case .array(let items): for (index, item) in items.enumerated() { findUnfilled(item, at: path.item(index)) }
        case .object(let members): for member in members { findUnfilled(member.value, at: path.member(member.key)) }
        case .null, .bool, .number: break
        }
    }

    mutating func addHandle(at key: [String]?) {
        guard let key else { return }
        if !tree.insert(.handle, at: key[...]) { clash(path.member("handleKey")) }
    }

    mutating func addFields() {
        for (index, field) in fields.enumerated() {
            guard let key = field.key else { continue }
            used.insert(index)
            if !tree.insert(.field(index), at: key[...]) { clash(path.member("fields").member(field.name).member("key")) }
        }
    }

    /// A place of Apple's that holds a handle: anything else there would say the same in every push, or too much.
    mutating func handle(_ name: String, at path: JSONPath) -> PayloadTree? {
        guard let index = fields.firstIndex(where: { $0.name == name && $0.kind == .handle }) else {
            findings.add(
                path, "is not the name of a handle field of this template",
                why: "notifications are grouped by it, and a group must be named by a handle", do: "name a handle field")
            return nil
        }
        used.insert(index)
        return .field(index)
    }

    mutating func addTimes(_ times: [(name: String, key: [String], seconds: Int)]) {
        for time in times where !tree.insert(.time(afterSeconds: time.seconds), at: time.key[...]) {
            clash(path.member("times").member(time.name))
        }
    }

    private func clash(_ path: JSONPath) {
        findings.add(
            path, "has the same place as a constant, the handle, a field or another time",
            why: "a place in a payload can have one value only",
            do: "choose another key")
    }

    /// Splits a text at the fields it names.
    mutating func parts(of text: String, at path: JSONPath) -> [TextPart] {
        var parts: [TextPart] = []
        var rest = text[...]
        while let open = rest.firstIndex(where: { $0 == "{" || $0 == "}" }) {
            let after = rest.index(after: open)
            guard rest[open] == "{", let close = rest[after...].firstIndex(where: { $0 == "{" || $0 == "}" }), rest[close] == "}"
            else {
                findings.add(
                    path, "has an unbalanced brace", why: "braces may only enclose a field's name",
                    do: "remove it")
                return []
            }
            let name = String(rest[after..<close])
            guard let index = fields.firstIndex(where: { $0.name == name }) else {
                findings.add(
                    path, "names \(name), which is not a field of this template", why: "it would be shown literally",
                    do: "add the field, or remove the name from the text")
                return []
            }
            guard fields[index].isText else {
                findings.add(
                    path, "names \(name), which is a \(fields[index].kind.name) field",
                    why: "a handle is for the app only, and a flag is meaningless to a reader",
                    do: "name enum and number fields only")
                return []
            }
            used.insert(index)
            if open > rest.startIndex { parts.append(.words(String(rest[..<open]))) }
            parts.append(.field(index))
            rest = rest[rest.index(after: close)...]
        }
        if !rest.isEmpty { parts.append(.words(String(rest))) }
        return parts
    }

    /// - Returns: the whole payload. A Live Activity's values stand inside its content state, everything else's beside `aps`.
    func finish(aps: [String: PayloadTree], pushType: PushType) -> PayloadTree {
        for (index, field) in fields.enumerated() where !used.contains(index) {
            findings.add(
                path.member("fields").member(field.name), "is not used", why: "its value would be required and discarded",
                do: "give it a key, name it in a text, or remove it")
        }
        guard case .object(var members) = tree else { return tree }
        var aps = aps
        if pushType == .liveactivity {
            aps["content-state"] = tree
            members = [:]
        }
        members["aps"] = .object(aps)
        return .object(members)
    }
}

extension Field {
    /// Whether a text may name it.
    var isText: Bool {
        switch kind {
        case .oneOf, .number: true
        case .handle, .flag: false
        }
    }
}

import JSON
import Vocabulary

/// Combines a template's constants, handle, fields and texts into a payload. Finds conflicts and unused fields.
struct PayloadBuilder {
    let findings: Findings
    let path: JSONPath
    let fields: [Field]
    private(set) var tree = PayloadTree.object([:])
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

    /// Finds field names in constants. They would be sent literally, since constants have no placeholders.
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

    /// Returns a handle field for one of Apple's keys. Other values would be constant or reveal too much.
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
        for time in times where !tree.insert(.time(afterSeconds: time.seconds, asText: true), at: time.key[...]) {
            clash(path.member("times").member(time.name))
        }
    }

    private func clash(_ path: JSONPath) {
        findings.add(
            path, "has the same place as a constant, the handle, a field or another time",
            why: "a place in a payload can have one value only",
            do: "choose another key")
    }

    /// Splits a text at its placeholders.
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

    /// - Returns: the whole payload. A Live Activity's values are in its content state, those of other pushes beside `aps`.
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
    /// True if a text may contain the field.
    fileprivate var isText: Bool {
        switch kind {
        case .oneOf, .number: true
        case .handle, .flag: false
        }
    }
}

/// A payload under construction: constants and placeholders.
indirect enum PayloadTree {
    case object([String: PayloadTree])
    case constant(JSONValue)
    case handle
    /// A field's own JSON value.
    case field(Int)
    /// Text with enum and number fields, or the web app's origin, in it.
    case text([TextPart])
    /// The event's time plus an offset: in unix seconds for Apple, as text for the app.
    case time(afterSeconds: Int, asText: Bool)

    /// Objects become branches, so that fields can be added beside constants. Everything else is a leaf.
    init(_ value: JSONValue) {
        if case .object(let members) = value {
            self = .object(Dictionary(members.map { ($0.key, PayloadTree($0.value)) }, uniquingKeysWith: { first, _ in first }))
        } else {
            self = .constant(value)
        }
    }

    /// Inserts `leaf` at `path`. Returns false if the path is taken.
    mutating func insert(_ leaf: PayloadTree, at path: ArraySlice<String>) -> Bool {
        guard case .object(var members) = self, let key = path.first else { return false }
        if path.count == 1 {
            guard members[key] == nil else { return false }
            members[key] = leaf
        } else {
            var branch = members[key] ?? .object([:])
            guard branch.insert(leaf, at: path.dropFirst()) else { return false }
            members[key] = branch
        }
        self = .object(members)
        return true
    }

    /// Returns the tree's canonical JSON as pieces.
    func pieces(fields: [Field]) -> [Piece] {
        var compiler = PieceCompiler(fields: fields)
        compiler.append(self)
        return compiler.finish()
    }
}

/// A part of a template's text.
enum TextPart: Equatable {
    case words(String)
    case field(Int)
    case origin
}

private struct PieceCompiler {
    let fields: [Field]
    var pieces: [Piece] = []
    var bytes: [UInt8] = []

    init(fields: [Field]) { self.fields = fields }

    mutating func append(_ tree: PayloadTree) {
        switch tree {
        case .constant(let value): value.append(to: &bytes)
        case .time(let seconds, asText: false): cut(.time(afterSeconds: seconds, asText: false))
        case .time(let seconds, asText: true): quoted { $0.cut(.time(afterSeconds: seconds, asText: true)) }
        case .handle: quoted { $0.cut(.handle) }
        case .field(let index):
            if fields[index].kind == .handle {
                quoted { $0.cut(.field(index: index, words: [])) }
            } else {
                cut(.field(index: index, words: words(of: index, write: JSONString.append)))
            }
        case .text(let parts):
            quoted { compiler in
                for part in parts {
                    switch part {
                    case .words(let words): JSONString.appendContents(words, to: &compiler.bytes)
                    case .field(let index):
                        compiler.cut(.field(index: index, words: compiler.words(of: index, write: JSONString.appendContents)))
                    case .origin: compiler.cut(.origin)
                    }
                }
            }
        case .object(let members):
            bytes.append(UInt8(ascii: "{"))
            for (index, key) in members.keys.sorted(by: JSONValue.precedes).enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                JSONString.append(key, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                if let member = members[key] { append(member) }
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    mutating func cut(_ piece: Piece) {
        if !bytes.isEmpty { pieces.append(.bytes(bytes)) }
        bytes = []
        pieces.append(piece)
    }

    mutating func quoted(_ inside: (inout Self) -> Void) {
        bytes.append(UInt8(ascii: "\""))
        inside(&self)
        bytes.append(UInt8(ascii: "\""))
    }

    func words(of index: Int, write: (String, inout [UInt8]) -> Void) -> [[UInt8]] {
        guard case .oneOf(let words) = fields[index].kind else { return [] }
        return words.map { word in
            var bytes: [UInt8] = []
            write(word, &bytes)
            return bytes
        }
    }

    mutating func finish() -> [Piece] {
        if !bytes.isEmpty { pieces.append(.bytes(bytes)) }
        return pieces
    }
}

extension [Piece] {
    /// Returns the most bytes of a payload.
    func worstCase(fields: [Field]) -> Int { reduce(0) { $0 + $1.worstCase(fields: fields) } }
}

extension Piece {
    /// Returns the most bytes that this piece can add to a payload.
    fileprivate func worstCase(fields: [Field]) -> Int {
        switch self {
        case .bytes(let bytes): return bytes.count
        case .handle: return handleCharacters
        case .origin: return WebTemplate.longestOrigin
        case .time(_, let asText): return asText ? Timestamp.count : 10
        case .field(let index, let words):
            switch fields[index].kind {
            case .handle: return handleCharacters
            case .oneOf: return words.map(\.count).max() ?? 0
            case .number(let range, _): return max(String(range.lowerBound).utf8.count, String(range.upperBound).utf8.count)
            case .flag: return 5
            }
        }
    }
}

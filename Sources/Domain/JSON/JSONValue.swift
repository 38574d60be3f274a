/// A JSON value as written: members keep their order and duplicates, numbers keep their spelling. Copies its text, so it is not for secrets.
public enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case number(String)
    case string(String)
    case array([JSONValue])
    case object([JSONMember])

    /// - Parameter deepest: the limit on nested objects and arrays.
    /// - Throws: if the text is not exactly one JSON value in UTF-8.
    public init(_ text: Span<UInt8>, deepest: Int) throws(JSONError) {
        let document = try JSONDocument(text, .all(deepest: deepest))
        self.init(document, document.root, in: text)
    }

    private init(_ document: JSONDocument, _ item: JSONDocument.Item, in text: Span<UInt8>) {
        switch item.kind {
        case .null: self = .null
        case .bool: self = .bool(text[item.range.lowerBound] == UInt8(ascii: "t"))
        case .number: self = .number(text.text(item.range))
        case .string: self = .string(Self.decode(item, in: text))
        case .array:
            var items: [JSONValue] = []
            for child in document.children(of: item) { items.append(JSONValue(document, child, in: text)) }
            self = .array(items)
        case .object:
            var members: [JSONMember] = []
            let children = document.children(of: item)
            for index in stride(from: 0, to: children.count, by: 2) {
                let key = Self.decode(children[index], in: text)
                members.append(JSONMember(key: key, value: JSONValue(document, children[index + 1], in: text)))
            }
            self = .object(members)
        }
    }

    private static func decode(_ item: JSONDocument.Item, in text: Span<UInt8>) -> String {
        guard let bytes = JSONString.decode(text.extracting(item.range)) else { preconditionFailure("the document was checked") }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The value as a whole number. Nil for anything else, including fractions and exponents.
    public var int: Int? {
        guard case .number(let spelling) = self else { return nil }
        return Int(spelling)
    }

    /// Appends the canonical form: no spaces, names sorted by their UTF-8 bytes.
    public func append(to json: inout [UInt8]) {
        switch self {
        case .null: json += "null".utf8
        case .bool(let flag): json += (flag ? "true" : "false").utf8
        case .number(let spelling): json += spelling.utf8
        case .string(let text): JSONString.append(text, to: &json)
        case .array(let items):
            json.append(UInt8(ascii: "["))
            for (index, item) in items.enumerated() {
                if index > 0 { json.append(UInt8(ascii: ",")) }
                item.append(to: &json)
            }
            json.append(UInt8(ascii: "]"))
        case .object(let members):
            json.append(UInt8(ascii: "{"))
            for (index, member) in members.sorted(by: { Self.precedes($0.key, $1.key) }).enumerated() {
                if index > 0 { json.append(UInt8(ascii: ",")) }
                JSONString.append(member.key, to: &json)
                json.append(UInt8(ascii: ":"))
                member.value.append(to: &json)
            }
            json.append(UInt8(ascii: "}"))
        }
    }

    /// The order of names in the canonical form.
    public static func precedes(_ left: String, _ right: String) -> Bool { left.utf8.lexicographicallyPrecedes(right.utf8) }
}

public struct JSONMember: Sendable, Equatable {
    public let key: String
    public let value: JSONValue

    public init(key: String, value: JSONValue) { (self.key, self.value) = (key, value) }
}

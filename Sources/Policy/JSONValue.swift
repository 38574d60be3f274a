/// One JSON value as it was written: members keep their order and their repeats, numbers keep their spelling, so that lint can
/// speak about both.
enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case number(String)
    case string(String)
    case array([JSONValue])
    case object([JSONMember])

    /// The value as a whole number; nil for anything else, fractions and exponents included.
    var int: Int? {
        guard case .number(let spelling) = self else { return nil }
        return Int(spelling)
    }

    var typeName: String {
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

struct JSONMember: Sendable, Equatable {
    let key: String
    let value: JSONValue
}

/// Canonical writing: no spaces, keys sorted by their UTF-8 bytes, only what RFC 8259 section 7 demands is escaped.
enum JSONWriter {
    static func append(_ value: JSONValue, to out: inout [UInt8]) {
        switch value {
        case .null: out += "null".utf8
        case .bool(let flag): out += (flag ? "true" : "false").utf8
        case .number(let spelling): out += spelling.utf8
        case .string(let text): appendString(text, to: &out)
        case .array(let items):
            out.append(UInt8(ascii: "["))
            for (index, item) in items.enumerated() {
                if index > 0 { out.append(UInt8(ascii: ",")) }
                append(item, to: &out)
            }
            out.append(UInt8(ascii: "]"))
        case .object(let members):
            out.append(UInt8(ascii: "{"))
            for (index, member) in members.sorted(by: { precedes($0.key, $1.key) }).enumerated() {
                if index > 0 { out.append(UInt8(ascii: ",")) }
                appendString(member.key, to: &out)
                out.append(UInt8(ascii: ":"))
                append(member.value, to: &out)
            }
            out.append(UInt8(ascii: "}"))
        }
    }

    static func appendString(_ text: String, to out: inout [UInt8]) {
        out.append(UInt8(ascii: "\""))
        appendEscaped(text, to: &out)
        out.append(UInt8(ascii: "\""))
    }

    /// The inside of a JSON string, without its quotes.
    static func appendEscaped(_ text: String, to out: inout [UInt8]) {
        let digits = Array("0123456789abcdef".utf8)
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): out += [UInt8(ascii: "\\"), byte]
            case 0x08: out += "\\b".utf8
            case 0x09: out += "\\t".utf8
            case 0x0a: out += "\\n".utf8
            case 0x0c: out += "\\f".utf8
            case 0x0d: out += "\\r".utf8
            case 0..<0x20: out += "\\u00".utf8 + [digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            default: out.append(byte)
            }
        }
    }

    static func precedes(_ left: String, _ right: String) -> Bool {
        left.utf8.lexicographicallyPrecedes(right.utf8)
    }
}

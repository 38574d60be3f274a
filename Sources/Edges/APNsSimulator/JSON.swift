import Vocabulary

/// A JSON value (RFC 8259). The parser is strict: no repeated keys, UTF-8 only, nothing after the value, at most 64 levels.
///
/// It is separate from the broker's parser, so that a bug there doesn't hide in tests with the simulator.
enum JSON: Equatable {
    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSON])
    case object([String: JSON])

    init?(parsing bytes: [UInt8]) {
        var reader = Reader(bytes: bytes, keeps: true)
        guard let value = reader.value(depth: 0), reader.isAtEnd() else { return nil }
        self = value
    }

    /// Returns whether `bytes` are one JSON object with members. Doesn't detect repeated keys, and copies nothing.
    static func isObjectWithMembers(_ bytes: [UInt8]) -> Bool {
        guard (try? UTF8Span(validating: bytes.span)) != nil else { return false }
        var reader = Reader(bytes: bytes, keeps: false)
        guard case .object? = reader.value(depth: 0), reader.isAtEnd() else { return false }
        return reader.members > 0
    }

    subscript(key: String) -> JSON? {
        guard case .object(let members) = self else { return nil }
        return members[key]
    }

    var wholeNumber: UInt64? {
        guard case .number(let number) = self else { return nil }
        return UInt64(exactly: number)
    }

    /// Appends the text as a JSON string.
    static func append(_ text: String, to out: inout [UInt8]) {
        out.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                out.append(UInt8(ascii: "\\"))
                out.append(byte)
            case 0..<0x20:
                out.append(contentsOf: "\\u00".utf8)
                out.append(Hex.digit(byte >> 4))
                out.append(Hex.digit(byte & 15))
            default: out.append(byte)
            }
        }
        out.append(UInt8(ascii: "\""))
    }

    /// Appends an object with these members, ordered by name.
    static func append(_ members: [String: String], to out: inout [UInt8]) {
        out.append(UInt8(ascii: "{"))
        for (index, member) in members.sorted(by: { $0.key < $1.key }).enumerated() {
            if index > 0 { out.append(UInt8(ascii: ",")) }
            append(member.key, to: &out)
            out.append(UInt8(ascii: ":"))
            append(member.value, to: &out)
        }
        out.append(UInt8(ascii: "}"))
    }
}

private struct Reader {
    let bytes: [UInt8]
    /// If false, the text is only checked, and the returned values are empty.
    let keeps: Bool
    private var position = 0
    /// The number of members of all objects.
    private(set) var members = 0

    init(bytes: [UInt8], keeps: Bool) {
        self.bytes = bytes
        self.keeps = keeps
    }

    mutating func isAtEnd() -> Bool {
        skipSpace()
        return position == bytes.count
    }

    mutating func value(depth: Int) -> JSON? {
        guard depth < 64, let first = peek() else { return nil }
        switch first {
        case UInt8(ascii: "{"): return object(depth)
        case UInt8(ascii: "["): return array(depth)
        case UInt8(ascii: "\""): return string().map { .string($0) }
        case UInt8(ascii: "t"): return word("true") ? .bool(true) : nil
        case UInt8(ascii: "f"): return word("false") ? .bool(false) : nil
        case UInt8(ascii: "n"): return word("null") ? .null : nil
        default: return number()
        }
    }

    private mutating func object(_ depth: Int) -> JSON? {
        position += 1
        var members: [String: JSON] = [:]
        if take(UInt8(ascii: "}")) { return .object(members) }
        repeat {
            guard peek() == UInt8(ascii: "\""), let key = string(), take(UInt8(ascii: ":")), let value = value(depth: depth + 1)
            else { return nil }
            self.members += 1
            if keeps, members.updateValue(value, forKey: key) != nil { return nil }
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "}")) ? .object(members) : nil
    }

    private mutating func array(_ depth: Int) -> JSON? {
        position += 1
        var values: [JSON] = []
        if take(UInt8(ascii: "]")) { return .array(values) }
        repeat {
            guard let value = value(depth: depth + 1) else { return nil }
            if keeps { values.append(value) }
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "]")) ? .array(values) : nil
    }

    private mutating func number() -> JSON? {
        let start = position
        skip(UInt8(ascii: "-"))
        let whole = position
        guard digits() > 0, bytes[whole] != UInt8(ascii: "0") || position == whole + 1 else { return nil }
        if skip(UInt8(ascii: ".")), digits() == 0 { return nil }
        if skip(UInt8(ascii: "e")) || skip(UInt8(ascii: "E")) {
            if !skip(UInt8(ascii: "+")) { skip(UInt8(ascii: "-")) }
            if digits() == 0 { return nil }
        }
        return keeps ? Double(String(decoding: bytes[start..<position], as: UTF8.self)).map { .number($0) } : .number(0)
    }

    private mutating func digits() -> Int {
        let start = position
        while position < bytes.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[position]) { position += 1 }
        return position - start
    }

    private mutating func string() -> String? {
        position += 1
        let start = position
        // Most strings have no escapes.
        while position < bytes.count, bytes[position] != UInt8(ascii: "\""), bytes[position] != UInt8(ascii: "\\") {
            guard bytes[position] >= 0x20 else { return nil }
            position += 1
        }
        var text = keeps ? [UInt8](bytes[start..<position]) : []
        while position < bytes.count {
            let byte = bytes[position]
            position += 1
            switch byte {
            case UInt8(ascii: "\""): return keeps ? String(validating: text, as: UTF8.self) : ""
            case UInt8(ascii: "\\"):
                guard let scalar = escape() else { return nil }
                if keeps { text.append(contentsOf: String(Character(scalar)).utf8) }
            case 0..<0x20: return nil
            default: if keeps { text.append(byte) }
            }
        }
        return nil
    }

    private mutating func escape() -> Unicode.Scalar? {
        guard position < bytes.count else { return nil }
        let byte = bytes[position]
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(byte)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{c}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"):
            guard let unit = codeUnit() else { return nil }
            guard 0xd800..<0xdc00 ~= unit else { return Unicode.Scalar(unit) }
            guard skip(UInt8(ascii: "\\")), skip(UInt8(ascii: "u")), let low = codeUnit(), 0xdc00..<0xe000 ~= low else {
                return nil
            }
            return Unicode.Scalar(0x10000 + (unit - 0xd800) << 10 + (low - 0xdc00))
        default: return nil
        }
    }

    private mutating func codeUnit() -> UInt32? {
        guard position + 4 <= bytes.count, bytes[position..<position + 4].allSatisfy(\.isHexDigit) else { return nil }
        defer { position += 4 }
        return UInt32(String(decoding: bytes[position..<position + 4], as: UTF8.self), radix: 16)
    }

    private mutating func word(_ word: StaticString) -> Bool {
        let text = word.description.utf8
        guard bytes[position...].starts(with: text) else { return false }
        position += text.count
        return true
    }

    /// Skips white space. Returns the next byte without consuming it.
    private mutating func peek() -> UInt8? {
        skipSpace()
        return position < bytes.count ? bytes[position] : nil
    }

    /// Skips white space. Consumes the next byte if it is `byte`.
    private mutating func take(_ byte: UInt8) -> Bool {
        guard peek() == byte else { return false }
        position += 1
        return true
    }

    @discardableResult
    private mutating func skip(_ byte: UInt8) -> Bool {
        guard position < bytes.count, bytes[position] == byte else { return false }
        position += 1
        return true
    }

    private mutating func skipSpace() {
        while position < bytes.count, bytes[position] <= 0x20, [0x20, 0x0a, 0x0d, 0x09].contains(bytes[position]) {
            position += 1
        }
    }
}

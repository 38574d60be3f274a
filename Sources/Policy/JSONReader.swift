/// A strict reader of one JSON text (RFC 8259) for policy files. A general decoder would take the last of two equal keys in
/// silence; a policy must mean one thing to everyone who reads it, so this one keeps repeats for lint to refuse.
struct JSONReader {
    struct Failure: Error, Equatable {
        let line: Int
        let column: Int
        let problem: String
    }

    static let maximumDepth = 32
    private static let digits = UInt8(ascii: "0")...UInt8(ascii: "9")

    private let bytes: [UInt8]
    private var position = 0

    /// - Throws: `Failure` with the place where the text stops being one JSON value in UTF-8.
    static func read(_ bytes: [UInt8]) throws(Failure) -> JSONValue {
        var reader = JSONReader(bytes: bytes)
        guard String(validating: bytes, as: UTF8.self) != nil else { throw reader.failure("the file is not UTF-8") }
        let value = try reader.value(depth: 0)
        reader.skipSpace()
        guard reader.position == bytes.count else { throw reader.failure("something follows the end of the JSON value") }
        return value
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func failure(_ problem: String) -> Failure {
        let before = bytes[..<min(position, bytes.count)]
        let lineStart = before.lastIndex(of: 0x0a).map { $0 + 1 } ?? 0
        return Failure(line: before.count { $0 == 0x0a } + 1, column: before.count - lineStart + 1, problem: problem)
    }

    private mutating func skipSpace() {
        while let byte = next, byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { position += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        guard next == byte else { return false }
        position += 1
        return true
    }

    private mutating func value(depth: Int) throws(Failure) -> JSONValue {
        guard depth <= Self.maximumDepth else {
            throw failure("more than \(Self.maximumDepth) objects or lists inside one another")
        }
        skipSpace()
        switch next {
        case UInt8(ascii: "{"): return try object(depth: depth)
        case UInt8(ascii: "["): return try array(depth: depth)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        case nil: throw failure("the file ends where a value is expected")
        case let byte? where byte == UInt8(ascii: "-") || Self.digits.contains(byte): return .number(try number())
        default: throw failure("this is no JSON value")
        }
    }

    private mutating func word(_ text: String, _ value: JSONValue) throws(Failure) -> JSONValue {
        guard bytes[position...].starts(with: text.utf8) else { throw failure("this is no JSON value") }
        position += text.utf8.count
        return value
    }

    private mutating func object(depth: Int) throws(Failure) -> JSONValue {
        position += 1
        var members: [JSONMember] = []
        skipSpace()
        if take(UInt8(ascii: "}")) { return .object(members) }
        while true {
            skipSpace()
            guard next == UInt8(ascii: "\"") else { throw failure("a key in double quotes is expected here") }
            let key = try string()
            skipSpace()
            guard take(UInt8(ascii: ":")) else { throw failure("a colon is expected after the key") }
            members.append(JSONMember(key: key, value: try value(depth: depth + 1)))
            skipSpace()
            if take(UInt8(ascii: "}")) { return .object(members) }
            guard take(UInt8(ascii: ",")) else { throw failure("a comma or } is expected here") }
        }
    }

    private mutating func array(depth: Int) throws(Failure) -> JSONValue {
        position += 1
        var items: [JSONValue] = []
        skipSpace()
        if take(UInt8(ascii: "]")) { return .array(items) }
        while true {
            items.append(try value(depth: depth + 1))
            skipSpace()
            if take(UInt8(ascii: "]")) { return .array(items) }
            guard take(UInt8(ascii: ",")) else { throw failure("a comma or ] is expected here") }
        }
    }

    private mutating func number() throws(Failure) -> String {
        let start = position
        _ = take(UInt8(ascii: "-"))
        if !take(UInt8(ascii: "0")) { try digits() }
        if take(UInt8(ascii: ".")) { try digits() }
        if take(UInt8(ascii: "e")) || take(UInt8(ascii: "E")) {
            if !take(UInt8(ascii: "+")) { _ = take(UInt8(ascii: "-")) }
            try digits()
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private mutating func digits() throws(Failure) {
        let start = position
        while let byte = next, Self.digits.contains(byte) { position += 1 }
        guard position > start else { throw failure("a digit is expected here") }
    }

    private mutating func string() throws(Failure) -> String {
        position += 1
        var out: [UInt8] = []
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                return String(decoding: out, as: UTF8.self)
            case UInt8(ascii: "\\"):
                position += 1
                try escape(into: &out)
            case 0..<0x20:
                throw failure("a control character stands unescaped in a text")
            default:
                out.append(byte)
                position += 1
            }
        }
        throw failure("a text is not closed")
    }

    private mutating func escape(into out: inout [UInt8]) throws(Failure) {
        guard let byte = next else { throw failure("a text is not closed") }
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): out.append(byte)
        case UInt8(ascii: "b"): out.append(0x08)
        case UInt8(ascii: "f"): out.append(0x0c)
        case UInt8(ascii: "n"): out.append(0x0a)
        case UInt8(ascii: "r"): out.append(0x0d)
        case UInt8(ascii: "t"): out.append(0x09)
        case UInt8(ascii: "u"):
            let unit = try hexUnit()
            var scalar = UInt32(unit)
            if (0xd800..<0xdc00).contains(unit) {
                guard take(UInt8(ascii: "\\")), take(UInt8(ascii: "u")) else { throw failure("half a surrogate pair") }
                let low = try hexUnit()
                guard (0xdc00..<0xe000).contains(low) else { throw failure("half a surrogate pair") }
                scalar = 0x10000 + (UInt32(unit) - 0xd800) << 10 + (UInt32(low) - 0xdc00)
            }
            guard let character = Unicode.Scalar(scalar) else { throw failure("half a surrogate pair") }
            out += String(Character(character)).utf8
        default: throw failure("an unknown escape")
        }
    }

    private mutating func hexUnit() throws(Failure) -> UInt16 {
        guard position + 4 <= bytes.count else { throw failure("four hexadecimal digits are expected after \\u") }
        var unit: UInt16 = 0
        for byte in bytes[position..<position + 4] {
            guard let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
                throw failure("four hexadecimal digits are expected after \\u")
            }
            unit = unit << 4 | UInt16(digit)
        }
        position += 4
        return unit
    }
}

import Vocabulary

/// Escaping of JSON strings (RFC 8259 section 7).
public enum JSONString {
    /// Appends the quoted text. Escapes only quotes, backslashes and control characters below U+0020.
    public static func append(_ text: String, to json: inout [UInt8]) {
        json.append(UInt8(ascii: "\""))
        appendContents(text, to: &json)
        json.append(UInt8(ascii: "\""))
    }

    /// Returns the text as a JSON string.
    public static func quoted(_ text: String) -> String {
        var json: [UInt8] = []
        append(text, to: &json)
        return String(decoding: json, as: UTF8.self)
    }

    /// Appends the text without the quotes.
    public static func appendContents(_ text: String, to json: inout [UInt8]) {
        if text.utf8.allSatisfy({ $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }) {
            json += text.utf8
            return
        }
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                json.append(UInt8(ascii: "\\"))
                json.append(byte)
            case 0x08: json += "\\b".utf8
            case 0x09: json += "\\t".utf8
            case 0x0a: json += "\\n".utf8
            case 0x0c: json += "\\f".utf8
            case 0x0d: json += "\\r".utf8
            case ..<0x20:
                json += "\\u00".utf8
                json.append(Hex.digit(byte >> 4))
                json.append(Hex.digit(byte & 15))
            default: json.append(byte)
            }
        }
    }

    /// The most bytes that `append` can need.
    static func longest(_ text: String) -> Int { 6 * text.utf8.count + 2 }

    /// Decodes the bytes between the quotes of a validated document into an array that never grows. An array that grows leaves its old bytes in freed
    /// memory.
    /// - Returns: nil if the string has a lone surrogate.
    static func decode(_ raw: Span<UInt8>) -> [UInt8]? {
        var decoded: [UInt8] = []
        // No escape is shorter than its decoded bytes.
        decoded.reserveCapacity(raw.count)
        var index = 0
        while index < raw.count {
            let byte = raw[index]
            index += 1
            guard byte == UInt8(ascii: "\\") else {
                decoded.append(byte)
                continue
            }
            guard let scalar = try? scalar(escapedIn: raw, at: &index) else { return nil }
            decoded.append(contentsOf: scalar.utf8)
        }
        return decoded
    }

    /// Returns whether the bytes between the quotes of a validated document mean this text. Allocates nothing: a body may have thousands of names.
    static func isEqual(_ raw: Span<UInt8>, to text: String) -> Bool {
        var rest = text.utf8.makeIterator()
        var index = 0
        while index < raw.count {
            let byte = raw[index]
            index += 1
            guard byte == UInt8(ascii: "\\") else {
                guard rest.next() == byte else { return false }
                continue
            }
            guard let scalar = try? scalar(escapedIn: raw, at: &index) else { return false }
            for byte in scalar.utf8 where rest.next() != byte { return false }
        }
        return rest.next() == nil
    }

    /// Decodes an escape, or the two of a surrogate pair.
    /// - Parameter index: the character after the backslash. Advanced past the escape.
    static func scalar(escapedIn text: Span<UInt8>, at index: inout Int) throws(JSONError) -> Unicode.Scalar {
        let high = try unit(escapedIn: text, at: &index)
        guard (0xd800..<0xdc00).contains(high) else {
            // A lone surrogate is no text (RFC 8259 section 8.2). Only escapes can encode one.
            guard let scalar = Unicode.Scalar(high) else { throw JSONError(problem: .halfASurrogatePair, position: index) }
            return scalar
        }
        for byte in "\\u".utf8 {
            guard index < text.count, text[index] == byte else { throw JSONError(problem: .halfASurrogatePair, position: index) }
            index += 1
        }
        let low = try digits(text, &index)
        guard (0xdc00..<0xe000).contains(low), let scalar = Unicode.Scalar(0x10000 + (high - 0xd800) << 10 + (low - 0xdc00))
        else {
            throw JSONError(problem: .halfASurrogatePair, position: index)
        }
        return scalar
    }

    /// Decodes one escape to a UTF-16 code unit, which may be half a surrogate pair.
    /// - Parameter index: the character after the backslash. Advanced past the escape.
    static func unit(escapedIn text: Span<UInt8>, at index: inout Int) throws(JSONError) -> UInt32 {
        guard index < text.count else { throw JSONError(problem: .openText, position: index) }
        let escape = text[index]
        index += 1
        switch escape {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return UInt32(escape)
        case UInt8(ascii: "b"): return 0x08
        case UInt8(ascii: "f"): return 0x0c
        case UInt8(ascii: "n"): return 0x0a
        case UInt8(ascii: "r"): return 0x0d
        case UInt8(ascii: "t"): return 0x09
        case UInt8(ascii: "u"): return try digits(text, &index)
        default: throw JSONError(problem: .unknownEscape, position: index)
        }
    }

    /// Parses the four digits of a UTF-16 code unit.
    private static func digits(_ text: Span<UInt8>, _ index: inout Int) throws(JSONError) -> UInt32 {
        guard index + 4 <= text.count else { throw JSONError(problem: .notFourDigits, position: index) }
        var unit: UInt32 = 0
        for place in index..<index + 4 {
            guard let digit = Hex.value(text[place]) else { throw JSONError(problem: .notFourDigits, position: index) }
            unit = unit << 4 | UInt32(digit)
        }
        index += 4
        return unit
    }
}

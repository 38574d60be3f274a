import Linux

/// Walks over JSON text (RFC 8259) byte by byte and accepts nothing but the grammar.
struct JSONScanner {
    private var position = 0
    private static let deepest = 16

    static func isUTF8(_ bytes: Span<UInt8>) -> Bool { (try? UTF8Span(validating: bytes)) != nil }

    /// The members of the one object that the text must be.
    mutating func topLevelObject(_ bytes: Span<UInt8>) -> [JSONObject.Member]? {
        var members: [JSONObject.Member] = []
        skipSpace(bytes)
        guard object(bytes, depth: 1, into: &members) else { return nil }
        skipSpace(bytes)
        return position == bytes.count ? members : nil
    }

    /// The items of the one array that the text must be.
    mutating func topLevelArray(_ bytes: Span<UInt8>) -> [JSONObject.Item]? {
        var items: [JSONObject.Item] = []
        skipSpace(bytes)
        guard array(bytes, depth: 1, into: &items) else { return nil }
        skipSpace(bytes)
        return position == bytes.count ? items : nil
    }

    private func next(_ bytes: Span<UInt8>) -> UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func take(_ bytes: Span<UInt8>, _ byte: Unicode.Scalar) -> Bool {
        guard next(bytes) == UInt8(ascii: byte) else { return false }
        position += 1
        return true
    }

    private mutating func skipSpace(_ bytes: Span<UInt8>) {
        while let byte = next(bytes), byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { position += 1 }
    }

    private mutating func object(_ bytes: Span<UInt8>, depth: Int, into members: inout [JSONObject.Member]) -> Bool {
        guard depth <= Self.deepest, take(bytes, "{") else { return false }
        skipSpace(bytes)
        if take(bytes, "}") { return true }
        while true {
            skipSpace(bytes)
            guard let name = string(bytes), let decoded = Self.decode(bytes.extracting(name)) else { return false }
            skipSpace(bytes)
            guard take(bytes, ":") else { return false }
            skipSpace(bytes)
            guard let value = value(bytes, depth: depth) else { return false }
            if depth == 1 { members.append(.init(name: decoded, kind: value.kind, range: value.range)) }
            skipSpace(bytes)
            if take(bytes, "}") { return true }
            guard take(bytes, ",") else { return false }
        }
    }

    private mutating func array(_ bytes: Span<UInt8>, depth: Int, into items: inout [JSONObject.Item]) -> Bool {
        guard depth <= Self.deepest, take(bytes, "[") else { return false }
        skipSpace(bytes)
        if take(bytes, "]") { return true }
        while true {
            skipSpace(bytes)
            guard let value = value(bytes, depth: depth) else { return false }
            if depth == 1 { items.append(value) }
            skipSpace(bytes)
            if take(bytes, "]") { return true }
            guard take(bytes, ",") else { return false }
        }
    }

    private mutating func value(_ bytes: Span<UInt8>, depth: Int) -> JSONObject.Item? {
        let start = position
        switch next(bytes) {
        case UInt8(ascii: "\""):
            return string(bytes).map { .init(kind: .string, range: $0) }
        case UInt8(ascii: "{"):
            var ignored: [JSONObject.Member] = []
            return object(bytes, depth: depth + 1, into: &ignored) ? .init(kind: .object, range: start..<position) : nil
        case UInt8(ascii: "["):
            var ignored: [JSONObject.Item] = []
            return array(bytes, depth: depth + 1, into: &ignored) ? .init(kind: .array, range: start..<position) : nil
        case UInt8(ascii: "t"): return word(bytes, "true") ? .init(kind: .bool, range: start..<position) : nil
        case UInt8(ascii: "f"): return word(bytes, "false") ? .init(kind: .bool, range: start..<position) : nil
        case UInt8(ascii: "n"): return word(bytes, "null") ? .init(kind: .null, range: start..<position) : nil
        default:
            return number(bytes) ? .init(kind: .number, range: start..<position) : nil
        }
    }

    private mutating func word(_ bytes: Span<UInt8>, _ word: StaticString) -> Bool {
        for byte in word.description.utf8 {
            guard next(bytes) == byte else { return false }
            position += 1
        }
        return true
    }

    private mutating func digits(_ bytes: Span<UInt8>) -> Bool {
        let start = position
        while let byte = next(bytes), (0x30...0x39).contains(byte) { position += 1 }
        return position > start
    }

    private mutating func number(_ bytes: Span<UInt8>) -> Bool {
        _ = take(bytes, "-")
        if !take(bytes, "0") {
            guard digits(bytes) else { return false }
        }
        if take(bytes, ".") {
            guard digits(bytes) else { return false }
        }
        if take(bytes, "e") || take(bytes, "E") {
            if !take(bytes, "+") { _ = take(bytes, "-") }
            guard digits(bytes) else { return false }
        }
        return true
    }

    /// Passes over a string and gives the range between its quotes. Escapes are checked when decoded.
    private mutating func string(_ bytes: Span<UInt8>) -> Range<Int>? {
        guard take(bytes, "\"") else { return nil }
        let start = position
        var escaped = false
        while let byte = next(bytes) {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                let range = start..<position - 1
                // Half a pair of surrogates is no text (RFC 8259 section 8.2); only escapes can write one.
                guard escaped else { return range }
                guard var text = Self.decode(bytes.extracting(range)) else { return nil }
                wipe(&text)
                return range
            case UInt8(ascii: "\\"):
                escaped = true
                position += 1
                guard let escape = next(bytes) else { return nil }
                if escape == UInt8(ascii: "u") {
                    guard position + 4 < bytes.count, (position + 1...position + 4).allSatisfy({ Self.hex(bytes[$0]) != nil })
                    else { return nil }
                    position += 4
                } else if !"\"\\/bfnrt".utf8.contains(escape) {
                    return nil
                }
                position += 1
            case ..<0x20: return nil
            default: position += 1
            }
        }
        return nil
    }

    private static func hex(_ byte: UInt8) -> UInt32? {
        switch byte {
        case 0x30...0x39: UInt32(byte) - 0x30
        case 0x41...0x46: UInt32(byte) - 0x41 + 10
        case 0x61...0x66: UInt32(byte) - 0x61 + 10
        default: nil
        }
    }

    /// Decodes the inside of a string, into one array that never grows: an array that does leaves its old bytes behind.
    /// - Returns: nil for a lone surrogate.
    static func decode(_ raw: Span<UInt8>) -> [UInt8]? {
        var decoded: [UInt8] = []
        // No escape is shorter than what it stands for.
        decoded.reserveCapacity(raw.count)
        guard decode(raw, into: &decoded) else {
            wipe(&decoded)
            return nil
        }
        return decoded
    }

    private static func decode(_ raw: Span<UInt8>, into decoded: inout [UInt8]) -> Bool {
        var index = 0
        while index < raw.count {
            let byte = raw[index]
            index += 1
            guard byte == UInt8(ascii: "\\") else {
                decoded.append(byte)
                continue
            }
            guard index < raw.count else { return false }
            let escape = raw[index]
            index += 1
            switch escape {
            case UInt8(ascii: "b"): decoded.append(0x08)
            case UInt8(ascii: "f"): decoded.append(0x0c)
            case UInt8(ascii: "n"): decoded.append(0x0a)
            case UInt8(ascii: "r"): decoded.append(0x0d)
            case UInt8(ascii: "t"): decoded.append(0x09)
            case UInt8(ascii: "u"):
                guard let scalar = scalar(raw, &index) else { return false }
                decoded.append(contentsOf: scalar.utf8)
            default: decoded.append(escape)
            }
        }
        return true
    }

    /// What follows `\u`: one unit of UTF-16, or two of a pair.
    private static func scalar(_ raw: Span<UInt8>, _ index: inout Int) -> Unicode.Scalar? {
        guard let high = unit(raw, &index) else { return nil }
        guard (0xd800..<0xdc00).contains(high) else { return Unicode.Scalar(high) }
        guard index + 1 < raw.count, raw[index] == UInt8(ascii: "\\"), raw[index + 1] == UInt8(ascii: "u") else { return nil }
        index += 2
        guard let low = unit(raw, &index), (0xdc00..<0xe000).contains(low) else { return nil }
        return Unicode.Scalar(0x10000 + (high - 0xd800) << 10 + (low - 0xdc00))
    }

    private static func unit(_ raw: Span<UInt8>, _ index: inout Int) -> UInt32? {
        guard index + 4 <= raw.count else { return nil }
        var code: UInt32 = 0
        for place in index..<index + 4 {
            guard let digit = hex(raw[place]) else { return nil }
            code = code << 4 | digit
        }
        index += 4
        return code
    }
}

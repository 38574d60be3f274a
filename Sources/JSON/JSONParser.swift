/// Walks over JSON text byte by byte and accepts nothing but the grammar. The text is handed in each time: a span can't be kept.
struct JSONParser {
    private static let digits = UInt8(ascii: "0")...UInt8(ascii: "9")

    private let deepest: Int
    private var position = 0

    init(deepest: Int) { self.deepest = deepest }

    mutating func read(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) {
        precondition(text.count <= Int(UInt32.max))
        guard (try? UTF8Span(validating: text)) != nil else { throw failure(.notUTF8) }
        try value(text, depth: 0, into: &document)
        skipSpace(text)
        guard position == text.count else { throw failure(.somethingFollows) }
    }

    private func failure(_ problem: JSONError.Problem) -> JSONError { JSONError(problem: problem, position: position) }

    private func next(_ text: Span<UInt8>) -> UInt8? { position < text.count ? text[position] : nil }

    private mutating func take(_ byte: Unicode.Scalar, _ text: Span<UInt8>) -> Bool {
        guard next(text) == UInt8(ascii: byte) else { return false }
        position += 1
        return true
    }

    private mutating func skipSpace(_ text: Span<UInt8>) {
        while let byte = next(text), byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { position += 1 }
    }

    private mutating func value(_ text: Span<UInt8>, depth: Int, into document: inout JSONDocument) throws(JSONError) {
        skipSpace(text)
        switch next(text) {
        case UInt8(ascii: "{"): try object(text, depth: depth + 1, into: &document)
        case UInt8(ascii: "["): try array(text, depth: depth + 1, into: &document)
        case UInt8(ascii: "\""): try string(text, into: &document)
        case UInt8(ascii: "t"): try word(text, "true", .bool, into: &document)
        case UInt8(ascii: "f"): try word(text, "false", .bool, into: &document)
        case UInt8(ascii: "n"): try word(text, "null", .null, into: &document)
        case nil: throw failure(.nothingFollows)
        case let byte? where byte == UInt8(ascii: "-") || Self.digits.contains(byte): try number(text, into: &document)
        default: throw failure(.noValue)
        }
    }

    private mutating func word(
        _ text: Span<UInt8>, _ word: String, _ kind: JSONDocument.Kind, into document: inout JSONDocument
    ) throws(JSONError) {
        let end = position + word.utf8.count
        guard end <= text.count, text.extracting(position..<end).elementsEqual(word) else { throw failure(.noValue) }
        document.append(kind, position..<end)
        position = end
    }

    private mutating func object(_ text: Span<UInt8>, depth: Int, into document: inout JSONDocument) throws(JSONError) {
        guard depth <= deepest else { throw failure(.tooDeep(limit: deepest)) }
        let (start, index) = (position, document.open())
        position += 1
        skipSpace(text)
        if !take("}", text) {
            repeat {
                skipSpace(text)
                guard next(text) == UInt8(ascii: "\"") else { throw failure(.noKey) }
                try string(text, into: &document)
                skipSpace(text)
                guard take(":", text) else { throw failure(.noColon) }
                try value(text, depth: depth, into: &document)
                skipSpace(text)
            } while take(",", text)
            guard take("}", text) else { throw failure(.noCommaOrBrace) }
        }
        document.close(index, .object, start..<position)
    }

    private mutating func array(_ text: Span<UInt8>, depth: Int, into document: inout JSONDocument) throws(JSONError) {
        guard depth <= deepest else { throw failure(.tooDeep(limit: deepest)) }
        let (start, index) = (position, document.open())
        position += 1
        skipSpace(text)
        if !take("]", text) {
            repeat {
                try value(text, depth: depth, into: &document)
                skipSpace(text)
            } while take(",", text)
            guard take("]", text) else { throw failure(.noCommaOrBracket) }
        }
        document.close(index, .array, start..<position)
    }

    private mutating func number(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) {
        let start = position
        _ = take("-", text)
        if !take("0", text) { try digits(text) }
        if take(".", text) { try digits(text) }
        if take("e", text) || take("E", text) {
            if !take("+", text) { _ = take("-", text) }
            try digits(text)
        }
        document.append(.number, start..<position)
    }

    private mutating func digits(_ text: Span<UInt8>) throws(JSONError) {
        let start = position
        while let byte = next(text), Self.digits.contains(byte) { position += 1 }
        guard position > start else { throw failure(.noDigit) }
    }

    private mutating func string(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) {
        let start = position + 1
        var index = start
        var hasEscapes = false
        while index < text.count {
            let byte = text[index]
            index += 1
            if byte == UInt8(ascii: "\"") {
                document.append(.string, start..<index - 1, hasEscapes: hasEscapes)
                position = index
                return
            } else if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                _ = try JSONString.scalar(escapedIn: text, at: &index)
            } else if byte < 0x20 {
                throw JSONError(problem: .controlCharacter, position: index - 1)
            }
        }
        throw JSONError(problem: .openText, position: index)
    }
}

extension Span where Element == UInt8 {
    func elementsEqual(_ text: String) -> Bool {
        let text = text.utf8.span
        guard count == text.count else { return false }
        for index in indices where self[index] != text[index] { return false }
        return true
    }
}

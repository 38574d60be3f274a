/// The positions of the values in a validated JSON text (RFC 8259).
///
/// A document contains positions only and gets the text again for each read. So a secret is copied only to where the caller puts it.
public struct JSONDocument: Sendable {
    public enum Kind: UInt8, Sendable { case null, bool, number, string, array, object }

    /// A value's kind and position.
    public struct Item: Sendable, Equatable {
        public let kind: Kind
        let hasEscapes: Bool
        private let start: UInt32
        private let end: UInt32
        /// The index among the document's items, in the order of the text.
        let index: UInt32
        /// The index of the item after this one and its descendants.
        fileprivate(set) var next: UInt32

        fileprivate init(_ kind: Kind, _ range: Range<Int>, hasEscapes: Bool = false, index: Int) {
            self.kind = kind
            self.hasEscapes = hasEscapes
            (start, end) = (UInt32(range.lowerBound), UInt32(range.upperBound))
            (self.index, next) = (UInt32(index), UInt32(index + 1))
        }

        /// The value's bytes. For a string those between its quotes.
        public var range: Range<Int> { Int(start)..<Int(end) }
    }

    /// An object's member is two items: its name and its value.
    private(set) var items: [Item] = []

    /// - Parameter deepest: the limit on nested objects and arrays.
    /// - Throws: if the text is not exactly one JSON value in UTF-8. Repeated names are not detected.
    public init(_ text: Span<UInt8>, deepest: Int) throws(JSONError) {
        items.reserveCapacity(16)
        var parser = JSONParser(deepest: deepest)
        try parser.read(text, into: &self)
    }

    public var root: Item { items[0] }

    /// Returns the direct items of an array, or the alternating names and values of an object.
    public func children(of parent: Item) -> [Item] {
        var children: [Item] = []
        var index = Int(parent.index) + 1
        while index < Int(parent.next) {
            children.append(items[index])
            index = Int(items[index].next)
        }
        return children
    }

    fileprivate mutating func append(_ kind: Kind, _ range: Range<Int>, hasEscapes: Bool = false) {
        items.append(Item(kind, range, hasEscapes: hasEscapes, index: items.count))
    }

    /// Appends a placeholder for an array or object that begins here.
    fileprivate mutating func open() -> Int {
        items.append(Item(.null, 0..<0, index: items.count))
        return items.count - 1
    }

    fileprivate mutating func close(_ index: Int, _ kind: Kind, _ range: Range<Int>) {
        items[index] = Item(kind, range, index: index)
        items[index].next = UInt32(items.count)
    }
}

/// Why a text is not one JSON value, and the byte's position.
public struct JSONError: Error, Equatable {
    public enum Problem: Sendable, Equatable {
        case notUTF8, nothingFollows, noValue, noKey, noColon, noCommaOrBrace, noCommaOrBracket, noDigit, controlCharacter,
            openText,
            unknownEscape, notFourDigits, halfASurrogatePair, somethingFollows
        case tooDeep(limit: Int)
    }

    public let problem: Problem
    /// An index into the text, or its count if the text ends too early.
    public let position: Int

    /// - Parameter text: the parsed text.
    /// - Returns: line and column, both from 1. Columns count bytes.
    public func place(in text: Span<UInt8>) -> (line: Int, column: Int) {
        var (line, lineStart) = (1, 0)
        for index in 0..<min(position, text.count) where text[index] == 0x0a { (line, lineStart) = (line + 1, index + 1) }
        return (line, position - lineStart + 1)
    }
}

/// A strict JSON parser. The text is an argument of each method, because a span can't be stored.
private struct JSONParser {
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
    func text(_ range: Range<Int>) -> String { String(decoding: range.map { self[$0] }, as: UTF8.self) }

    func elementsEqual(_ text: String) -> Bool {
        let text = text.utf8.span
        guard count == text.count else { return false }
        for index in indices where self[index] != text[index] { return false }
        return true
    }
}

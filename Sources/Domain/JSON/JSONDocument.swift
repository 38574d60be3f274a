/// The positions of values in a validated JSON text (RFC 8259).
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

    /// The values that a document has items for.
    enum Scope {
        /// The outermost value, and its members or elements. Whatever is inside of those is only checked: any JSON value passes, at any depth.
        case members
        /// All values. Deeper nesting and lone surrogates are errors.
        case all(deepest: Int)
    }

    /// An object's member is two items: its name and its value.
    private(set) var items: [Item] = []
    /// The innermost open object or array. While open, its `next` is the index of the one around it.
    private var innermost = 0

    /// Parses a whole text.
    /// - Throws: if the text is not exactly one JSON value in UTF-8. Repeated names are not detected.
    init(_ text: Span<UInt8>, _ scope: Scope) throws(JSONError) {
        // Invalid UTF-8 is an error even where nothing is read: other parsers may find the end of such a string elsewhere.
        do throws(UTF8.ValidationError) {
            _ = try UTF8Span(validating: text)
        } catch { throw JSONError(problem: .notUTF8, position: error.byteOffsets.lowerBound) }
        try self.init(text, from: 0, scope)
    }

    /// Finds the members or elements of a value of an already parsed text.
    init(_ item: Item, in text: Span<UInt8>) {
        do throws(JSONError) {
            try self.init(text.extracting(first: item.range.upperBound), from: item.range.lowerBound, .members)
        } catch { preconditionFailure("the text was checked") }
    }

    private init(_ text: Span<UInt8>, from start: Int, _ scope: Scope) throws(JSONError) {
        items.reserveCapacity(32)
        var parser = JSONParser(scope, from: start)
        try parser.read(text, into: &self)
    }

    var root: Item { items[0] }

    /// Returns the direct items of an array, or the alternating names and values of an object.
    func children(of parent: Item) -> [Item] {
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

    /// Appends an array or object that begins here.
    fileprivate mutating func open(_ kind: Kind, at start: Int) {
        var item = Item(kind, start..<start, index: items.count)
        item.next = UInt32(innermost)
        innermost = items.count
        items.append(item)
    }

    /// Ends the innermost open array or object.
    fileprivate mutating func close(at end: Int) {
        let item = items[innermost]
        items[innermost] = Item(item.kind, item.range.lowerBound..<end, index: innermost)
        items[innermost].next = UInt32(items.count)
        innermost = Int(item.next)
    }
}

/// Why a text is not one JSON value, and the byte's position.
public struct JSONError: Error, Equatable {
    public enum Problem: Sendable, Equatable {
        case notUTF8, byteOrderMark, nothingFollows, noValue, noKey, noColon, noCommaOrBrace, noCommaOrBracket, noDigit,
            controlCharacter, openText, unknownEscape, notFourDigits, halfASurrogatePair, somethingFollows, noObject
        case tooDeep(limit: Int)

        /// The problem in words. ASCII without quotes and backslashes, as a header requires (RFC 6750 section 3).
        public var words: String {
            switch self {
            case .notUTF8: "this byte is not UTF-8"
            case .byteOrderMark: "a byte order mark precedes the JSON"
            case .nothingFollows: "the text ends where a value is expected"
            case .noValue: "this is not a JSON value; NaN and Infinity are none"
            case .noKey: "a name in double quotes is expected here"
            case .noColon: "a colon is expected after the name"
            case .noCommaOrBrace: "a comma or } is expected here"
            case .noCommaOrBracket: "a comma or ] is expected here"
            case .noDigit: "a digit is expected here"
            case .controlCharacter: "a string has an unescaped control character"
            case .openText: "a string is not closed"
            case .unknownEscape: "an unknown escape"
            case .notFourDigits: "four hexadecimal digits are expected in the escape"
            case .halfASurrogatePair: "half a surrogate pair"
            case .somethingFollows: "there is text after the end of the JSON value"
            case .noObject: "an object is expected here"
            case .tooDeep(let limit): "more than \(limit) nested objects or lists"
            }
        }
    }

    public let problem: Problem
    /// An index into the text, or its count if the text ends too early.
    public let position: Int

    /// - Parameter text: the parsed text.
    /// - Returns: line and column, both from 1. Columns count bytes.
    public static func place(of position: Int, in text: Span<UInt8>) -> (line: Int, column: Int) {
        var (line, lineStart) = (1, 0)
        for index in 0..<min(position, text.count) where text[index] == 0x0a { (line, lineStart) = (line + 1, index + 1) }
        return (line, position - lineStart + 1)
    }

    /// Returns problem and place in words, without any of the text.
    public func words(in text: Span<UInt8>) -> String {
        let (line, column) = Self.place(of: position, in: text)
        return "line \(line), column \(column): \(problem.words)"
    }
}

/// A strict JSON parser without recursion, so that no nesting can exhaust the stack. The text is an argument of each method, because a span can't be
/// stored.
private struct JSONParser {
    private static let digits = UInt8(ascii: "0")...UInt8(ascii: "9")

    private let scope: JSONDocument.Scope
    private var position: Int
    /// The number of open objects and arrays.
    private var depth = 0
    /// A bit for each of them, the innermost lowest: 1 for an object. Full words are moved to `outer`.
    private var kinds: UInt64 = 0
    private var outer: [UInt64] = []

    init(_ scope: JSONDocument.Scope, from start: Int) { (self.scope, position) = (scope, start) }

    mutating func read(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) {
        precondition(text.count <= Int(UInt32.max))
        if position == 0, text.count >= 3, text[0] == 0xef, text[1] == 0xbb, text[2] == 0xbf { throw failure(.byteOrderMark) }
        while true {
            skipSpace(text)
            if try beginValue(text, into: &document) { continue }
            repeat {
                skipSpace(text)
                guard depth > 0 else {
                    guard position == text.count else { throw failure(.somethingFollows) }
                    return
                }
            } while try !follows(text, in: &document)
        }
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

    // MARK: Nesting

    private var isInObject: Bool { kinds & 1 == 1 }

    /// Whether the document has an item for a value at this depth.
    private var isIndexed: Bool { if case .members = scope { depth <= 1 } else { true } }

    private mutating func push(isObject: Bool) {
        if depth > 0, depth.isMultiple(of: 64) { outer.append(kinds) }
        kinds = kinds << 1 | (isObject ? 1 : 0)
        depth += 1
    }

    private mutating func pop() {
        depth -= 1
        kinds >>= 1
        if depth > 0, depth.isMultiple(of: 64) { kinds = outer.removeLast() }
    }

    /// - Returns: true if another value is expected: the first one in an object or array.
    private mutating func beginValue(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) -> Bool {
        switch next(text) {
        case UInt8(ascii: "{"): return try open(isObject: true, text, in: &document)
        case UInt8(ascii: "["): return try open(isObject: false, text, in: &document)
        case UInt8(ascii: "\""): try string(text, into: &document)
        case UInt8(ascii: "t"): try word(text, "true", .bool, into: &document)
        case UInt8(ascii: "f"): try word(text, "false", .bool, into: &document)
        case UInt8(ascii: "n"): try word(text, "null", .null, into: &document)
        case nil: throw failure(.nothingFollows)
        case let byte? where byte == UInt8(ascii: "-") || Self.digits.contains(byte): try number(text, into: &document)
        default: throw failure(.noValue)
        }
        return false
    }

    private mutating func open(
        isObject: Bool, _ text: Span<UInt8>, in document: inout JSONDocument
    ) throws(JSONError) -> Bool {
        if case .all(let deepest) = scope, depth >= deepest { throw failure(.tooDeep(limit: deepest)) }
        if isIndexed { document.open(isObject ? .object : .array, at: position) }
        position += 1
        push(isObject: isObject)
        skipSpace(text)
        if take(isObject ? "}" : "]", text) {
            close(in: &document)
            return false
        }
        if isObject { try name(text, into: &document) }
        return true
    }

    private mutating func close(in document: inout JSONDocument) {
        pop()
        if isIndexed { document.close(at: position) }
    }

    /// Reads what follows a value in an object or array.
    /// - Returns: true if another value is expected, false if the object or array has ended.
    private mutating func follows(_ text: Span<UInt8>, in document: inout JSONDocument) throws(JSONError) -> Bool {
        if take(",", text) {
            if isInObject {
                skipSpace(text)
                try name(text, into: &document)
            }
            return true
        }
        guard take(isInObject ? "}" : "]", text) else { throw failure(isInObject ? .noCommaOrBrace : .noCommaOrBracket) }
        close(in: &document)
        return false
    }

    private mutating func name(_ text: Span<UInt8>, into document: inout JSONDocument) throws(JSONError) {
        guard next(text) == UInt8(ascii: "\"") else { throw failure(.noKey) }
        try string(text, into: &document)
        skipSpace(text)
        guard take(":", text) else { throw failure(.noColon) }
    }

    // MARK: Values without members

    private func append(
        _ kind: JSONDocument.Kind, _ range: Range<Int>, hasEscapes: Bool = false, to document: inout JSONDocument
    ) {
        if isIndexed { document.append(kind, range, hasEscapes: hasEscapes) }
    }

    private mutating func word(
        _ text: Span<UInt8>, _ word: String, _ kind: JSONDocument.Kind, into document: inout JSONDocument
    ) throws(JSONError) {
        let end = position + word.utf8.count
        guard end <= text.count, text.extracting(position..<end).elementsEqual(word) else { throw failure(.noValue) }
        append(kind, position..<end, to: &document)
        position = end
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
        append(.number, start..<position, to: &document)
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
                append(.string, start..<index - 1, hasEscapes: hasEscapes, to: &document)
                position = index
                return
            } else if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                switch scope {
                // A string that nobody reads may have lone surrogates.
                case .members: _ = try JSONString.unit(escapedIn: text, at: &index)
                case .all: _ = try JSONString.scalar(escapedIn: text, at: &index)
                }
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

/// An object in a JSON text. Members are read from the text on demand. A null member counts as absent.
///
/// Members that nobody reads may have any JSON value: lone surrogates, any depth, repeated names.
public struct JSONObject: Sendable {
    /// Why a member is invalid.
    public enum Failure: Error, Equatable {
        case wrongType
        /// Also a string with a lone surrogate, which is no text.
        case outOfRange
        /// The object has the name twice, and parsers differ in which one they read. The position is that of the second.
        case repeated(at: Int)
    }

    private let document: JSONDocument

    /// Parses a text that is an object.
    /// - Throws: the problem and its position, also if the text is JSON but not an object.
    public init(parsing text: Span<UInt8>) throws(JSONError) {
        document = try JSONDocument(text, .members)
        guard document.root.kind == .object else {
            throw JSONError(problem: .noObject, position: document.root.range.lowerBound)
        }
    }

    /// Parses a text that is an object. Returns nil if the text is anything else.
    public init?(_ text: Span<UInt8>) {
        do throws(JSONError) { try self.init(parsing: text) } catch { return nil }
    }

    /// Returns an object inside this one. Nil if the item is not an object.
    public func opened(_ item: JSONDocument.Item, in text: Span<UInt8>) -> JSONObject? {
        item.kind == .object ? JSONObject(document: JSONDocument(item, in: text)) : nil
    }

    private init(document: JSONDocument) { self.document = document }

    /// Calls `use` with each name, also repeated ones, until it returns false. A name with a lone surrogate, which is no text, becomes one U+FFFD.
    public func readNames(in text: Span<UInt8>, while use: (Span<UInt8>) -> Bool) {
        for index in stride(from: 1, to: document.items.count, by: 2) {
            let name = document.items[index]
            let raw = text.extracting(name.range)
            if name.hasEscapes {
                let decoded = JSONString.decode(raw) ?? Array("\u{fffd}".utf8)
                guard use(decoded.span) else { return }
            } else {
                guard use(raw) else { return }
            }
        }
    }

    /// Whether a member of that name exists, even if it is null.
    public func has(_ name: String, in text: Span<UInt8>) -> Bool { indices(of: name, in: text).first != nil }

    /// Returns the indices of the first two values with that name.
    private func indices(of name: String, in text: Span<UInt8>) -> (first: Int?, second: Int?) {
        var first: Int?
        let count = name.utf8.count
        for index in stride(from: 1, to: document.items.count, by: 2) {
            let own = document.items[index]
            guard own.hasEscapes || own.range.count == count else { continue }
            let raw = text.extracting(own.range)
            guard own.hasEscapes ? JSONString.isEqual(raw, to: name) : raw.elementsEqual(name) else { continue }
            if let first { return (first, index + 1) }
            first = index + 1
        }
        return (first, nil)
    }

    /// Returns nil if no member has that name.
    private func value(_ name: String, in text: Span<UInt8>) throws(Failure) -> JSONDocument.Item? {
        let (first, second) = indices(of: name, in: text)
        if let second { throw .repeated(at: document.items[second - 1].range.lowerBound) }
        return first.map { document.items[$0] }
    }

    /// Returns nil if the member is absent or null.
    private func member(
        _ name: String, _ kind: JSONDocument.Kind, in text: Span<UInt8>
    ) throws(Failure) -> JSONDocument.Item? {
        guard let member = try value(name, in: text), member.kind != .null else { return nil }
        guard member.kind == kind else { throw .wrongType }
        return member
    }

    /// Returns a string's bytes with escapes decoded.
    public func bytes(_ name: String, in text: Span<UInt8>) throws(Failure) -> [UInt8]? {
        guard let member = try member(name, .string, in: text) else { return nil }
        return try Self.decode(member, in: text)
    }

    private static func decode(_ item: JSONDocument.Item, in text: Span<UInt8>) throws(Failure) -> [UInt8] {
        guard let bytes = JSONString.decode(text.extracting(item.range)) else { throw .outOfRange }
        return bytes
    }

    /// Returns the range of a string without escapes.
    /// - Throws: `.outOfRange` if the string has escapes. No token or capability has any.
    public func plainString(_ name: String, in text: Span<UInt8>) throws(Failure) -> Range<Int>? {
        guard let member = try member(name, .string, in: text) else { return nil }
        guard !member.hasEscapes else { throw .outOfRange }
        return member.range
    }

    /// Returns a whole number. A fraction, an exponent or a string has the wrong type.
    public func integer(_ name: String, in text: Span<UInt8>) throws(Failure) -> Int? {
        guard let member = try member(name, .number, in: text) else { return nil }
        var value = 0
        let negative = text[member.range.lowerBound] == UInt8(ascii: "-")
        for index in member.range.dropFirst(negative ? 1 : 0) {
            let digit = text[index]
            guard (0x30...0x39).contains(digit) else { throw .wrongType }
            let (shifted, over) = value.multipliedReportingOverflow(by: 10)
            let (sum, overToo) = shifted.addingReportingOverflow(Int(digit) - 0x30)
            if over || overToo { throw .outOfRange }
            value = sum
        }
        return negative ? -value : value
    }

    /// Returns a number of seconds, rounded down to whole ones.
    public func seconds(_ name: String, in text: Span<UInt8>) throws(Failure) -> Int? {
        // Exact where the nearest 64-bit value isn't.
        if let whole = try? integer(name, in: text) { return whole }
        guard let value = try number(name, in: text) else { return nil }
        guard let seconds = Int(exactly: value.rounded(.down)) else { throw .outOfRange }
        return seconds
    }

    /// Returns any number as the nearest 64-bit value.
    public func number(_ name: String, in text: Span<UInt8>) throws(Failure) -> Double? {
        guard let member = try member(name, .number, in: text) else { return nil }
        // Swift accepts every number of JSON.
        guard let value = Double(text.text(member.range)) else { throw .outOfRange }
        return value
    }

    public func bool(_ name: String, in text: Span<UInt8>) throws(Failure) -> Bool? {
        guard let member = try member(name, .bool, in: text) else { return nil }
        return text[member.range.lowerBound] == UInt8(ascii: "t")
    }

    /// Returns an object for `opened`.
    public func object(_ name: String, in text: Span<UInt8>) throws(Failure) -> JSONDocument.Item? {
        try member(name, .object, in: text)
    }

    public func items(_ name: String, in text: Span<UInt8>) throws(Failure) -> [JSONDocument.Item]? {
        guard let member = try member(name, .array, in: text) else { return nil }
        return Self.elements(of: member, in: text)
    }

    private static func elements(of array: JSONDocument.Item, in text: Span<UInt8>) -> [JSONDocument.Item] {
        Array(JSONDocument(array, in: text).items.dropFirst())
    }

    /// Returns a string, or the strings of an array that contains nothing else, with escapes decoded.
    public func texts(_ name: String, in text: Span<UInt8>) throws(Failure) -> [[UInt8]]? {
        guard let member = try value(name, in: text), member.kind != .null else { return nil }
        guard member.kind == .array else { return try bytes(name, in: text).map { [$0] } }
        var texts: [[UInt8]] = []
        for item in Self.elements(of: member, in: text) {
            guard item.kind == .string else { throw .wrongType }
            texts.append(try Self.decode(item, in: text))
        }
        return texts
    }
}

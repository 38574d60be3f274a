/// An object of a document, with distinct names. Members are read from the text on demand. A null member counts as absent.
public struct JSONObject: Sendable {
    /// Why a member is invalid.
    public enum Failure: Error, Equatable { case wrongType, outOfRange }

    /// The nesting limit for input from outside, far more than any valid input needs.
    public static let deepest = 16

    private let document: JSONDocument
    private let item: JSONDocument.Item

    /// Parses a text that is an object.
    /// - Returns: nil if the text is anything else, repeats a name or nests more than 16 deep.
    public init?(_ text: Span<UInt8>) {
        do throws(JSONError) {
            let document = try JSONDocument(text, deepest: Self.deepest)
            self.init(document, document.root, in: text)
        } catch { return nil }
    }

    private init?(_ document: JSONDocument, _ item: JSONDocument.Item, in text: Span<UInt8>) {
        guard item.kind == .object else { return nil }
        (self.document, self.item) = (document, item)
        guard hasDistinctNames(in: text) else { return nil }
    }

    private func hasDistinctNames(in text: Span<UInt8>) -> Bool {
        let names = nameItems
        // Avoid quadratic time for thousands of names.
        guard names.count <= 16 else { return Set(self.names(in: text)).count == names.count }
        for (index, name) in names.enumerated() {
            for other in names[..<index] where Self.isSame(name, other, in: text) { return false }
        }
        return true
    }

    private static func isSame(_ left: JSONDocument.Item, _ right: JSONDocument.Item, in text: Span<UInt8>) -> Bool {
        let (first, second) = (text.extracting(left.range), text.extracting(right.range))
        if left.hasEscapes || right.hasEscapes { return JSONString.decode(first) == JSONString.decode(second) }
        guard first.count == second.count else { return false }
        for index in first.indices where first[index] != second[index] { return false }
        return true
    }

    /// Returns an object inside this one. Nil if it repeats a name.
    public func opened(_ item: JSONDocument.Item, in text: Span<UInt8>) -> JSONObject? { JSONObject(document, item, in: text) }

    private var nameItems: [JSONDocument.Item] {
        var names: [JSONDocument.Item] = []
        names.reserveCapacity(16)
        var index = Int(item.index) + 1
        while index < Int(item.next) {
            names.append(document.items[index])
            index = Int(document.items[index + 1].next)
        }
        return names
    }

    public func names(in text: Span<UInt8>) -> [[UInt8]] {
        var names: [[UInt8]] = []
        for name in nameItems { names.append(JSONString.decode(text.extracting(name.range))) }
        return names
    }

    /// Whether a member of that name exists, even if it is null.
    public func has(_ name: String, in text: Span<UInt8>) -> Bool { value(name, in: text) != nil }

    private func value(_ name: String, in text: Span<UInt8>) -> JSONDocument.Item? {
        var index = Int(item.index) + 1
        while index < Int(item.next) {
            let (own, value) = (document.items[index], document.items[index + 1])
            let raw = text.extracting(own.range)
            if own.hasEscapes ? JSONString.decode(raw).elementsEqual(name.utf8) : raw.elementsEqual(name) { return value }
            index = Int(value.next)
        }
        return nil
    }

    /// Returns nil if the member is absent or null.
    private func member(
        _ name: String, _ kind: JSONDocument.Kind, in text: Span<UInt8>
    ) throws(Failure) -> JSONDocument.Item? {
        guard let member = value(name, in: text), member.kind != .null else { return nil }
        guard member.kind == kind else { throw .wrongType }
        return member
    }

    /// Returns a string's bytes with escapes decoded.
    public func bytes(_ name: String, in text: Span<UInt8>) throws(Failure) -> [UInt8]? {
        guard let member = try member(name, .string, in: text) else { return nil }
        return JSONString.decode(text.extracting(member.range))
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
        try member(name, .array, in: text).map(document.children)
    }

    /// Returns a string, or the strings of an array that contains nothing else, with escapes decoded.
    public func texts(_ name: String, in text: Span<UInt8>) throws(Failure) -> [[UInt8]]? {
        guard let member = value(name, in: text), member.kind != .null else { return nil }
        guard member.kind == .array else { return try bytes(name, in: text).map { [$0] } }
        var texts: [[UInt8]] = []
        for item in document.children(of: member) {
            guard item.kind == .string else { throw .wrongType }
            texts.append(JSONString.decode(text.extracting(item.range)))
        }
        return texts
    }
}

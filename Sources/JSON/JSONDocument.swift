/// Where the values of one JSON text (RFC 8259) lie, all of them checked.
///
/// A document holds places and no bytes, and gets the text again for each read. So a secret goes from the caller's buffer to where the
/// caller puts it, and nowhere else.
public struct JSONDocument: Sendable {
    public enum Kind: UInt8, Sendable { case null, bool, number, string, array, object }

    /// A value.
    public struct Item: Sendable, Equatable {
        public let kind: Kind
        let hasEscapes: Bool
        private let start: UInt32
        private let end: UInt32
        /// Its index among the document's items, in the order of the text.
        let index: UInt32
        /// The index of what follows it and everything in it.
        fileprivate(set) var next: UInt32

        init(_ kind: Kind, _ range: Range<Int>, hasEscapes: Bool = false, index: Int) {
            self.kind = kind
            self.hasEscapes = hasEscapes
            (start, end) = (UInt32(range.lowerBound), UInt32(range.upperBound))
            (self.index, next) = (UInt32(index), UInt32(index + 1))
        }

        /// The value's bytes; of a string those between its quotes.
        public var range: Range<Int> { Int(start)..<Int(end) }
    }

    /// In an object each member is two items: its name and its value.
    private(set) var items: [Item] = []

    /// - Parameter deepest: the most objects and arrays inside one another.
    /// - Throws: where the text stops being one JSON value in UTF-8. Repeated names are left to the caller.
    public init(_ text: Span<UInt8>, deepest: Int) throws(JSONError) {
        items.reserveCapacity(16)
        var parser = JSONParser(deepest: deepest)
        try parser.read(text, into: &self)
    }

    public var root: Item { items[0] }

    /// The items directly in an array, or the names and values of an object in turn.
    public func children(of parent: Item) -> [Item] {
        var children: [Item] = []
        var index = Int(parent.index) + 1
        while index < Int(parent.next) {
            children.append(items[index])
            index = Int(items[index].next)
        }
        return children
    }

    mutating func append(_ kind: Kind, _ range: Range<Int>, hasEscapes: Bool = false) {
        items.append(Item(kind, range, hasEscapes: hasEscapes, index: items.count))
    }

    /// Makes room for an array or object that begins here.
    mutating func open() -> Int {
        items.append(Item(.null, 0..<0, index: items.count))
        return items.count - 1
    }

    mutating func close(_ index: Int, _ kind: Kind, _ range: Range<Int>) {
        items[index] = Item(kind, range, index: index)
        items[index].next = UInt32(items.count)
    }
}

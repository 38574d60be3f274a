import Vocabulary

/// Reads the parts of a canonical entry one after the other. The bytes are handed in each time: a span can't be kept.
struct EntryScanner {
    private(set) var position = 0

    /// Reads `"key":` where the key is `first` or one that sorts after it; nil otherwise.
    mutating func key(from first: UInt8, in bytes: Span<UInt8>) -> EntryFields.Key? {
        for index in Int(first)..<Self.keys.count {
            let text = Self.keys[index]
            let end = position + text.count
            if end <= bytes.count, bytes.matches(text, at: position..<end) {
                position = end
                return EntryFields.Key(rawValue: UInt8(index))
            }
        }
        return nil
    }

    mutating func expect(_ mark: Unicode.Scalar, in bytes: Span<UInt8>) throws(EntryError) {
        guard skip(mark, in: bytes) else { throw .syntax(position: position) }
    }

    mutating func skip(_ mark: Unicode.Scalar, in bytes: Span<UInt8>) -> Bool {
        guard position < bytes.count, bytes[position] == UInt8(ascii: mark) else { return false }
        position += 1
        return true
    }

    /// A string of characters that `EntryText` allows, 1 to 128 of them; returns where they lie, without the quotes.
    mutating func text(in bytes: Span<UInt8>) throws(EntryError) -> Range<Int> {
        try expect("\"", in: bytes)
        let start = position
        while position < bytes.count, EntryText.allows(bytes[position]) { position += 1 }
        let range = start..<position
        guard (1...EntryText.limit).contains(range.count) else { throw .value(position: start) }
        try expect("\"", in: bytes)
        return range
    }

    mutating func time(in bytes: Span<UInt8>) throws(EntryError) -> UInt64 {
        try expect("\"", in: bytes)
        guard let time = Timestamp.parse(bytes, at: position) else { throw .value(position: position) }
        position += Timestamp.count
        try expect("\"", in: bytes)
        return time
    }

    mutating func id<ID: OpaqueID>(in bytes: Span<UInt8>) throws(EntryError) -> ID {
        try expect("\"", in: bytes)
        let end = position + 2 * ID.count
        guard end <= bytes.count, let id = ID(hex: bytes.extracting(position..<end)) else {
            throw .value(position: position)
        }
        position = end
        try expect("\"", in: bytes)
        return id
    }

    /// Returns where the 64 digits of a digest lie, without the quotes.
    mutating func digest(in bytes: Span<UInt8>) throws(EntryError) -> Range<Int> {
        let start = position
        let range = try text(in: bytes)
        guard Digest(hex: bytes.extracting(range)) != nil else { throw .value(position: start) }
        return range
    }

    /// Decimal digits, no leading zero.
    mutating func number(upTo limit: UInt64, in bytes: Span<UInt8>) throws(EntryError) -> UInt64 {
        let start = position
        var number: UInt64 = 0
        while position < bytes.count, case let digit = bytes[position] &- UInt8(ascii: "0"), digit < 10 {
            guard position == start || number > 0 else { throw .value(position: start) }
            number = number * 10 + UInt64(digit)
            guard number <= limit else { throw .value(position: start) }
            position += 1
        }
        guard position > start else { throw .value(position: start) }
        return number
    }

    private static let keys = EntryFields.Key.allCases.map { Array("\"\($0)\":".utf8) }
}

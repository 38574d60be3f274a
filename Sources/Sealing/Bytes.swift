import Vocabulary

extension Array where Element == UInt8 {
    /// `u16be length || text`; a longer text is a programmer's mistake.
    mutating func append(counted text: String) {
        append(bigEndian: UInt16(text.utf8.count))
        append(contentsOf: text.utf8)
    }

    /// `u16be length || bytes`; more bytes are a programmer's mistake.
    mutating func append(counted bytes: [UInt8]) {
        append(bigEndian: UInt16(bytes.count))
        append(contentsOf: bytes)
    }
}

extension MutableSpan where Element == UInt8 {
    mutating func write(_ bytes: Span<UInt8>, at offset: Int) {
        for index in bytes.indices { self[offset + index] = bytes[index] }
    }
}

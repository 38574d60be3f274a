// The one byte order of all formats here.

extension Array where Element == UInt8 {
    mutating func append<Number: FixedWidthInteger>(bigEndian number: Number) {
        for shift in stride(from: Number.bitWidth - 8, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

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
    mutating func write<Number: FixedWidthInteger>(bigEndian number: Number, at offset: Int) {
        for index in 0..<Number.bitWidth / 8 {
            self[offset + index] = UInt8(truncatingIfNeeded: number >> (Number.bitWidth - 8 - 8 * index))
        }
    }

    mutating func write(_ bytes: Span<UInt8>, at offset: Int) {
        for index in bytes.indices { self[offset + index] = bytes[index] }
    }
}

extension Span where Element == UInt8 {
    func bigEndian64(at offset: Int) -> UInt64 {
        var number: UInt64 = 0
        for index in offset..<offset + 8 { number = number << 8 | UInt64(self[index]) }
        return number
    }

    func bigEndian32(at offset: Int) -> UInt32 {
        var number: UInt32 = 0
        for index in offset..<offset + 4 { number = number << 8 | UInt32(self[index]) }
        return number
    }
}

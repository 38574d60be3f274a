// The one byte order of all formats here.

extension [UInt8] {
    @inlinable
    public mutating func append<Number: FixedWidthInteger>(bigEndian number: Number) {
        for shift in stride(from: Number.bitWidth - 8, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    /// A number's bytes.
    @inlinable
    public init<Number: FixedWidthInteger>(bigEndian number: Number) {
        self = []
        append(bigEndian: number)
    }
}

extension MutableSpan<UInt8> {
    @inlinable
    public mutating func write<Number: FixedWidthInteger>(bigEndian number: Number, at offset: Int) {
        for index in 0..<Number.bitWidth / 8 {
            self[offset + index] = UInt8(truncatingIfNeeded: number >> (Number.bitWidth - 8 - 8 * index))
        }
    }
}

extension Span<UInt8> {
    @inlinable
    public func bigEndian64(at offset: Int) -> UInt64 {
        var number: UInt64 = 0
        for index in offset..<offset + 8 { number = number << 8 | UInt64(self[index]) }
        return number
    }

    @inlinable
    public func bigEndian32(at offset: Int) -> UInt32 {
        var number: UInt32 = 0
        for index in offset..<offset + 4 { number = number << 8 | UInt32(self[index]) }
        return number
    }
}

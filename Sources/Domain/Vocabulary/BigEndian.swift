/// A value of a fixed number of bytes, at most 32.
public protocol FixedBytes {
    static var count: Int { get }
    /// Reads the `count` bytes at `offset`.
    init(_ bytes: Span<UInt8>, at offset: Int)
    /// Writes the value to the front of `bytes`.
    func write(to bytes: inout MutableSpan<UInt8>)
}

extension FixedBytes {
    /// Returns nil unless there are exactly `count` bytes.
    @inlinable
    public init?(bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.init(bytes, at: 0)
    }

    @inlinable
    public var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.count)
        var span = bytes.mutableSpan
        write(to: &span)
        return bytes
    }

    /// Lends the bytes without an array.
    @inlinable
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        write(to: &span)
        return try body(bytes.span.extracting(first: Self.count))
    }
}

extension [UInt8] {
    @inlinable
    public mutating func append<Value: FixedBytes>(_ value: Value) {
        let start = count
        append(contentsOf: repeatElement(0, count: Value.count))
        var all = mutableSpan
        var room = all._mutatingExtracting(start..<start + Value.count)
        value.write(to: &room)
    }

    @inlinable
    public mutating func append<Number: FixedWidthInteger>(bigEndian number: Number) {
        for shift in stride(from: Number.bitWidth - 8, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    /// The bytes of a number.
    @inlinable
    public init<Number: FixedWidthInteger>(bigEndian number: Number) {
        self = []
        append(bigEndian: number)
    }
}

// One check of bounds, and constant ones for the loop, let the compiler make one load or store of all bytes.
extension MutableSpan<UInt8> {
    @inlinable
    public mutating func write<Number: FixedWidthInteger>(bigEndian number: Number, at offset: Int) {
        var bytes = _mutatingExtracting(offset..<offset + Number.bitWidth / 8)
        for index in 0..<Number.bitWidth / 8 {
            bytes[index] = UInt8(truncatingIfNeeded: number >> (Number.bitWidth - 8 - 8 * index))
        }
    }
}

extension Span<UInt8> {
    @inlinable
    public func bigEndian64(at offset: Int) -> UInt64 {
        let bytes = extracting(offset..<offset + 8)
        var number: UInt64 = 0
        for index in 0..<8 { number |= UInt64(bytes[index]) << (8 * index) }
        return number.byteSwapped
    }

    @inlinable
    public func bigEndian32(at offset: Int) -> UInt32 {
        let bytes = extracting(offset..<offset + 4)
        var number: UInt32 = 0
        for index in 0..<4 { number |= UInt32(bytes[index]) << (8 * index) }
        return number.byteSwapped
    }
}

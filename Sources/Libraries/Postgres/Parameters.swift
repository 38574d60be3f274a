/// Values for a statement's parameters, in PostgreSQL's binary format.
public struct Parameters: Sendable {
    var bytes: [UInt8] = []
    /// The end of each value in `bytes`. A negative number is a null after that many bytes.
    private(set) var ends: [Int] = []

    public init() {}

    public var count: Int { ends.count }

    /// Adds a `bigint`.
    public mutating func add(_ value: Int64) {
        append(UInt64(bitPattern: value))
        ends.append(bytes.count)
    }

    /// Adds a `bytea`.
    public mutating func add(_ value: Span<UInt8>) {
        for index in value.indices { bytes.append(value[index]) }
        ends.append(bytes.count)
    }

    public mutating func add(_ value: String) {
        bytes += value.utf8
        ends.append(bytes.count)
    }

    public mutating func addNull() { ends.append(-bytes.count - 1) }

    /// Adds a `bigint[]` (src/backend/utils/adt/arrayfuncs.c, `array_recv`).
    public mutating func add(_ values: [Int64]) {
        let bigint: UInt32 = 20
        append(UInt32(values.isEmpty ? 0 : 1))
        append(UInt32(0))
        append(bigint)
        if !values.isEmpty {
            append(UInt32(values.count))
            append(UInt32(1))
        }
        for value in values {
            append(UInt32(8))
            append(UInt64(bitPattern: value))
        }
        ends.append(bytes.count)
    }

    private mutating func append(_ value: some FixedWidthInteger) {
        for byte in stride(from: value.bitWidth - 8, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: value >> byte))
        }
    }

    /// Calls `body` with the range of each value's bytes, or nil for a null.
    func eachRange(_ body: (Range<Int>?) -> Void) {
        var start = 0
        for end in ends {
            body(end < 0 ? nil : start..<end)
            start = end < 0 ? -end - 1 : end
        }
    }
}

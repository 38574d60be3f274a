import Sodium
import Vocabulary

/// A `ref` or a `job`: 16 random bytes that mean nothing outside the ledger and one row, written as 32 lower-case hexadecimal digits.
public struct OpaqueID: Sendable, Hashable, Comparable, CustomStringConvertible {
    public static let count = 16

    /// The bytes as a big-endian number, so that order of numbers is order of bytes.
    public let value: UInt128

    public init(_ value: UInt128) { self.value = value }

    /// `bytes`: exactly 16, or nil.
    public init?(_ bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        var value: UInt128 = 0
        for index in 0..<Self.count { value = value << 8 | UInt128(bytes[index]) }
        self.value = value
    }

    /// 32 lower-case hexadecimal digits, or nil.
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count, let high = Hex.number(hex, at: 0), let low = Hex.number(hex, at: 16) else {
            return nil
        }
        value = UInt128(high) << 64 | UInt128(low)
    }

    /// A fresh one from the system's generator.
    public static func random() -> OpaqueID {
        var bytes = InlineArray<16, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        Sodium.fillRandom(&span)
        return OpaqueID(bytes.span)!
    }

    public var bytes: [UInt8] { (0..<Self.count).map { UInt8(truncatingIfNeeded: value >> (8 * (15 - $0))) } }

    public static func < (left: OpaqueID, right: OpaqueID) -> Bool { left.value < right.value }

    public var description: String {
        var text: [UInt8] = []
        text.append(hexOf: self)
        return String(decoding: text, as: UTF8.self)
    }
}

extension [UInt8] {
    mutating func append(hexOf id: OpaqueID) {
        Hex.append(UInt64(truncatingIfNeeded: id.value >> 64), to: &self)
        Hex.append(UInt64(truncatingIfNeeded: id.value), to: &self)
    }
}

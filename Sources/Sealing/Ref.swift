import Sodium
import Vocabulary

/// 16 bytes that name something, written as 32 lower-case hexadecimal digits. Ordered as its bytes are.
public protocol RandomID: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The first and the last eight bytes, most significant first.
    var high: UInt64 { get }
    var low: UInt64 { get }
    init(high: UInt64, low: UInt64)
}

extension RandomID {
    public static var count: Int { 16 }

    fileprivate static func random(_ fill: (inout MutableSpan<UInt8>) -> Void) -> Self {
        var bytes = InlineArray<16, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        fill(&span)
        return Self(high: bytes.span.bigEndian64(at: 0), low: bytes.span.bigEndian64(at: 8))
    }

    /// From 16 bytes; nil for any other number.
    public init?(bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.init(high: bytes.bigEndian64(at: 0), low: bytes.bigEndian64(at: 8))
    }

    /// From 32 lower-case digits, the one form there is; nil for anything else.
    public init?(_ text: String) {
        guard let bytes = Hex.decode(text) else { return nil }
        self.init(bytes: bytes.span)
        guard description == text else { return nil }
    }

    public var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.count)
        var span = bytes.mutableSpan
        span.write(bigEndian: high, at: 0)
        span.write(bigEndian: low, at: 8)
        return bytes
    }

    /// 32 lower-case digits in ASCII.
    public var hex: [UInt8] {
        var digits = [UInt8](repeating: 0, count: 2 * Self.count)
        let bytes = bytes
        var span = digits.mutableSpan
        Hex.encode(bytes.span, into: &span)
        return digits
    }

    public var description: String { String(decoding: hex, as: UTF8.self) }

    public static func < (left: Self, right: Self) -> Bool { (left.high, left.low) < (right.high, right.low) }
}

/// The owner's secret name of one token. Whoever knows it finds the token's entries in the ledger, so no row has it in the clear.
public struct Ref: RandomID {
    public let high: UInt64
    public let low: UInt64

    /// Drawn from the operating system when it is needed: none lies in memory before there is a token.
    public static func random() -> Self { random { Sodium.fillRandom(&$0) } }

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

/// Names a token's row, and the entry of its purge: the ledger's id of a purge in the day of the token's expiry. Not secret.
public struct PurgeID: RandomID {
    public let high: UInt64
    public let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

/// Names one knock's durable row. Not secret.
public struct JobID: RandomID {
    public let high: UInt64
    public let low: UInt64

    public static func random() -> Self { random { Sodium.fillPublicRandom(&$0) } }

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

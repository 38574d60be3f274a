import Sodium

/// An identifier of 16 bytes, printed as 32 lower-case hexadecimal digits. Ordered like its bytes.
public protocol OpaqueID: FixedBytes, Sendable, Hashable, Comparable, BitwiseCopyable, CustomStringConvertible {
    /// The first and the last eight bytes, most significant first.
    var high: UInt64 { get }
    var low: UInt64 { get }
    init(high: UInt64, low: UInt64)
}

/// The owner's secret name of a token. It finds the token's entries in the ledger, so no row contains it in the clear.
@frozen
public struct Ref: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// From the operating system's generator, not from a pool, so that no future ref is in memory.
    public static func random() -> Ref { drawn { Sodium.fillRandom(&$0) } }
}

/// The ledger's id of an entry about a token. The id of its purge is also the token's row id. Not secret.
@frozen
public struct EntryID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// The id of a push, in its row and in the ledger. Not secret.
@frozen
public struct JobID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> JobID { drawn { Sodium.fillPublicRandom(&$0) } }
}

/// A registration's id for its owner. It does not change when the token is resealed.
@frozen
public struct RegistrationID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> RegistrationID { drawn { Sodium.fillRandom(&$0) } }
}

/// The broker's id of an approval or a question.
@frozen
public struct RequestID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> RequestID { drawn { Sodium.fillPublicRandom(&$0) } }
}

/// An app in a sealed address. Derived from its bundle id, whose length would differ. Not secret.
@frozen
public struct AppID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// The value in a push that tells the phone its subject. Only a holder of the key can interpret it.
@frozen
public struct Handle: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// The handle of a push about a request is the request's id.
    public init(_ request: RequestID) { self.init(high: request.high, low: request.low) }

    /// For a push without a subject.
    public static func random() -> Handle { drawn { Sodium.fillRandom(&$0) } }
}

extension OpaqueID {
    @inlinable public static var count: Int { 16 }

    @inlinable
    public init(_ bytes: Span<UInt8>, at offset: Int) {
        self.init(high: bytes.bigEndian64(at: offset), low: bytes.bigEndian64(at: offset + 8))
    }

    @inlinable
    public func write(to bytes: inout MutableSpan<UInt8>) {
        bytes.write(bigEndian: high, at: 0)
        bytes.write(bigEndian: low, at: 8)
    }

    /// Parses 32 lower-case digits. Returns nil for anything else.
    @inlinable
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count, let high = Hex.number(hex, at: 0), let low = Hex.number(hex, at: 16) else {
            return nil
        }
        self.init(high: high, low: low)
    }

    /// Reads the bytes as a big-endian number, so that numbers and bytes have the same order.
    @inlinable
    public init(_ value: UInt128) {
        self.init(high: UInt64(truncatingIfNeeded: value >> 64), low: UInt64(truncatingIfNeeded: value))
    }

    @inlinable public var value: UInt128 { UInt128(high) << 64 | UInt128(low) }

    fileprivate static func drawn(_ fill: (inout MutableSpan<UInt8>) -> Void) -> Self {
        var bytes = InlineArray<16, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        fill(&span)
        return Self(bytes.span, at: 0)
    }

    /// 32 lower-case digits in ASCII.
    @inlinable
    public var hex: [UInt8] {
        var digits = [UInt8](repeating: 0, count: 2 * Self.count)
        var span = digits.mutableSpan
        withBytes { Hex.encode($0, into: &span) }
        return digits
    }

    /// 22 characters.
    public var base64url: String { withBytes { Base64.url.encode($0) } }

    /// Parses 22 characters. Returns nil for anything else.
    public init?(base64url text: Substring) {
        guard text.utf8.count == 22, let bytes = Base64.url.decode(String(text)) else { return nil }
        self.init(bytes: bytes.span)
    }

    public var description: String { String(decoding: hex, as: UTF8.self) }

    @inlinable
    public static func < (left: Self, right: Self) -> Bool { (left.high, left.low) < (right.high, right.low) }
}

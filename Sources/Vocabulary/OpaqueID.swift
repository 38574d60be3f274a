import Sodium

/// 16 bytes that name something, written as 32 lower-case hexadecimal digits. Ordered as its bytes are.
public protocol OpaqueID: Sendable, Hashable, Comparable, BitwiseCopyable, CustomStringConvertible {
    /// The first and the last eight bytes, most significant first.
    var high: UInt64 { get }
    var low: UInt64 { get }
    init(high: UInt64, low: UInt64)
}

/// The owner's secret name of one token. Whoever knows it finds the token's entries in the ledger, so no row has it in the clear.
@frozen
public struct Ref: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// Drawn from the operating system when it is needed: none lies in memory before there is a token.
    public static func random() -> Ref { drawn { Sodium.fillRandom(&$0) } }
}

/// What the ledger calls an entry about a token. The id of its purge names the token's row as well. Not secret.
@frozen
public struct EntryID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// Names one push's durable row, and the push in the ledger. Not secret.
@frozen
public struct JobID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> JobID { drawn { Sodium.fillPublicRandom(&$0) } }
}

/// A registration's name to its owner, which stays when its token is sealed anew.
@frozen
public struct RegistrationID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> RegistrationID { drawn { Sodium.fillRandom(&$0) } }
}

/// What the broker calls an approval or a question.
@frozen
public struct RequestID: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    public static func random() -> RequestID { drawn { Sodium.fillPublicRandom(&$0) } }
}

/// What a push carries so that the phone knows what it is about: only who holds a key can tell.
@frozen
public struct Handle: OpaqueID {
    public let high, low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// Pushes about a request carry its id.
    public init(_ request: RequestID) { self.init(high: request.high, low: request.low) }

    /// For a push that is about nothing.
    public static func random() -> Handle { drawn { Sodium.fillRandom(&$0) } }
}

extension OpaqueID {
    @inlinable public static var count: Int { 16 }

    /// From 16 bytes; nil for any other number.
    @inlinable
    public init?(bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.init(high: bytes.bigEndian64(at: 0), low: bytes.bigEndian64(at: 8))
    }

    /// From 32 lower-case digits, the one form there is; nil for anything else.
    @inlinable
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count, let high = Hex.number(hex, at: 0), let low = Hex.number(hex, at: 16) else {
            return nil
        }
        self.init(high: high, low: low)
    }

    /// The bytes as a big-endian number, so that order of numbers is order of bytes.
    @inlinable
    public init(_ value: UInt128) {
        self.init(high: UInt64(truncatingIfNeeded: value >> 64), low: UInt64(truncatingIfNeeded: value))
    }

    @inlinable public var value: UInt128 { UInt128(high) << 64 | UInt128(low) }

    fileprivate static func drawn(_ fill: (inout MutableSpan<UInt8>) -> Void) -> Self {
        var bytes = InlineArray<16, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        fill(&span)
        return Self(high: bytes.span.bigEndian64(at: 0), low: bytes.span.bigEndian64(at: 8))
    }

    @inlinable
    public var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.count)
        bytes.append(self)
        return bytes
    }

    /// Lends the 16 bytes without an array.
    @inlinable
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var bytes = InlineArray<16, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        span.write(bigEndian: high, at: 0)
        span.write(bigEndian: low, at: 8)
        return try body(bytes.span)
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

    /// From the 22 characters; nil for anything else.
    public init?(base64url text: Substring) {
        guard text.utf8.count == 22, let bytes = Base64.url.decode(String(text)) else { return nil }
        self.init(bytes: bytes.span)
    }

    public var description: String { String(decoding: hex, as: UTF8.self) }

    @inlinable
    public static func < (left: Self, right: Self) -> Bool { (left.high, left.low) < (right.high, right.low) }
}

extension [UInt8] {
    @inlinable
    public mutating func append(_ id: some OpaqueID) {
        append(bigEndian: id.high)
        append(bigEndian: id.low)
    }
}

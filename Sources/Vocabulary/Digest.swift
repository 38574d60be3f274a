public import Sodium

/// 32 bytes of a hash: by which a row is found, a node of the log's tree, the name of a policy's file.
@frozen
public struct Digest: Sendable, Hashable, BitwiseCopyable, CustomStringConvertible {
    /// The bytes in fours of eight, most significant first.
    public let first, second, third, fourth: UInt64

    @inlinable public static var count: Int { 32 }

    @inlinable
    init(_ first: UInt64, _ second: UInt64, _ third: UInt64, _ fourth: UInt64) {
        (self.first, self.second, self.third, self.fourth) = (first, second, third, fourth)
    }

    /// The digest at `offset`.
    @inlinable
    public init(_ bytes: Span<UInt8>, at offset: Int) {
        self.init(
            bytes.bigEndian64(at: offset), bytes.bigEndian64(at: offset + 8), bytes.bigEndian64(at: offset + 16),
            bytes.bigEndian64(at: offset + 24))
    }

    @inlinable
    public init(_ bytes: InlineArray<32, UInt8>) { self.init(bytes.span, at: 0) }

    /// From 32 bytes; nil for any other number.
    @inlinable
    public init?(bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.init(bytes, at: 0)
    }

    /// From 64 lower-case digits; nil for anything else.
    @inlinable
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count, let first = Hex.number(hex, at: 0), let second = Hex.number(hex, at: 16),
            let third = Hex.number(hex, at: 32), let fourth = Hex.number(hex, at: 48)
        else { return nil }
        self.init(first, second, third, fourth)
    }

    /// `leading`, and the first 24 bytes of another.
    @inlinable
    public init(leading: UInt64, _ rest: Digest) { self.init(leading, rest.first, rest.second, rest.third) }

    /// What a finished hash gives.
    public init(finishing hash: consuming SHA256) {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        hash.finish(into: &span)
        self.init(bytes)
    }

    public static func sha256(_ bytes: Span<UInt8>) -> Digest {
        var hash = SHA256()
        hash.update(bytes)
        return Digest(finishing: hash)
    }

    /// Takes the same time wherever they differ: what is compared may be a keyed hash of a guess.
    @inlinable
    public static func == (left: Digest, right: Digest) -> Bool {
        (left.first ^ right.first) | (left.second ^ right.second) | (left.third ^ right.third) | (left.fourth ^ right.fourth) == 0
    }

    public var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.count)
        bytes.append(self)
        return bytes
    }

    /// Lends the 32 bytes without an array.
    @inlinable
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        span.write(bigEndian: first, at: 0)
        span.write(bigEndian: second, at: 8)
        span.write(bigEndian: third, at: 16)
        span.write(bigEndian: fourth, at: 24)
        return try body(bytes.span)
    }

    /// 64 lower-case digits.
    public var hex: String { withBytes { Hex.encode($0) } }

    public var base64: String { withBytes { Base64.standard.encode($0) } }

    /// Nothing of it: an index shows who is meant to anyone who can derive it.
    public var description: String { "<digest>" }
}

extension [UInt8] {
    @inlinable
    public mutating func append(_ digest: Digest) {
        append(bigEndian: digest.first)
        append(bigEndian: digest.second)
        append(bigEndian: digest.third)
        append(bigEndian: digest.fourth)
    }
}

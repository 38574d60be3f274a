import Sodium
import Vocabulary

/// 32 bytes by which a row is found: an index or a hash, safe to store.
public struct Digest: Sendable, Hashable, CustomStringConvertible {
    public static let count = 32

    private let first, second, third, fourth: UInt64

    /// From 32 bytes; nil for any other number.
    public init?(bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        first = bytes.bigEndian64(at: 0)
        second = bytes.bigEndian64(at: 8)
        third = bytes.bigEndian64(at: 16)
        fourth = bytes.bigEndian64(at: 24)
    }

    init(_ bytes: InlineArray<32, UInt8>) {
        let span = bytes.span
        first = span.bigEndian64(at: 0)
        second = span.bigEndian64(at: 8)
        third = span.bigEndian64(at: 16)
        fourth = span.bigEndian64(at: 24)
    }

    /// `leading`, big-endian, and the first 24 bytes of another.
    init(leading: UInt64, _ rest: Digest) {
        (first, second, third, fourth) = (leading, rest.first, rest.second, rest.third)
    }

    public var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.count)
        var span = bytes.mutableSpan
        span.write(bigEndian: first, at: 0)
        span.write(bigEndian: second, at: 8)
        span.write(bigEndian: third, at: 16)
        span.write(bigEndian: fourth, at: 24)
        return bytes
    }

    /// Lends the 32 bytes without an array.
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

    /// Nothing of it: an index tells who is meant to anyone who can derive it.
    public var description: String { "<digest>" }
}

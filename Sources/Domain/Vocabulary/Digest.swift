public import Sodium

/// 32 bytes of a hash: an index of a row, a node of the log's tree, a policy's file name.
@frozen
public struct Digest: FixedBytes, Sendable, Hashable, BitwiseCopyable, CustomStringConvertible {
    /// Eight bytes each, most significant first.
    public let first, second, third, fourth: UInt64

    @inlinable public static var count: Int { 32 }

    @inlinable
    init(_ first: UInt64, _ second: UInt64, _ third: UInt64, _ fourth: UInt64) {
        (self.first, self.second, self.third, self.fourth) = (first, second, third, fourth)
    }

    /// Reads the digest at `offset`.
    @inlinable
    public init(_ bytes: Span<UInt8>, at offset: Int) {
        self.init(
            bytes.bigEndian64(at: offset), bytes.bigEndian64(at: offset + 8), bytes.bigEndian64(at: offset + 16),
            bytes.bigEndian64(at: offset + 24))
    }

    @inlinable
    public init(_ bytes: InlineArray<32, UInt8>) { self.init(bytes.span, at: 0) }

    /// Parses 64 lower-case digits. Returns nil for anything else.
    @inlinable
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count, let first = Hex.number(hex, at: 0), let second = Hex.number(hex, at: 16),
            let third = Hex.number(hex, at: 32), let fourth = Hex.number(hex, at: 48)
        else { return nil }
        self.init(first, second, third, fourth)
    }

    /// Combines `leading` with the first 24 bytes of another digest.
    @inlinable
    public init(leading: UInt64, _ rest: Digest) { self.init(leading, rest.first, rest.second, rest.third) }

    /// Finishes a hash.
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

    /// Compares in constant time: a digest may be the keyed hash of a guess.
    @inlinable
    public static func == (left: Digest, right: Digest) -> Bool {
        (left.first ^ right.first) | (left.second ^ right.second) | (left.third ^ right.third) | (left.fourth ^ right.fourth) == 0
    }

    @inlinable
    public func write(to bytes: inout MutableSpan<UInt8>) {
        bytes.write(bigEndian: first, at: 0)
        bytes.write(bigEndian: second, at: 8)
        bytes.write(bigEndian: third, at: 16)
        bytes.write(bigEndian: fourth, at: 24)
    }

    /// 64 lower-case digits.
    public var hex: String { withBytes { Hex.encode($0) } }

    public var base64: String { withBytes { Base64.standard.encode($0) } }

    /// Redacted, because anyone who can derive an index can recognise its owner.
    public var description: String { "<digest>" }
}

import Sodium
import Vocabulary

/// A SHA-256 digest: a node of the tree, or the name of a policy file.
public struct Digest: Sendable, Hashable, CustomStringConvertible {
    public static let count = 32

    public let bytes: InlineArray<32, UInt8>

    /// `bytes`: exactly 32, or nil.
    public init?(_ bytes: Span<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.bytes = InlineArray { bytes[$0] }
    }

    init(_ bytes: InlineArray<32, UInt8>) { self.bytes = bytes }

    /// The digest at `offset` of a hash tile.
    init(_ bytes: Span<UInt8>, at offset: Int) {
        self.bytes = InlineArray { bytes[offset + $0] }
    }

    /// 64 lower-case hexadecimal digits, or nil.
    public init?(hex: Span<UInt8>) {
        guard hex.count == 2 * Self.count else { return nil }
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        for part in 0..<4 {
            guard let number = Hex.number(hex, at: 16 * part) else { return nil }
            for index in 0..<8 { bytes[8 * part + index] = UInt8(truncatingIfNeeded: number >> (56 - 8 * index)) }
        }
        self.bytes = bytes
    }

    /// The digest that a finished hash gives.
    init(finishing hash: consuming SHA256) {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        hash.finish(into: &span)
        self.bytes = bytes
    }

    public static func sha256(_ bytes: Span<UInt8>) -> Digest {
        var hash = SHA256()
        hash.update(bytes)
        return Digest(finishing: hash)
    }

    public static func == (left: Digest, right: Digest) -> Bool {
        var difference: UInt8 = 0
        for index in 0..<count { difference |= left.bytes[index] ^ right.bytes[index] }
        return difference == 0
    }

    public func hash(into hasher: inout Hasher) {
        for index in 0..<8 { hasher.combine(bytes[index]) }
    }

    /// 64 lower-case hexadecimal digits.
    public var description: String { Hex.encode(bytes.span) }

    public var base64: String { Base64.standard.encode(bytes.span) }
}

extension [UInt8] {
    mutating func append(_ digest: Digest) {
        for index in 0..<Digest.count { append(digest.bytes[index]) }
    }
}

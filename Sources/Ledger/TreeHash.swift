import Sodium
import TLS
public import Vocabulary

/// The hashes of RFC 6962's tree: leaves and nodes begin with different bytes, so that neither can pass for the other.
extension Digest {
    /// The root of the empty tree: SHA-256 of nothing.
    public static let emptyRoot = Digest(finishing: SHA256())

    public static func leaf(_ entry: Span<UInt8>) -> Digest { prefixed(0, entry) }

    public static func node(_ left: Digest, _ right: Digest) -> Digest {
        left.withBytes { left in right.withBytes { prefixed(1, left, $0) } }
    }

    private static func prefixed(_ prefix: UInt8, _ first: Span<UInt8>, _ second: Span<UInt8> = Span()) -> Digest {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var digest = bytes.mutableSpan
        PrefixedSHA256.hash(prefix, first, second, into: &digest)
        return Digest(bytes)
    }
}

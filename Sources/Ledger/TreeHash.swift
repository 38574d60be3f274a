import Sodium

/// The hashes of RFC 6962's tree: leaves and nodes begin with different bytes, so that neither can pass for the other.
extension Digest {
    /// The root of the empty tree: SHA-256 of nothing.
    public static let emptyRoot = Digest(finishing: SHA256())

    public static func leaf(_ entry: Span<UInt8>) -> Digest {
        var hash = SHA256()
        hash.update(0)
        hash.update(entry)
        return Digest(finishing: hash)
    }

    public static func node(_ left: Digest, _ right: Digest) -> Digest {
        var hash = SHA256()
        hash.update(1)
        hash.update(left.bytes.span)
        hash.update(right.bytes.span)
        return Digest(finishing: hash)
    }
}

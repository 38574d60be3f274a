import CSodium

/// SHA-256 (FIPS 180-4), fed span by span.
public struct SHA256: ~Copyable {
    public static let digestCount = 32
    private var state = crypto_hash_sha256_state()

    public init() {
        Sodium.initialize()
        _ = unsafe crypto_hash_sha256_init(&state)
    }

    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer {
            guard let start = $0.baseAddress else { return }
            _ = unsafe crypto_hash_sha256_update(&state, start, UInt64($0.count))
        }
    }

    public mutating func update(_ byte: UInt8) {
        var byte = byte
        _ = unsafe crypto_hash_sha256_update(&state, &byte, 1)
    }

    /// Writes the 32 bytes of the digest to `digest`.
    public consuming func finish(into digest: inout MutableSpan<UInt8>) {
        precondition(digest.count == Self.digestCount)
        unsafe digest.withUnsafeMutableBufferPointer {
            _ = unsafe crypto_hash_sha256_final(&state, $0.baseAddress!)
        }
    }

    public consuming func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Self.digestCount)
        var span = digest.mutableSpan
        finish(into: &span)
        return digest
    }

    public static func hash(_ message: Span<UInt8>) -> [UInt8] {
        var hash = SHA256()
        hash.update(message)
        return hash.finish()
    }
}

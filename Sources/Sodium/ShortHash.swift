import CSodium

/// SipHash-2-4 (`crypto_shorthash`) under a random key: names rows of a table so that nobody outside can make two of them collide.
///
/// The key is ordinary memory. Whoever reads the process can test guesses of what was hashed.
public struct ShortHash: Sendable {
    private let key: InlineArray<2, UInt64>

    /// Draws a new key.
    public init() {
        Sodium.initialize()
        let bytes = Sodium.randomBytes(16)
        key = [bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, bytes.suffix(8).reduce(0) { $0 << 8 | UInt64($1) }]
    }

    public func hash(_ bytes: Span<UInt8>) -> UInt64 {
        var digest: UInt64 = 0
        let key = key
        unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe withUnsafeBytes(of: key) { key in
                unsafe withUnsafeMutableBytes(of: &digest) { digest in
                    _ = unsafe crypto_shorthash(
                        digest.baseAddress!.assumingMemoryBound(to: UInt8.self), bytes.baseAddress, UInt64(bytes.count),
                        key.baseAddress!.assumingMemoryBound(to: UInt8.self))
                }
            }
        }
        return digest
    }
}

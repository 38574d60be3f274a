internal import COpenSSL

/// SHA-256 of a byte and what follows it: the nodes of a log's tree. Three times as fast as libsodium's where the processor can help.
public enum PrefixedSHA256 {
    /// Writes the 32 bytes of the digest to `digest`.
    public static func hash(
        _ prefix: UInt8, _ first: Span<UInt8>, _ second: Span<UInt8> = Span(), into digest: inout MutableSpan<UInt8>
    ) {
        precondition(digest.count == 32)
        unsafe first.withUnsafeBufferPointer { first in
            unsafe second.withUnsafeBufferPointer { second in
                unsafe digest.withUnsafeMutableBufferPointer { digest in
                    unsafe mayfly_sha256(
                        prefix, first.baseAddress, first.count, second.baseAddress, second.count, digest.baseAddress)
                }
            }
        }
    }
}

internal import COpenSSL

/// Incremental SHA-256 for whole files. Much faster than libsodium's on processors with SHA instructions.
@safe public struct StreamedSHA256: ~Copyable {
    private let context: OpaquePointer

    public init() {
        guard let context = unsafe EVP_MD_CTX_new(), unsafe EVP_DigestInit_ex(context, EVP_sha256(), nil) == 1 else {
            preconditionFailure("OpenSSL was built without SHA-256, or there is no memory")
        }
        unsafe self.context = context
    }

    deinit { unsafe EVP_MD_CTX_free(context) }

    public mutating func update(_ bytes: Span<UInt8>) {
        let done = unsafe bytes.withUnsafeBufferPointer { unsafe EVP_DigestUpdate(context, $0.baseAddress, $0.count) }
        precondition(done == 1)
    }

    /// Returns the digest of 32 bytes.
    public consuming func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        precondition(unsafe EVP_DigestFinal_ex(context, &digest, nil) == 1)
        return digest
    }
}

/// SHA-256 of a prefix byte and up to two spans: the nodes of the log's tree. Three times as fast as libsodium's on processors with SHA instructions.
public enum PrefixedSHA256 {
    /// Writes the digest of 32 bytes.
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

/// SHA-1 for the WebSocket handshake (RFC 6455, 4.2.2). Not secure: don't use it for anything else.
public enum SHA1 {
    /// Returns the digest of 20 bytes.
    public static func digest(_ message: Span<UInt8>) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 20)
        let done = unsafe message.withUnsafeBufferPointer { message in
            unsafe EVP_Digest(message.baseAddress, message.count, &digest, nil, EVP_sha1(), nil)
        }
        precondition(done == 1, "OpenSSL was built without SHA-1")
        return digest
    }
}

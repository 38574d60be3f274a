internal import COpenSSL

/// Ed25519 keys as PEM (RFC 8410). What is done with them is libsodium's.
public enum Ed25519PEM {
    public static let count = 32

    /// The 32 bytes of a public key (SubjectPublicKeyInfo).
    /// - Throws: `TLSError.badKey` for anything else.
    public static func publicKey(_ pem: Span<UInt8>) throws(TLSError) -> [UInt8] {
        let key = try unsafe PEM.publicKey(pem)
        defer { unsafe EVP_PKEY_free(key) }
        var bytes = [UInt8](repeating: 0, count: count)
        var length = count
        guard unsafe EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519,
            unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &length) == 1, length == count
        else { throw .badKey }
        return bytes
    }

    /// Writes the 32 bytes of a private key (unencrypted PKCS#8), RFC 8032's, to `seed`.
    /// - Throws: `TLSError.badKey` for anything else.
    public static func privateKey(_ pem: Span<UInt8>, into seed: inout MutableSpan<UInt8>) throws(TLSError) {
        precondition(seed.count == count)
        let key = try unsafe PEM.privateKey(pem)
        defer { unsafe EVP_PKEY_free(key) }
        guard unsafe EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 else { throw .badKey }
        let isWhole = unsafe seed.withUnsafeMutableBufferPointer { seed in
            var length = seed.count
            return unsafe EVP_PKEY_get_raw_private_key(key, seed.baseAddress, &length) == 1 && length == count
        }
        guard isWhole else { throw .badKey }
    }
}

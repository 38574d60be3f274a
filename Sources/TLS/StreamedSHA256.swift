internal import COpenSSL

/// SHA-256 fed span by span, for whole files. Much faster than libsodium's where the processor can help.
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

    /// The 32 bytes of the digest.
    public consuming func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        precondition(unsafe EVP_DigestFinal_ex(context, &digest, nil) == 1)
        return digest
    }
}

internal import COpenSSL

/// Reads PKCS#12 (`.p12`, RFC 7292).
enum PKCS12 {
    /// The caller frees both.
    @unsafe struct Contents {
        /// The key's certificate first. Empty if there is none.
        var chain: [OpaquePointer] = unsafe []
        var key: OpaquePointer?
    }

    static func open(_ file: Span<UInt8>, passphrase: Span<UInt8>) throws(ClientCertificateError) -> Contents {
        ERR_clear_error()
        defer { ERR_clear_error() }
        guard let library = Library() else { throw .outOfMemory }
        // Allocate in the library context that has the old ciphers.
        var box = unsafe PKCS12_init_ex(NID_pkcs7_data, library.context, nil)
        guard unsafe box != nil else { throw .outOfMemory }
        defer { unsafe PKCS12_free(box) }
        let read = unsafe file.withUnsafeBufferPointer { bytes in
            var cursor = bytes.baseAddress
            return unsafe d2i_PKCS12(&box, &cursor, bytes.count) != nil
        }
        guard read else { throw .notPKCS12 }
        return try unsafe withPassphrase(passphrase) { (text) throws(ClientCertificateError) in
            guard unsafe PKCS12_mac_present(box) == 1 else { throw .notPKCS12 }
            guard unsafe PKCS12_verify_mac(box, text, -1) == 1 || (passphrase.isEmpty && PKCS12_verify_mac(box, nil, 0) == 1)
            else {
                throw passphrase.isEmpty ? .needsPassphrase : .wrongPassphrase
            }
            return try unsafe parse(box, text)
        }
    }

    private static func parse(_ box: OpaquePointer?, _ passphrase: UnsafePointer<CChar>) throws(ClientCertificateError)
        -> Contents
    {
        var key: OpaquePointer?
        var leaf: OpaquePointer?
        var others: OpaquePointer?
        defer {
            unsafe EVP_PKEY_free(key)
            unsafe X509_free(leaf)
            for index in 0..<max(0, unsafe OPENSSL_sk_num(others)) {
                unsafe X509_free(OpaquePointer(OPENSSL_sk_value(others, index)))
            }
            unsafe OPENSSL_sk_free(others)
        }
        // The passphrase was verified above, so a failure means an unsupported cipher.
        guard unsafe PKCS12_parse(box, passphrase, &key, &leaf, &others) == 1 else { throw .unsupportedPKCS12 }
        var contents = unsafe Contents()
        // Copy keys and certificates out of the library context, which is freed on return.
        unsafe contents.key = unsafe key.flatMap { unsafe copy(key: $0) }
        var certificates: [OpaquePointer] = unsafe leaf.map { unsafe [$0] } ?? []
        for index in 0..<max(0, unsafe OPENSSL_sk_num(others)) {
            if let other = unsafe OpaquePointer(OPENSSL_sk_value(others, index)) { unsafe certificates.append(other) }
        }
        for index in unsafe certificates.indices {
            if let copied = unsafe copy(certificate: certificates[index]) { unsafe contents.chain.append(copied) }
        }
        return unsafe contents
    }

    /// Lends the passphrase as a C string and wipes it afterwards.
    private static func withPassphrase<R, E>(
        _ bytes: Span<UInt8>, _ body: (UnsafePointer<CChar>) throws(E) -> R
    ) throws(E) -> R {
        var text = [CChar](repeating: 0, count: bytes.count + 1)
        for index in bytes.indices { text[index] = CChar(bitPattern: bytes[index]) }
        defer { unsafe text.withUnsafeMutableBytes { unsafe OPENSSL_cleanse($0.baseAddress, $0.count) } }
        return try unsafe text.withUnsafeBufferPointer { (buffer) throws(E) -> R in try unsafe body(buffer.baseAddress!) }
    }

    private static func copy(key: OpaquePointer) -> OpaquePointer? {
        var der: UnsafeMutablePointer<UInt8>?
        let count = unsafe i2d_PrivateKey(key, &der)
        guard count > 0, let der = unsafe der else { return nil }
        defer { unsafe CRYPTO_clear_free(der, Int(count), #file, #line) }
        var cursor: UnsafePointer<UInt8>? = unsafe UnsafePointer(der)
        return unsafe d2i_AutoPrivateKey(nil, &cursor, Int(count))
    }

    private static func copy(certificate: OpaquePointer) -> OpaquePointer? {
        var der: UnsafeMutablePointer<UInt8>?
        let count = unsafe i2d_X509(certificate, &der)
        guard count > 0, let der = unsafe der else { return nil }
        defer { unsafe CRYPTO_free(der, #file, #line) }
        var cursor: UnsafePointer<UInt8>? = unsafe UnsafePointer(der)
        return unsafe d2i_X509(nil, &cursor, Int(count))
    }

    /// A separate OpenSSL library context with the legacy ciphers that Keychain Access still uses, such as RC2. TLS doesn't use it.
    @safe private final class Library {
        let context: OpaquePointer
        private let providers: [OpaquePointer?]

        init?() {
            guard let context = unsafe OSSL_LIB_CTX_new() else { return nil }
            unsafe self.context = unsafe context
            unsafe providers = unsafe [OSSL_PROVIDER_load(context, "default"), OSSL_PROVIDER_load(context, "legacy")]
        }

        deinit {
            for index in unsafe providers.indices {
                if let provider = unsafe providers[index] { unsafe OSSL_PROVIDER_unload(provider) }
            }
            unsafe OSSL_LIB_CTX_free(context)
        }
    }
}

internal import COpenSSL

/// Reads and writes PEM in memory.
enum PEM {
    /// Calls `body` with a read-only BIO over `text`.
    static func reading<R>(_ text: Span<UInt8>, _ body: (OpaquePointer) throws(TLSError) -> R) throws(TLSError) -> R {
        try unsafe text.withUnsafeBytes { (bytes) throws(TLSError) -> R in
            guard let bio = unsafe BIO_new_mem_buf(bytes.baseAddress, Int32(clamping: bytes.count)) else { throw .outOfMemory }
            defer { unsafe BIO_free(bio) }
            return try unsafe body(bio)
        }
    }

    /// Returns the bytes that `body` writes to a BIO. The BIO's memory is wiped afterwards.
    static func writing(_ body: (OpaquePointer) -> Bool) throws(TLSError) -> [UInt8] {
        guard let bio = unsafe BIO_new(BIO_s_secmem()) else { throw .outOfMemory }
        defer { unsafe BIO_free(bio) }
        guard unsafe body(bio) else { throw .outOfMemory }
        var text = [UInt8](repeating: 0, count: unsafe BIO_ctrl_pending(bio))
        let count = unsafe text.withUnsafeMutableBytes { unsafe BIO_read(bio, $0.baseAddress, Int32($0.count)) }
        guard Int(count) == text.count else { throw .outOfMemory }
        return text
    }

    /// Returns all certificates in `text`, in order. The caller frees them.
    static func certificates(_ text: Span<UInt8>) throws(TLSError) -> [OpaquePointer] {
        try unsafe reading(text) { (bio) throws(TLSError) -> [OpaquePointer] in
            var found: [OpaquePointer] = unsafe []
            ERR_clear_error()
            while let certificate = unsafe PEM_read_bio_X509(bio, nil, noPassphrase, nil) {
                unsafe found.append(certificate)
            }
            let end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE
            ERR_clear_error()
            guard unsafe end && !found.isEmpty else {
                unsafe free(found)
                throw .badCertificate
            }
            return unsafe found
        }
    }

    static func free(_ certificates: [OpaquePointer]) {
        for index in unsafe certificates.indices { unsafe X509_free(certificates[index]) }
    }

    /// Returns the unencrypted private key in `text`. The caller frees it.
    static func privateKey(_ text: Span<UInt8>) throws(TLSError) -> OpaquePointer {
        try unsafe key(text) { unsafe PEM_read_bio_PrivateKey($0, nil, noPassphrase, nil) }
    }

    private static func key(_ text: Span<UInt8>, _ read: (OpaquePointer) -> OpaquePointer?) throws(TLSError) -> OpaquePointer {
        try unsafe reading(text) { (bio) throws(TLSError) -> OpaquePointer in
            guard let key = unsafe read(bio) else {
                ERR_clear_error()
                throw .badKey
            }
            return unsafe key
        }
    }

    /// Returns the private key in `text`, which may be encrypted. The caller frees it.
    static func privateKey(_ text: Span<UInt8>, passphrase: Span<UInt8>?) throws(ClientCertificateError) -> OpaquePointer {
        ERR_clear_error()
        defer { ERR_clear_error() }
        var question = PassphraseQuestion(passphrase)
        defer { question.wipe() }
        let key: OpaquePointer?
        do throws(TLSError) {
            unsafe key = try unsafe reading(text) { (bio) throws(TLSError) in
                unsafe withUnsafeMutablePointer(to: &question) { unsafe PEM_read_bio_PrivateKey(bio, nil, answer, $0) }
            }
        } catch { throw .outOfMemory }
        if let key = unsafe key { return unsafe key }
        if question.wasAsked { throw passphrase?.isEmpty ?? true ? .needsPassphrase : .wrongPassphrase }
        throw holds("PRIVATE KEY-----", in: text) ? .badKey : .noKey
    }

    /// Whether `mark` occurs in `text`. OpenSSL's errors don't tell a missing key from a damaged one.
    static func holds(_ mark: String, in text: Span<UInt8>) -> Bool {
        let mark = Array(mark.utf8)
        guard text.count >= mark.count else { return false }
        return (0...text.count - mark.count).contains { start in mark.indices.allSatisfy { text[start + $0] == mark[$0] } }
    }

    /// Returns the public key in `text`. The caller frees it.
    static func publicKey(_ text: Span<UInt8>) throws(TLSError) -> OpaquePointer {
        try unsafe key(text) { unsafe PEM_read_bio_PUBKEY($0, nil, noPassphrase, nil) }
    }
}

/// Without this callback OpenSSL would prompt on the terminal for an encrypted key's passphrase.
private func noPassphrase(_: UnsafeMutablePointer<CChar>?, _: Int32, _: Int32, _: UnsafeMutableRawPointer?) -> Int32 { -1 }

/// The passphrase for OpenSSL's callback, and whether OpenSSL asked for it.
private struct PassphraseQuestion {
    private var passphrase: [UInt8]?
    private(set) var wasAsked = false

    init(_ bytes: Span<UInt8>?) {
        guard let bytes else { return }
        passphrase = unsafe bytes.withUnsafeBufferPointer { unsafe Array($0) }
    }

    mutating func wipe() { unsafe passphrase?.withUnsafeMutableBytes { unsafe OPENSSL_cleanse($0.baseAddress, $0.count) } }

    mutating func answer(_ buffer: UnsafeMutablePointer<CChar>?, _ size: Int32) -> Int32 {
        wasAsked = true
        guard let passphrase, passphrase.count <= Int(size) else { return -1 }
        for index in passphrase.indices { unsafe buffer![index] = CChar(bitPattern: passphrase[index]) }
        return Int32(passphrase.count)
    }
}

private func answer(
    _ buffer: UnsafeMutablePointer<CChar>?, _ size: Int32, _: Int32, _ question: UnsafeMutableRawPointer?
) -> Int32 {
    unsafe question!.assumingMemoryBound(to: PassphraseQuestion.self).pointee.answer(buffer, size)
}

/// Ed25519 keys as PEM (RFC 8410). libsodium signs and verifies with them.
public enum Ed25519PEM {
    public static let count = 32

    /// Returns the 32 bytes of a public key (SubjectPublicKeyInfo).
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

    /// Writes the 32 bytes of a private key (unencrypted PKCS#8, RFC 8032) to `seed`.
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

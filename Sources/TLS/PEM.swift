internal import COpenSSL

/// Reading and writing PEM in memory.
enum PEM {
    /// Calls `body` with a read-only BIO over `text`.
    static func reading<R>(_ text: Span<UInt8>, _ body: (OpaquePointer) throws(TLSError) -> R) throws(TLSError) -> R {
        try unsafe text.withUnsafeBytes { (bytes) throws(TLSError) -> R in
            guard let bio = unsafe BIO_new_mem_buf(bytes.baseAddress, Int32(clamping: bytes.count)) else { throw .outOfMemory }
            defer { unsafe BIO_free(bio) }
            return try unsafe body(bio)
        }
    }

    /// The bytes `body` writes to a BIO whose memory is wiped afterwards.
    static func writing(_ body: (OpaquePointer) -> Bool) throws(TLSError) -> [UInt8] {
        guard let bio = unsafe BIO_new(BIO_s_secmem()) else { throw .outOfMemory }
        defer { unsafe BIO_free(bio) }
        guard unsafe body(bio) else { throw .outOfMemory }
        var text = [UInt8](repeating: 0, count: unsafe BIO_ctrl_pending(bio))
        let count = unsafe text.withUnsafeMutableBytes { unsafe BIO_read(bio, $0.baseAddress, Int32($0.count)) }
        guard Int(count) == text.count else { throw .outOfMemory }
        return text
    }

    /// All certificates of `text`, in order; the caller frees them.
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

    /// The private key in `text`; the caller frees it.
    static func privateKey(_ text: Span<UInt8>) throws(TLSError) -> OpaquePointer {
        try unsafe reading(text) { (bio) throws(TLSError) -> OpaquePointer in
            guard let key = unsafe PEM_read_bio_PrivateKey(bio, nil, noPassphrase, nil) else {
                ERR_clear_error()
                throw .badKey
            }
            return unsafe key
        }
    }

    /// The private key in `text`, which may be encrypted; the caller frees it.
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
        throw announcesKey(text) ? .badKey : .noKey
    }

    /// Whether `text` says that it holds a private key: OpenSSL's errors don't tell that from a damaged one.
    private static func announcesKey(_ text: Span<UInt8>) -> Bool {
        let mark = Array("PRIVATE KEY-----".utf8)
        guard text.count >= mark.count else { return false }
        return (0...text.count - mark.count).contains { start in mark.indices.allSatisfy { text[start + $0] == mark[$0] } }
    }

    /// The public key in `text`; the caller frees it.
    static func publicKey(_ text: Span<UInt8>) throws(TLSError) -> OpaquePointer {
        try unsafe reading(text) { (bio) throws(TLSError) -> OpaquePointer in
            guard let key = unsafe PEM_read_bio_PUBKEY(bio, nil, noPassphrase, nil) else {
                ERR_clear_error()
                throw .badKey
            }
            return unsafe key
        }
    }

}

/// Without it OpenSSL would ask on the terminal for the passphrase of an encrypted key.
private func noPassphrase(_: UnsafeMutablePointer<CChar>?, _: Int32, _: Int32, _: UnsafeMutableRawPointer?) -> Int32 { -1 }

/// OpenSSL's question for a passphrase, and whether it was asked at all.
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

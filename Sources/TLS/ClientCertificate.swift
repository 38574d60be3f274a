internal import COpenSSL

/// The certificate by which a client is known to servers, with its chain and its private key.
@safe public final class ClientCertificate: @unchecked Sendable {  // certificates and key are only read after init
    /// Leaf first.
    let chain: [OpaquePointer]
    let key: OpaquePointer
    /// What Apple made it for, if it says so: full topics, in their order there; by the extension that lists them, or else the subject's user ids.
    public let topics: [String]
    /// The object identifiers of its extensions, with dots.
    public let extensions: [String]

    /// - Parameters:
    ///   - pem: the certificates, leaf first; anything else in it is passed over. - key: the leaf's private key; may be the same text.
    ///   - passphrase: of an encrypted key; without meaning for another.
    public convenience init(
        pem: Span<UInt8>, key: Span<UInt8>, passphrase: Span<UInt8>? = nil
    ) throws(ClientCertificateError) {
        let chain: [OpaquePointer]
        do throws(TLSError) { unsafe chain = unsafe try PEM.certificates(pem) } catch { throw .noCertificate }
        do throws(ClientCertificateError) {
            try unsafe self.init(chain, PEM.privateKey(key, passphrase: passphrase))
        } catch {
            unsafe PEM.free(chain)
            throw error
        }
    }

    /// - Parameters:
    ///   - pkcs12: a `.p12` file, as Keychain Access exports it, with its old ciphers too. - passphrase: may be empty.
    public convenience init(pkcs12: Span<UInt8>, passphrase: Span<UInt8>) throws(ClientCertificateError) {
        let contents = unsafe try PKCS12.open(pkcs12, passphrase: passphrase)
        do throws(ClientCertificateError) {
            guard let key = unsafe contents.key else { throw .noKey }
            guard unsafe !contents.chain.isEmpty else { throw .noCertificate }
            try unsafe self.init(contents.chain, key)
        } catch {
            unsafe PEM.free(contents.chain)
            unsafe EVP_PKEY_free(contents.key)
            throw error
        }
    }

    /// Takes both over, unless it throws.
    private init(_ chain: [OpaquePointer], _ key: OpaquePointer) throws(ClientCertificateError) {
        guard unsafe X509_check_private_key(chain[0], key) == 1 else {
            ERR_clear_error()
            throw .keyMismatch
        }
        unsafe self.chain = unsafe chain
        unsafe self.key = unsafe key
        topics = unsafe Self.topics(of: chain[0])
        extensions = unsafe CertificateFields.extensions(of: chain[0])
    }

    deinit {
        unsafe PEM.free(chain)
        unsafe EVP_PKEY_free(key)
    }

    /// Whether both are the same certificates in the same order.
    public func isSame(as other: ClientCertificate) -> Bool {
        guard unsafe chain.count == other.chain.count else { return false }
        return unsafe zip(chain, other.chain).allSatisfy { unsafe X509_cmp($0, $1) == 0 }
    }

    /// - Parameter nowS: unix seconds.
    /// - Throws: `expired` or `notYetValid`.
    public func check(nowS: UInt64) throws(ClientCertificateError) {
        var now = time_t(clamping: nowS)
        let start = unsafe X509_get0_notBefore(chain[0])
        let end = unsafe X509_get0_notAfter(chain[0])
        if unsafe X509_cmp_time(start, &now) > 0 { throw .notYetValid(from: unsafe Self.day(start)) }
        if unsafe X509_cmp_time(end, &now) < 0 { throw .expired(on: unsafe Self.day(end)) }
    }

    /// `2026-01-31`
    private static func day(_ time: UnsafePointer<ASN1_TIME>?) -> String {
        var parts = unsafe tm()
        guard unsafe ASN1_TIME_to_tm(time, &parts) == 1 else { return "an unreadable day" }
        let twoDigits = { (number: Int32) in (number < 10 ? "0" : "") + String(number) }
        return unsafe "\(parts.tm_year + 1900)-\(twoDigits(parts.tm_mon + 1))-\(twoDigits(parts.tm_mday))"
    }

    // MARK: Topics

    /// Apple's list of the topics that a certificate is for.
    private static let listedTopics = "1.2.840.113635.100.6.3.6"

    private static func topics(of certificate: OpaquePointer) -> [String] {
        defer { ERR_clear_error() }
        guard let object = unsafe OBJ_txt2obj(listedTopics, 1) else { return [] }
        defer { unsafe ASN1_OBJECT_free(object) }
        let place = unsafe X509_get_ext_by_OBJ(certificate, object, -1)
        if place >= 0, let data = unsafe X509_EXTENSION_get_data(X509_get_ext(certificate, place)) {
            let bytes = unsafe UnsafeBufferPointer(start: ASN1_STRING_get0_data(data), count: Int(ASN1_STRING_length(data)))
            return unsafe TopicList.read(Span(_unsafeElements: bytes))
        }
        return unsafe CertificateFields.userIDs(of: certificate).filter { !$0.isEmpty }
    }
}

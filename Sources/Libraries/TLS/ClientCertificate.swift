internal import COpenSSL

/// A client's certificate with its chain and private key.
@safe public final class ClientCertificate: @unchecked Sendable {  // certificates and key are only read after init
    /// Leaf first.
    let chain: [OpaquePointer]
    let key: OpaquePointer
    /// The full topics that Apple issued the certificate for, in the certificate's order. From the extension that lists them, otherwise from the
    /// subject's user ids.
    public let topics: [String]
    /// The object identifiers of its extensions, with dots.
    public let extensions: [String]
    /// When the first certificate of its chain expires, unix seconds.
    public let expiryS: UInt64

    /// - Parameters:
    ///   - pem: the certificates, leaf first. Other content is ignored.
    ///   - key: the leaf's private key. May be the same text as `pem`.
    ///   - passphrase: of an encrypted key. Ignored for an unencrypted one.
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
    ///   - pkcs12: a `.p12` file as Keychain Access exports it. Old ciphers are supported.
    ///   - passphrase: may be empty.
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

    /// Takes ownership of both unless it throws.
    private init(_ chain: [OpaquePointer], _ key: OpaquePointer) throws(ClientCertificateError) {
        guard unsafe X509_check_private_key(chain[0], key) == 1 else {
            ERR_clear_error()
            throw .keyMismatch
        }
        unsafe self.chain = unsafe chain
        unsafe self.key = unsafe key
        topics = unsafe Self.topics(of: chain[0])
        extensions = unsafe CertificateFields.extensions(of: chain[0])
        expiryS = unsafe CertificateExpiry.ofChain(chain)
    }

    deinit {
        unsafe PEM.free(chain)
        unsafe EVP_PKEY_free(key)
    }

    /// Whether both have the same certificates in the same order.
    public func isSame(as other: ClientCertificate) -> Bool {
        guard unsafe chain.count == other.chain.count else { return false }
        return unsafe zip(chain, other.chain).allSatisfy { unsafe X509_cmp($0, $1) == 0 }
    }

    /// - Parameter host: an IP address or a DNS name.
    public func names(_ host: String) -> Bool {
        unsafe X509_check_ip_asc(chain[0], host, 0) == 1 || X509_check_host(chain[0], host, host.utf8.count, 0, nil) == 1
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

    /// Apple's extension that lists a certificate's topics.
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

/// Why a client's certificate can't be used.
public enum ClientCertificateError: Error, Sendable, Equatable {
    case noCertificate
    case noKey
    case badKey
    case needsPassphrase
    case wrongPassphrase
    case notPKCS12
    case unsupportedPKCS12
    case keyMismatch
    /// A day in UTC: `2026-01-31`.
    case expired(on: String)
    case notYetValid(from: String)
    case outOfMemory
}

extension ClientCertificateError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .noCertificate: "it contains no readable certificate"
        case .noKey: "it contains no private key. Export the certificate together with its key"
        case .badKey: "its private key is damaged or of an unsupported kind"
        case .needsPassphrase: "it is encrypted: its passphrase is missing"
        case .wrongPassphrase: "the passphrase is wrong"
        case .notPKCS12: "it is not a PKCS#12 file (.p12), or it is damaged"
        case .unsupportedPKCS12:
            "this machine's OpenSSL doesn't support its encryption. Convert it to PEM with `openssl pkcs12 -legacy -nodes`"
        case .keyMismatch: "the private key does not belong to the certificate"
        case .expired(let day): "the certificate expired on \(day)"
        case .notYetValid(let day): "the certificate is not valid before \(day). Check this machine's clock"
        case .outOfMemory: "OpenSSL could not allocate memory"
        }
    }
}

/// Fields of a certificate beside its key and its dates.
enum CertificateFields {
    /// The user ids of the subject (0.9.2342.19200300.100.1.1), in order.
    static func userIDs(of certificate: OpaquePointer) -> [String] {
        let subject = unsafe X509_get_subject_name(certificate)
        var found: [String] = []
        var place: Int32 = -1
        while true {
            place = unsafe X509_NAME_get_index_by_NID(subject, NID_userId, place)
            guard place >= 0 else { return found }
            var text: UnsafeMutablePointer<UInt8>?
            let count = unsafe ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)))
            guard count >= 0, let text = unsafe text else { continue }
            unsafe found.append(String(decoding: UnsafeBufferPointer(start: text, count: Int(count)), as: UTF8.self))
            unsafe CRYPTO_free(text, #file, #line)
        }
    }

    /// The object identifiers of its extensions, with dots.
    static func extensions(of certificate: OpaquePointer) -> [String] {
        unsafe (0..<X509_get_ext_count(certificate)).map { place in
            let object = unsafe X509_EXTENSION_get_object(X509_get_ext(certificate, place))
            var text = [UInt8](repeating: 0, count: 100)
            let count = unsafe text.withUnsafeMutableBytes {
                unsafe OBJ_obj2txt($0.bindMemory(to: CChar.self).baseAddress, Int32($0.count), object, 1)
            }
            return String(decoding: text.prefix(max(0, Int(count))), as: UTF8.self)
        }
    }
}

/// A push certificate's list of topics: a DER sequence of topics (UTF8String), each followed by a sequence that describes it.
enum TopicList {
    private static let sequence: UInt8 = 0x30
    private static let utf8String: UInt8 = 0x0c

    /// - Returns: the topics; empty if the bytes are no such list.
    static func read(_ der: Span<UInt8>) -> [String] {
        var index = 0
        guard let list = next(der, &index), list.tag == sequence, index == der.count else { return [] }
        var topics: [String] = []
        var place = list.content.lowerBound
        let content = der.extracting(first: list.content.upperBound)
        while place < content.count {
            guard let part = next(content, &place) else { return [] }
            guard part.tag == utf8String else { continue }
            var text: [UInt8] = []
            for index in part.content { text.append(content[index]) }
            topics.append(String(decoding: text, as: UTF8.self))
        }
        return topics
    }

    /// Returns the tag and the content's range at `index`, and advances `index` behind it. Returns nil for a truncated value or an indefinite length.
    private static func next(_ der: Span<UInt8>, _ index: inout Int) -> (tag: UInt8, content: Range<Int>)? {
        guard index + 2 <= der.count else { return nil }
        let tag = der[index]
        var length = Int(der[index + 1])
        index += 2
        if length >= 0x80 {
            let digits = length - 0x80
            guard (1...3).contains(digits), index + digits <= der.count else { return nil }
            length = 0
            for _ in 0..<digits {
                length = length << 8 | Int(der[index])
                index += 1
            }
        }
        guard length <= der.count - index else { return nil }
        defer { index += length }
        return (tag, index..<index + length)
    }
}

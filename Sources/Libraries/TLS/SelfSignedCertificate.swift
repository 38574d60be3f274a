internal import COpenSSL

/// A temporary certificate and its key for simulators and tests. The peer trusts its PEM as the authority.
public struct SelfSignedCertificate: Sendable {
    /// PEM.
    public let certificate: [UInt8]
    /// PKCS#8 PEM, a secret.
    public let privateKey: [UInt8]

    /// - Parameters:
    ///   - names: DNS names and IP addresses, at least one. All become subject alternative names.
    ///   - days: the validity, starting an hour ago because clocks differ.
    /// - Throws: `TLSError.badName` for anything else.
    public static func make(names: [String], days: Int) throws(TLSError) -> SelfSignedCertificate {
        try make(names: names, from: -3600, to: days * 86400)
    }

    /// - Parameters:
    ///   - from: seconds from now.
    ///   - to: seconds from now.
    static func make(names: [String], from: Int, to: Int) throws(TLSError) -> SelfSignedCertificate {
        let alternatives = try names.map { (name) throws(TLSError) in try alternativeName(name) }.joined(separator: ",")
        guard let commonName = names.first, let key = unsafe makeP256() else { throw .badName }
        defer { unsafe EVP_PKEY_free(key) }
        guard let certificate = unsafe X509_new() else { throw .outOfMemory }
        defer { unsafe X509_free(certificate) }

        unsafe X509_set_version(certificate, 2)  // v3
        try unsafe setSerialNumber(of: certificate)
        unsafe X509_gmtime_adj(X509_getm_notBefore(certificate), from)
        unsafe X509_gmtime_adj(X509_getm_notAfter(certificate), to)
        let subject = unsafe X509_get_subject_name(certificate)
        let shortName = Array(commonName.utf8.prefix(64))  // the longest X.520 allows
        unsafe X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, shortName, Int32(shortName.count), -1, 0)
        unsafe X509_set_issuer_name(certificate, subject)
        guard unsafe X509_set_pubkey(certificate, key) == 1 else { throw .outOfMemory }
        try unsafe add("critical,CA:FALSE", NID_basic_constraints, to: certificate)
        try unsafe add("critical,digitalSignature", NID_key_usage, to: certificate)
        try unsafe add("serverAuth,clientAuth", NID_ext_key_usage, to: certificate)
        try unsafe add("hash", NID_subject_key_identifier, to: certificate)
        try unsafe add(alternatives, NID_subject_alt_name, to: certificate)
        guard unsafe X509_sign(certificate, key, EVP_sha256()) > 0 else { throw .outOfMemory }

        return try unsafe SelfSignedCertificate(
            certificate: PEM.writing { unsafe PEM_write_bio_X509($0, certificate) == 1 },
            privateKey: PEM.writing { unsafe PEM_write_bio_PKCS8PrivateKey($0, key, nil, nil, 0, nil, nil) == 1 })
    }

    /// Returns `DNS:name` or `IP:address` in OpenSSL's notation. Separators are refused.
    private static func alternativeName(_ name: String) throws(TLSError) -> String {
        if let address = unsafe a2i_IPADDRESS(name) {
            unsafe ASN1_OCTET_STRING_free(address)
            return "IP:\(name)"
        }
        ERR_clear_error()
        let allowed = name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "*"):
                true
            default: false
            }
        }
        guard allowed, (1...253).contains(name.utf8.count) else { throw .badName }
        return "DNS:\(name)"
    }

    private static func setSerialNumber(of certificate: OpaquePointer) throws(TLSError) {
        var random = [UInt8](repeating: 0, count: 16)
        guard unsafe RAND_bytes(&random, 16) == 1 else { throw .outOfMemory }
        random[0] = random[0] & 0x7f | 0x40  // positive, and always 16 bytes long
        let number = unsafe BN_bin2bn(random, 16, nil)
        defer { unsafe BN_free(number) }
        guard unsafe BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nil else { throw .outOfMemory }
    }

    private static func add(_ value: String, _ nid: Int32, to certificate: OpaquePointer) throws(TLSError) {
        var context = unsafe X509V3_CTX()
        unsafe X509V3_set_ctx(&context, certificate, certificate, nil, nil, 0)
        guard let part = unsafe X509V3_EXT_conf_nid(nil, &context, nid, value) else {
            ERR_clear_error()
            throw .badName
        }
        defer { unsafe X509_EXTENSION_free(part) }
        guard unsafe X509_add_ext(certificate, part, -1) == 1 else { throw .outOfMemory }
    }
}

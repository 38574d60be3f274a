internal import COpenSSL

/// When certificates expire, in unix seconds.
public enum CertificateExpiry {
    /// Returns when the first certificate of a chain expires. PEM, leaf first; other content is ignored.
    /// - Throws: `TLSError.badCertificate` if `pem` contains no readable certificate.
    public static func ofChain(_ pem: Span<UInt8>) throws(TLSError) -> UInt64 {
        let chain = unsafe try PEM.certificates(pem)
        defer { unsafe PEM.free(chain) }
        return unsafe ofChain(chain)
    }

    /// Returns when the last of several authorities expires: until then certificates can be verified with one of them.
    /// - Throws: `TLSError.badCertificate` if `pem` contains no readable certificate.
    public static func ofAuthorities(_ pem: Span<UInt8>) throws(TLSError) -> UInt64 {
        let authorities = unsafe try PEM.certificates(pem)
        defer { unsafe PEM.free(authorities) }
        return unsafe ofAuthorities(authorities)
    }

    /// An intermediate may expire before the leaf. A self-signed certificate behind the leaf doesn't count, since peers use their own copy.
    static func ofChain(_ chain: [OpaquePointer]) -> UInt64 {
        var first = unsafe end(of: chain[0])
        for index in unsafe chain.indices.dropFirst() where unsafe !isSelfSigned(chain[index]) {
            first = min(first, unsafe end(of: chain[index]))
        }
        return first
    }

    static func ofAuthorities(_ authorities: [OpaquePointer]) -> UInt64 {
        unsafe authorities.indices.reduce(0) { unsafe max($0, end(of: authorities[$1])) }
    }

    /// Returns when the last of the authorities that issued a certificate of this chain expires. Returns nil if none issued one.
    static func ofIssuers(_ chain: [OpaquePointer], among authorities: [OpaquePointer]) -> UInt64? {
        defer { ERR_clear_error() }
        var last: UInt64?
        for authority in unsafe authorities.indices {
            // By the signature, since the next authority of a deployment often has the same name.
            let key = unsafe X509_get0_pubkey(authorities[authority])
            for index in unsafe chain.indices where unsafe X509_verify(chain[index], key) == 1 {
                last = max(last ?? 0, unsafe end(of: authorities[authority]))
            }
        }
        return last
    }

    private static func isSelfSigned(_ certificate: OpaquePointer) -> Bool {
        unsafe X509_NAME_cmp(X509_get_subject_name(certificate), X509_get_issuer_name(certificate)) == 0
    }

    /// An unreadable time counts as long past.
    private static func end(of certificate: OpaquePointer) -> UInt64 {
        guard let epoch = unsafe ASN1_TIME_set(nil, 0) else { return 0 }
        defer { unsafe ASN1_STRING_free(epoch) }
        var (days, seconds): (Int32, Int32) = (0, 0)
        guard unsafe ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate)) == 1 else {
            ERR_clear_error()
            return 0
        }
        return UInt64(max(0, Int(days) * 86_400 + Int(seconds)))
    }
}

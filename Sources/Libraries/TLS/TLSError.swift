internal import COpenSSL

/// Why a TLS context could not be created or a session ended. Contains no bytes of the peer or of a key.
public enum TLSError: Error, Sendable, Equatable {
    /// The certificate or the list of authorities is not readable PEM.
    case badCertificate
    /// OpenSSL refuses the certificate: its key is too small or its signature too weak.
    case weakCertificate
    /// The private key is not unencrypted PEM of a supported kind.
    case badKey
    /// The private key does not belong to the certificate.
    case keyMismatch
    /// A host name or protocol name is invalid.
    case badName

    case certificateExpired
    case certificateNotYetValid
    /// The chain does not end at a trusted authority. Includes self-signed certificates.
    case untrusted
    /// The certificate names another host.
    case wrongHost
    /// Another verification failure: the `X509_V_ERR_...` code.
    case certificateRejected(code: Int)

    /// The peer ended the connection with this alert (RFC 8446, 6.2), e.g. 48 for `unknown_ca`.
    case alert(UInt8)
    /// The peer's bytes are not TLS, or no common version or cipher exists. The text is a constant of OpenSSL.
    case protocolViolation(String)
    /// The peer updates its keys too often (RFC 8446, 4.6.3), which costs CPU.
    case tooManyKeyUpdates
    /// Plaintext was sent before the handshake ended or after the session did.
    case notEstablished
    /// OpenSSL could not allocate memory.
    case outOfMemory
}

extension TLSError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .badCertificate: "the certificate is not readable PEM"
        case .weakCertificate: "the certificate's key is too small or its signature too weak. Make one with EC P-256 or RSA-2048"
        case .badKey: "the private key is not unencrypted PEM of the required kind"
        case .keyMismatch: "the private key does not belong to the certificate"
        case .badName: "a host or protocol name is empty, too long or has invalid characters"
        case .certificateExpired: "the peer's certificate has expired"
        case .certificateNotYetValid: "the peer's certificate is not valid yet. Check both clocks"
        case .untrusted: "the peer's certificate is not from a trusted authority"
        case .wrongHost: "the peer's certificate names another host"
        case .certificateRejected(let code): "the peer's certificate was rejected (X509 verification code \(code))"
        case .alert(let number): "the peer ended the TLS connection (alert \(number))"
        case .protocolViolation(let phrase): "the peer violated TLS: \(phrase)"
        case .tooManyKeyUpdates: "the peer changed its keys too often"
        case .notEstablished: "the TLS session is not established"
        case .outOfMemory: "OpenSSL could not allocate memory"
        }
    }
}

extension TLSError {
    /// Converts the result of `SSL_get_verify_result`. Returns nil if the certificate was accepted.
    init?(verifyResult: Int) {
        switch Int32(truncatingIfNeeded: verifyResult) {
        case X509_V_OK: return nil
        case X509_V_ERR_CERT_HAS_EXPIRED: self = .certificateExpired
        case X509_V_ERR_CERT_NOT_YET_VALID: self = .certificateNotYetValid
        case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH: self = .wrongHost
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
            X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_ERR_CERT_UNTRUSTED:
            self = .untrusted
        default: self = .certificateRejected(code: verifyResult)
        }
    }

    /// Converts the oldest entry of this thread's error queue.
    static func takeQueued() -> TLSError {
        let code = ERR_get_error()
        let reason = ERR_GET_REASON(code)
        // OpenSSL reports a received alert as 1000 plus its number.
        if reason >= SSL_AD_REASON_OFFSET, let number = UInt8(exactly: reason - SSL_AD_REASON_OFFSET) { return .alert(number) }
        guard let phrase = unsafe ERR_reason_error_string(code) else { return .protocolViolation("unexpected end") }
        return .protocolViolation(unsafe String(cString: phrase))
    }
}

internal import COpenSSL

/// The certificate that a client showed, and what was found out about it.
public struct PeerCertificate: Sendable, Equatable {
    /// Why it is not to be believed; nil for one that holds now and comes from a trusted authority, for a client's use.
    public let fault: TLSError?
    /// The user ids of its subject (0.9.2342.19200300.100.1.1), in their order.
    public let userIDs: [String]
    /// The object identifiers of its extensions, with dots.
    public let extensions: [String]

    public init(fault: TLSError? = nil, userIDs: [String], extensions: [String] = []) {
        self.fault = fault
        self.userIDs = userIDs
        self.extensions = extensions
    }
}

extension TLSContext {
    /// The context of a server that asks each client for a certificate and takes any or none: `TLSSession.peerCertificate`
    /// says what came. The client's key is proved all the same.
    public static func server(
        certificateChain: [UInt8], privateKey: Span<UInt8>, alpn: [String], askingForCertificatesOf authorities: [UInt8]
    ) throws(TLSError) -> TLSContext {
        let context = try TLSContext.server(
            certificateChain: certificateChain, privateKey: privateKey, alpn: alpn, clientAuthorities: authorities)
        // The verdict stays to be asked for (SSL_get_verify_result); the handshake goes on whatever it is.
        unsafe SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER) { _, _ in 1 }
        return context
    }
}

extension TLSSession {
    /// What the client showed, once established; nil for none.
    public var peerCertificate: PeerCertificate? {
        guard state == .established, let certificate = unsafe SSL_get1_peer_certificate(ssl) else { return nil }
        defer { unsafe X509_free(certificate) }
        return unsafe PeerCertificate(
            fault: TLSError(verifyResult: SSL_get_verify_result(ssl)), userIDs: CertificateFields.userIDs(of: certificate),
            extensions: CertificateFields.extensions(of: certificate))
    }
}

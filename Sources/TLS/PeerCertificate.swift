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
            fault: TLSError(verifyResult: SSL_get_verify_result(ssl)), userIDs: Self.userIDs(of: certificate),
            extensions: Self.extensions(of: certificate))
    }

    private static func userIDs(of certificate: OpaquePointer) -> [String] {
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

    private static func extensions(of certificate: OpaquePointer) -> [String] {
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

internal import COpenSSL

/// The certificates or trust, protocol versions and ALPN that sessions share. Immutable: a renewed certificate needs a new context.
///
/// TLS 1.2 and 1.3 with forward-secret AEAD ciphers, without session tickets (they would link connections) and without renegotiation.
@safe public final class TLSContext: @unchecked Sendable {  // SSL_CTX counts references atomically and is not changed after init
    enum Role { case server, client }

    /// The authorities that a client trusts.
    public enum Trust: Sendable {
        case system
        /// Only these PEM certificates.
        case authorities([UInt8])
    }

    let pointer: OpaquePointer
    let role: Role
    /// ALPN protocol names with length prefixes (RFC 7301, 3.1), in order of preference.
    private let protocols: [UInt8]
    /// When the own certificate chain expires, or the given authority that issued it. Unix seconds; nil without a certificate.
    public private(set) var certificateExpiryS: UInt64?
    /// When the last of the given authorities expires. Unix seconds; nil without one, and for those of the system.
    public private(set) var authoritiesExpiryS: UInt64?

    /// - Parameters:
    ///   - certificateChain: PEM, leaf first.
    ///   - privateKey: PEM, unencrypted.
    ///   - alpn: protocols in order of preference. A client that offers only other protocols is refused; one that offers none is served.
    ///   - clientAuthorities: PEM certificates. Every client must show a certificate that one of them issued. Nil: no certificate is requested.
    public static func server(
        certificateChain: [UInt8], privateKey: Span<UInt8>, alpn: [String], clientAuthorities: [UInt8]? = nil
    ) throws(TLSError) -> TLSContext {
        let context = try TLSContext(role: .server, alpn: alpn)
        try context.use(certificateChain: certificateChain, privateKey: privateKey)
        if let clientAuthorities {
            unsafe SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
            try context.trust(clientAuthorities)
        }
        if !context.protocols.isEmpty { context.selectProtocol() }
        return context
    }

    /// A server's context that requests a client certificate and accepts any or none. See `TLSSession.peerCertificate`. The client still proves
    /// possession of its key.
    public static func server(
        certificateChain: [UInt8], privateKey: Span<UInt8>, alpn: [String], askingForCertificatesOf authorities: [UInt8]
    ) throws(TLSError) -> TLSContext {
        let context = try TLSContext.server(
            certificateChain: certificateChain, privateKey: privateKey, alpn: alpn, clientAuthorities: authorities)
        // Continue the handshake whatever the result. SSL_get_verify_result reports it later.
        unsafe SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER) { _, _ in 1 }
        return context
    }

    /// A client's context. Verifies the chain and the host name.
    /// - Parameter certificate: shown to servers that request one.
    public static func client(
        trust: Trust, alpn: [String], certificate: ClientCertificate? = nil
    ) throws(TLSError) -> TLSContext {
        let context = try TLSContext(role: .client, alpn: alpn)
        if let certificate { try unsafe context.use(certificate.chain, certificate.key) }
        unsafe SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, nil)
        switch trust {
        case .system:
            guard unsafe SSL_CTX_set_default_verify_paths(context.pointer) == 1 else { throw .badCertificate }
        case .authorities(let text):
            try context.trust(text)
        }
        if !context.protocols.isEmpty {
            // Unlike similar functions this one returns 0 for success.
            let failure = unsafe SSL_CTX_set_alpn_protos(context.pointer, context.protocols, UInt32(context.protocols.count))
            guard failure == 0 else { throw .badName }
        }
        return context
    }

    /// Whether a server's certificate has expired.
    public var hasExpired: Bool {
        let end = unsafe SSL_CTX_get0_certificate(pointer).flatMap { unsafe X509_get0_notAfter($0) }
        return unsafe end != nil && X509_cmp_current_time(end) < 0
    }

    private init(role: Role, alpn: [String]) throws(TLSError) {
        var protocols: [UInt8] = []
        for name in alpn {
            guard (1...255).contains(name.utf8.count) else { throw .badName }
            protocols.append(UInt8(name.utf8.count))
            protocols.append(contentsOf: name.utf8)
        }
        guard let pointer = unsafe SSL_CTX_new(role == .server ? TLS_server_method() : TLS_client_method()) else {
            throw .outOfMemory
        }
        unsafe self.pointer = unsafe pointer
        self.role = role
        self.protocols = protocols
        unsafe SSL_CTX_ctrl(pointer, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(TLS1_2_VERSION), nil)
        unsafe SSL_CTX_set_options(
            pointer,
            ssl_op_cleanse_plaintext | ssl_op_no_compression | ssl_op_no_renegotiation | ssl_op_no_ticket
                | ssl_op_cipher_server_preference)
        // Without SSL_MODE_RELEASE_BUFFERS, which allocates, zeroes and frees 34 KB for each pair of records. See releaseBuffers.
        let modes = Int(SSL_MODE_ENABLE_PARTIAL_WRITE) | Int(SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER)
        unsafe SSL_CTX_ctrl(pointer, SSL_CTRL_MODE, modes, nil)
        unsafe SSL_CTX_ctrl(pointer, SSL_CTRL_SET_SESS_CACHE_MODE, Int(SSL_SESS_CACHE_OFF), nil)
        unsafe SSL_CTX_set_num_tickets(pointer, 0)
        unsafe SSL_CTX_set_msg_callback(pointer) { isSent, _, type, bytes, count, ssl, _ in
            guard isSent == 0, type == SSL3_RT_HANDSHAKE, count > 0 else { return }
            guard unsafe bytes!.load(as: UInt8.self) == UInt8(SSL3_MT_KEY_UPDATE) else { return }
            unsafe SessionBIO.session(SSL_get_rbio(ssl)).keyUpdates += 1
        }
        unsafe SSL_CTX_set_cipher_list(pointer, "ECDHE+AESGCM:ECDHE+CHACHA20")
        // The macro SSL_CTX_set1_groups_list. Only groups of at least 128 bits that are cheap: a stranger can request any of them.
        var groups = Array("X25519:P-256:P-384".utf8CString)
        unsafe groups.withUnsafeMutableBytes {
            unsafe _ = SSL_CTX_ctrl(pointer, SSL_CTRL_SET_GROUPS_LIST, 0, $0.baseAddress)
        }
    }

    deinit { unsafe SSL_CTX_free(pointer) }

    private func use(certificateChain: [UInt8], privateKey: Span<UInt8>) throws(TLSError) {
        let chain = unsafe try PEM.certificates(certificateChain.span)
        defer { unsafe PEM.free(chain) }
        let key = unsafe try PEM.privateKey(privateKey)
        defer { unsafe EVP_PKEY_free(key) }
        try unsafe use(chain, key)
    }

    private func use(_ chain: [OpaquePointer], _ key: OpaquePointer) throws(TLSError) {
        guard unsafe SSL_CTX_use_certificate(pointer, chain[0]) == 1 else {
            ERR_clear_error()
            throw .weakCertificate
        }
        for index in unsafe chain.indices.dropFirst() {
            // The macro SSL_CTX_add1_chain_cert, which adds a reference.
            let added = unsafe SSL_CTX_ctrl(pointer, SSL_CTRL_CHAIN_CERT, 1, UnsafeMutableRawPointer(chain[index]))
            guard added == 1 else { throw .badCertificate }
        }
        certificateExpiryS = unsafe CertificateExpiry.ofChain(chain)
        ERR_clear_error()
        guard unsafe SSL_CTX_use_PrivateKey(pointer, key) == 1, unsafe SSL_CTX_check_private_key(pointer) == 1 else {
            ERR_clear_error()
            throw .keyMismatch
        }
    }

    private func trust(_ text: [UInt8]) throws(TLSError) {
        let authorities = unsafe try PEM.certificates(text.span)
        defer { unsafe PEM.free(authorities) }
        let store = unsafe SSL_CTX_get_cert_store(pointer)
        for index in unsafe authorities.indices {
            guard unsafe X509_STORE_add_cert(store, authorities[index]) == 1 else { throw .badCertificate }
            // The server sends these names so that clients can choose a certificate.
            if role == .server { unsafe _ = SSL_CTX_add_client_CA(pointer, authorities[index]) }
        }
        authoritiesExpiryS = unsafe CertificateExpiry.ofAuthorities(authorities)
        // Nodes verify each other by these authorities.
        guard let own = certificateExpiryS, let issuers = unsafe CertificateExpiry.ofIssuers(chain, among: authorities) else {
            return
        }
        certificateExpiryS = min(own, issuers)
    }

    /// The own certificates, leaf first.
    private var chain: [OpaquePointer] {
        var (chain, others): ([OpaquePointer], OpaquePointer?) = unsafe ([], nil)
        if let leaf = unsafe SSL_CTX_get0_certificate(pointer) { unsafe chain.append(leaf) }
        // The macro SSL_CTX_get0_chain_certs.
        unsafe SSL_CTX_ctrl(pointer, SSL_CTRL_GET_CHAIN_CERTS, 0, &others)
        for index in 0..<max(0, unsafe OPENSSL_sk_num(others)) {
            if let other = unsafe OpaquePointer(OPENSSL_sk_value(others, index)) { unsafe chain.append(other) }
        }
        return unsafe chain
    }

    private func selectProtocol() {
        // Unretained, because every session retains its context.
        let argument = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe SSL_CTX_set_alpn_select_cb(
            pointer,
            { _, chosen, chosenLength, offered, offeredLength, argument in
                let context = unsafe Unmanaged<TLSContext>.fromOpaque(argument!).takeUnretainedValue()
                return unsafe context.protocols.withUnsafeBufferPointer { own in
                    let mutable = unsafe UnsafeMutableRawPointer(mutating: chosen!).assumingMemoryBound(
                        to: UnsafeMutablePointer<UInt8>?.self)
                    // The order of the first list decides.
                    let found = unsafe SSL_select_next_proto(
                        mutable, chosenLength, own.baseAddress, UInt32(own.count), offered, offeredLength)
                    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
                }
            }, argument)
    }
}

internal import COpenSSL

/// One TLS connection as a machine without I/O: ciphertext in, plaintext and ciphertext out. The owner moves the bytes and
/// keeps the deadlines; it takes the ciphertext after every call, a thrown one too (it may hold the alert for the peer).
@safe public final class TLSSession {
    public enum State: Sendable, Equatable {
        case handshaking
        case established
        /// The peer said it will send no more (`close_notify`). An end of the connection without it is a truncation.
        case closed
        case failed(TLSError)
    }

    public private(set) var state = State.handshaking
    /// The protocol agreed on by ALPN, once established; nil where the peer offered none.
    public private(set) var negotiatedProtocol: String?

    let ssl: OpaquePointer
    private let context: TLSContext
    private var input = unsafe UnsafeRawBufferPointer(start: nil, count: 0)  // set during receive only
    private var output: [UInt8] = []
    /// How often the peer changed its keys (RFC 8446, 4.6.3). Each costs as much as a request and brings nothing.
    var keyUpdates = 0
    private static let keyUpdateLimit = 100
    /// Ciphertext taken in since the last moment nothing was buffered: bounds the plaintext that can come out.
    private var backlog = 0

    /// The server's end of a new connection.
    public convenience init(accepting context: TLSContext) throws(TLSError) {
        precondition(context.role == .server, "a client's context can't accept")
        try self.init(context)
        unsafe SSL_set_accept_state(ssl)
    }

    /// The client's end of a new connection; the first ciphertext is ready to be sent.
    /// - Parameter host: DNS name or IP address the certificate must name.
    public convenience init(connecting context: TLSContext, to host: String) throws(TLSError) {
        precondition(context.role == .client, "a server's context can't connect")
        try self.init(context)
        guard (1...253).contains(host.utf8.count), host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { throw .badName }
        let parameters = unsafe SSL_get0_param(ssl)
        if unsafe X509_VERIFY_PARAM_set1_ip_asc(parameters, host) != 1 {
            ERR_clear_error()
            unsafe SSL_set_hostflags(ssl, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS))
            // The macro SSL_set_tlsext_host_name. An IP address must not be sent as a server name (RFC 6066, 3).
            var name = Array(host.utf8CString)
            let named = unsafe name.withUnsafeMutableBytes {
                unsafe SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, Int(TLSEXT_NAMETYPE_host_name), $0.baseAddress)
            }
            guard named == 1, unsafe SSL_set1_host(ssl, host) == 1 else { throw .badName }
        }
        unsafe SSL_set_connect_state(ssl)
        try handshake()
    }

    private init(_ context: TLSContext) throws(TLSError) {
        guard let ssl = unsafe SSL_new(context.pointer) else { throw .outOfMemory }
        unsafe self.ssl = unsafe ssl
        self.context = context
        guard let bio = unsafe SessionBIO.make(for: self) else { throw .outOfMemory }
        unsafe SSL_set_bio(ssl, bio, bio)
    }

    deinit { unsafe SSL_free(ssl) }

    /// Takes in bytes from the network and appends what they decrypt to, at most as many bytes, to `plaintext`.
    /// Reserve capacity first where the plaintext will be wiped: an array that grows leaves a copy behind.
    /// - Throws: what `state` holds from then on; nothing after that is decrypted.
    public func receive(_ ciphertext: Span<UInt8>, into plaintext: inout [UInt8]) throws(TLSError) {
        if case .failed(let error) = state { throw error }
        guard state != .closed else { return }
        try unsafe ciphertext.withUnsafeBytes { (bytes) throws(TLSError) in
            unsafe input = unsafe bytes
            defer { unsafe input = unsafe UnsafeRawBufferPointer(start: nil, count: 0) }
            backlog += bytes.count
            if state == .handshaking { try handshake() }
            while state == .established, try read(into: &plaintext) {}
            if keyUpdates > Self.keyUpdateLimit, state == .established {
                state = .failed(.tooManyKeyUpdates)
                throw .tooManyKeyUpdates
            }
        }
    }

    /// Encrypts `plaintext` to the end of `ciphertext`, after what waits for `takeCiphertext`.
    public func send(_ plaintext: Span<UInt8>, into ciphertext: inout [UInt8]) throws(TLSError) {
        takeCiphertext(into: &ciphertext)
        swap(&ciphertext, &output)
        defer { swap(&ciphertext, &output) }
        try send(plaintext)
    }

    /// Gives back OpenSSL's buffers, 34 KB, until there is traffic again. Without effect while a record is incomplete.
    public func releaseBuffers() {
        if state == .established { unsafe _ = SSL_free_buffers(ssl) }
    }

    /// Encrypts `plaintext`; the result waits for `takeCiphertext`.
    public func send(_ plaintext: Span<UInt8>) throws(TLSError) {
        if case .failed(let error) = state { throw error }
        guard state != .handshaking else { throw .notEstablished }
        try unsafe plaintext.withUnsafeBytes { (bytes) throws(TLSError) in
            var rest = unsafe bytes[...]
            while unsafe !rest.isEmpty {
                ERR_clear_error()
                let part = unsafe UnsafeRawBufferPointer(rebasing: rest)
                let count = unsafe SSL_write(ssl, part.baseAddress, Int32(clamping: part.count))
                guard count > 0 else { throw fail(count) }
                unsafe rest = unsafe rest.dropFirst(Int(count))
            }
        }
    }

    /// Tells the peer that no more will be sent (`close_notify`); receiving goes on.
    public func close() {
        guard state == .established || state == .closed else { return }
        ERR_clear_error()
        unsafe SSL_shutdown(ssl)
        ERR_clear_error()
    }

    public var hasCiphertext: Bool { !output.isEmpty }

    /// Moves the bytes to be sent to the end of `buffer`, without a copy where that is empty.
    public func takeCiphertext(into buffer: inout [UInt8]) {
        if buffer.isEmpty {
            swap(&buffer, &output)
        } else {
            buffer.append(contentsOf: output)
            output.removeAll(keepingCapacity: true)
        }
    }

    private func handshake() throws(TLSError) {
        ERR_clear_error()
        let result = unsafe SSL_do_handshake(ssl)
        guard result == 1 else {
            if unsafe SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ { return }
            throw fail(result)
        }
        state = .established
        var name: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        unsafe SSL_get0_alpn_selected(ssl, &name, &length)
        if length > 0 {
            negotiatedProtocol = unsafe String(decoding: UnsafeBufferPointer(start: name, count: Int(length)), as: UTF8.self)
        }
    }

    /// Reads once; false where nothing more can be read now.
    private func read(into plaintext: inout [UInt8]) throws(TLSError) -> Bool {
        ERR_clear_error()
        var result: Int32 = 0
        Self.reserve(max(1, min(backlog, Int(SSL3_RT_MAX_PLAIN_LENGTH))), in: &plaintext)
        plaintext.append(addingCapacity: max(1, min(backlog, Int(SSL3_RT_MAX_PLAIN_LENGTH)))) { target in
            unsafe target.withUnsafeMutableBufferPointer { buffer, count in
                result = unsafe SSL_read(ssl, buffer.baseAddress! + count, Int32(buffer.count - count))
                if result > 0 { count += Int(result) }
            }
        }
        if result > 0 {
            guard unsafe input.isEmpty, unsafe SSL_has_pending(ssl) == 0 else { return true }
            backlog = 0
            return false
        }
        switch unsafe SSL_get_error(ssl, result) {
        case SSL_ERROR_WANT_READ:
            if unsafe SSL_has_pending(ssl) == 0 { backlog = 0 }
            return false
        case SSL_ERROR_ZERO_RETURN:
            state = .closed
            return false
        default: throw fail(result)
        }
    }

    /// Makes room for `more` bytes. An array that grew by itself would leave its plaintext behind.
    private static func reserve(_ more: Int, in plaintext: inout [UInt8]) {
        guard plaintext.capacity - plaintext.count < more else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(plaintext.count + more)
        larger.append(contentsOf: plaintext)
        swap(&plaintext, &larger)
        unsafe larger.withUnsafeMutableBytes { unsafe OPENSSL_cleanse($0.baseAddress, $0.count) }
    }

    private func fail(_ result: Int32) -> TLSError {
        var error = TLSError.takeQueued()
        if context.role == .client, let verdict = unsafe TLSError(verifyResult: SSL_get_verify_result(ssl)) { error = verdict }
        ERR_clear_error()
        state = .failed(error)
        return error
    }

    // MARK: What SessionBIO calls

    func takeInput(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = unsafe min(buffer.count, input.count)
        guard count > 0 else { return 0 }
        unsafe buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: input[..<count]))
        unsafe input = unsafe UnsafeRawBufferPointer(rebasing: input[count...])
        return count
    }

    func putOutput(_ bytes: UnsafeRawBufferPointer) { unsafe output.append(contentsOf: bytes) }
}

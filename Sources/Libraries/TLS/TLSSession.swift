internal import COpenSSL
import Linux

/// One TLS connection without I/O: ciphertext in, plaintext and ciphertext out. The owner does I/O and deadlines. Take the ciphertext after every
/// call, even after a thrown error: it may contain an alert for the peer.
@safe public final class TLSSession {
    public enum State: Sendable, Equatable {
        case handshaking
        case established
        /// The peer sent `close_notify`. An end of the connection without it is a truncation.
        case closed
        case failed(TLSError)
    }

    public private(set) var state = State.handshaking
    /// The ALPN protocol, once established. Nil if the peer offered none.
    public private(set) var negotiatedProtocol: String?

    let ssl: OpaquePointer
    private let context: TLSContext
    private var input = unsafe UnsafeRawBufferPointer(start: nil, count: 0)  // set during receive only
    private var output: [UInt8] = []
    /// The number of the peer's key updates (RFC 8446, 4.6.3). Each costs as much as a request.
    var keyUpdates = 0
    private static let keyUpdateLimit = 100
    /// Ciphertext received since nothing was buffered: an upper bound of the plaintext.
    private var backlog = 0

    /// Creates the server's end of a connection.
    public convenience init(accepting context: TLSContext) throws(TLSError) {
        precondition(context.role == .server, "a client's context can't accept")
        try self.init(context)
        unsafe SSL_set_accept_state(ssl)
    }

    /// Creates the client's end of a connection. The first ciphertext is ready to be sent.
    /// - Parameter host: the DNS name or IP address that the certificate must contain.
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

    /// Decrypts bytes from the network and appends the plaintext, at most as many bytes, to `plaintext`. Reserve capacity first if the plaintext will
    /// be wiped: an array that grows leaves a copy behind.
    /// - Throws: the error that `state` contains from then on.
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

    /// Appends the encrypted `plaintext` to `ciphertext`, after output that waits for `takeCiphertext`.
    public func send(_ plaintext: Span<UInt8>, into ciphertext: inout [UInt8]) throws(TLSError) {
        takeCiphertext(into: &ciphertext)
        swap(&ciphertext, &output)
        defer { swap(&ciphertext, &output) }
        try send(plaintext)
    }

    /// Releases OpenSSL's buffers of 34 KB until the next traffic. No effect while a record is incomplete.
    public func releaseBuffers() {
        if state == .established { unsafe _ = SSL_free_buffers(ssl) }
    }

    /// Encrypts `plaintext`. The result waits for `takeCiphertext`.
    public func send(_ plaintext: Span<UInt8>) throws(TLSError) {
        if case .failed(let error) = state { throw error }
        guard state != .handshaking else { throw .notEstablished }
        try unsafe plaintext.withUnsafeBytes { (bytes) throws(TLSError) in
            var rest = unsafe bytes[...]
            while unsafe !rest.isEmpty {
                Self.clearErrors()
                let part = unsafe UnsafeRawBufferPointer(rebasing: rest)
                let count = unsafe SSL_write(ssl, part.baseAddress, Int32(clamping: part.count))
                guard count > 0 else { throw fail(count) }
                unsafe rest = unsafe rest.dropFirst(Int(count))
            }
        }
    }

    /// Sends `close_notify`. Receiving continues.
    public func close() {
        guard state == .established || state == .closed else { return }
        ERR_clear_error()
        unsafe SSL_shutdown(ssl)
        ERR_clear_error()
    }

    public var hasCiphertext: Bool { !output.isEmpty }

    /// Moves the output to the end of `buffer`, without a copy if `buffer` is empty.
    public func takeCiphertext(into buffer: inout [UInt8]) {
        if buffer.isEmpty {
            swap(&buffer, &output)
        } else {
            buffer.append(contentsOf: output)
            output.removeAll(keepingCapacity: true)
        }
    }

    /// The client's certificate, once established. Nil if it showed none.
    public var peerCertificate: PeerCertificate? {
        guard state == .established, let certificate = unsafe SSL_get1_peer_certificate(ssl) else { return nil }
        defer { unsafe X509_free(certificate) }
        return unsafe PeerCertificate(
            fault: TLSError(verifyResult: SSL_get_verify_result(ssl)), userIDs: CertificateFields.userIDs(of: certificate),
            extensions: CertificateFields.extensions(of: certificate))
    }

    /// Clears the queue of errors before a call, because `SSL_get_error` reads it. Clearing an empty queue takes as long as parsing a request's head.
    private static func clearErrors() {
        if ERR_peek_error() != 0 { ERR_clear_error() }
    }

    private func handshake() throws(TLSError) {
        Self.clearErrors()
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

    /// Reads once.
    /// - Returns: false if nothing more can be read now.
    private func read(into plaintext: inout [UInt8]) throws(TLSError) -> Bool {
        Self.clearErrors()
        var result: Int32 = 0
        let room = max(1, min(backlog, Int(SSL3_RT_MAX_PLAIN_LENGTH)))
        plaintext.reserveWiping(room)
        plaintext.append(addingCapacity: room) { target in
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

    private func fail(_ result: Int32) -> TLSError {
        var error = TLSError.takeQueued()
        if context.role == .client, let verdict = unsafe TLSError(verifyResult: SSL_get_verify_result(ssl)) { error = verdict }
        ERR_clear_error()
        state = .failed(error)
        return error
    }

    fileprivate func takeInput(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = unsafe min(buffer.count, input.count)
        guard count > 0 else { return 0 }
        unsafe buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: input[..<count]))
        unsafe input = unsafe UnsafeRawBufferPointer(rebasing: input[count...])
        return count
    }

    fileprivate func putOutput(_ bytes: UnsafeRawBufferPointer) { unsafe output.append(contentsOf: bytes) }
}

/// A client's certificate and the result of its verification.
public struct PeerCertificate: Sendable, Equatable {
    /// Why the certificate is not trusted. Nil if it is currently valid, from a trusted authority and for client use.
    public let fault: TLSError?
    /// The user ids of the subject (0.9.2342.19200300.100.1.1), in order.
    public let userIDs: [String]
    /// The object identifiers of its extensions, with dots.
    public let extensions: [String]

    public init(fault: TLSError? = nil, userIDs: [String], extensions: [String] = []) {
        self.fault = fault
        self.userIDs = userIDs
        self.extensions = extensions
    }
}

/// The BIO through which OpenSSL reads the input of `TLSSession.receive` and writes output. It has no memory of its own, so an idle session needs no
/// buffers.
enum SessionBIO {
    // Created once, never changed.
    private nonisolated(unsafe) static let method: OpaquePointer? = unsafe makeMethod()

    /// Creates a BIO of `session`, which must outlive it.
    static func make(for session: TLSSession) -> OpaquePointer? {
        guard let method = unsafe method, let bio = unsafe BIO_new(method) else { return nil }
        unsafe BIO_set_data(bio, Unmanaged.passUnretained(session).toOpaque())
        unsafe BIO_set_init(bio, 1)
        return unsafe bio
    }

    private static func makeMethod() -> OpaquePointer? {
        guard let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "session") else { return nil }
        unsafe BIO_meth_set_read(method) { bio, buffer, count in
            unsafe BIO_clear_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
            let taken = unsafe SessionBIO.session(bio).takeInput(UnsafeMutableRawBufferPointer(start: buffer, count: Int(count)))
            guard taken > 0 else {
                unsafe BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
                return -1
            }
            return Int32(taken)
        }
        unsafe BIO_meth_set_write(method) { bio, buffer, count in
            unsafe SessionBIO.session(bio).putOutput(UnsafeRawBufferPointer(start: buffer, count: Int(count)))
            return count
        }
        // Nothing is buffered here, so a flush succeeds. Every other control is unknown.
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return unsafe method
    }

    static func session(_ bio: OpaquePointer?) -> TLSSession {
        unsafe Unmanaged<TLSSession>.fromOpaque(BIO_get_data(bio)!).takeUnretainedValue()
    }
}

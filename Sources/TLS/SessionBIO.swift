internal import COpenSSL

/// The BIO through which OpenSSL reads the bytes handed to `TLSSession.receive` and leaves those to be sent. It holds no
/// memory of its own, so an idle session costs no buffers.
enum SessionBIO {
    // Made once, never changed.
    private nonisolated(unsafe) static let method: OpaquePointer? = unsafe makeMethod()

    /// A BIO that belongs to `session`, which must outlive it.
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
        // Nothing is buffered here, so a flush succeeds; every other control is unknown.
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return unsafe method
    }

    static func session(_ bio: OpaquePointer?) -> TLSSession {
        unsafe Unmanaged<TLSSession>.fromOpaque(BIO_get_data(bio)!).takeUnretainedValue()
    }
}

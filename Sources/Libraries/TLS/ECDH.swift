internal import COpenSSL

/// Diffie-Hellman on P-256 (NIST SP 800-56A, 5.7.1.2).
extension ES256.PrivateKey {
    /// The length of an uncompressed point (SEC 1, 2.3.3): 04, x and y.
    public static let pointLength = 65
    /// The length of a shared secret: the x coordinate of the common point.
    public static let sharedLength = 32

    /// The public key as an uncompressed point.
    public func point() throws(TLSError) -> [UInt8] {
        var point: UnsafeMutablePointer<UInt8>?
        let count = unsafe EVP_PKEY_get1_encoded_public_key(pointer, &point)
        defer { unsafe CRYPTO_free(point, "", 0) }
        guard let point = unsafe point, count == Self.pointLength else { throw .outOfMemory }
        return unsafe Array(UnsafeBufferPointer(start: point, count: count))
    }

    /// Writes the secret that this key shares with the owner of `peer`.
    /// - Parameters:
    ///   - peer: an uncompressed point.
    ///   - secret: 32 bytes.
    /// - Throws: `.badKey` if `peer` is no point of the curve.
    public func agree(with peer: Span<UInt8>, into secret: inout MutableSpan<UInt8>) throws(TLSError) {
        precondition(secret.count == Self.sharedLength)
        guard let other = unsafe publicKey(peer, like: pointer) else { throw .badKey }
        defer { unsafe EVP_PKEY_free(other) }
        guard let context = unsafe EVP_PKEY_CTX_new(pointer, nil) else { throw .outOfMemory }
        defer { unsafe EVP_PKEY_CTX_free(context) }
        var count = Self.sharedLength
        // `publicKey` has checked that the point is on the curve. The curve has no smaller subgroups, so that is all there is to check.
        let isDone = unsafe secret.withUnsafeMutableBufferPointer { secret in
            unsafe EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer_ex(context, other, 0) == 1
                && EVP_PKEY_derive(context, secret.baseAddress, &count) == 1
        }
        guard isDone, count == Self.sharedLength else {
            ERR_clear_error()
            throw .outOfMemory
        }
    }
}

/// Reads an uncompressed point of the key's curve. Returns nil for another form, infinity, and a point that is not on the curve. The caller frees it.
private func publicKey(_ point: Span<UInt8>, like key: OpaquePointer) -> OpaquePointer? {
    guard point.count == ES256.PrivateKey.pointLength, point[0] == 4, let made = unsafe EVP_PKEY_new() else { return nil }
    let isRead = unsafe point.withUnsafeBufferPointer { point in
        unsafe EVP_PKEY_copy_parameters(made, key) == 1
            && EVP_PKEY_set1_encoded_public_key(made, point.baseAddress, point.count) == 1
    }
    if isRead { return unsafe made }
    ERR_clear_error()
    unsafe EVP_PKEY_free(made)
    return nil
}

extension ES256 {
    /// True for an uncompressed point of P-256.
    public static func isPoint(_ bytes: Span<UInt8>) -> Bool {
        guard let key = unsafe publicKey(bytes, like: curve) else { return false }
        unsafe EVP_PKEY_free(key)
        return true
    }
}

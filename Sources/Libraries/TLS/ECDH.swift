internal import COpenSSL

/// A key of P-256 for Diffie-Hellman (NIST SP 800-56A, 5.7.1.2).
///
/// Uses OpenSSL's functions for points, because its EVP keys cost a fifth more instructions per message.
@safe public final class ECDHKey: @unchecked Sendable {  // The scalar is only read after init
    /// The length of an uncompressed point (SEC 1, 2.3.3): 04, x and y.
    public static let pointLength = 65
    /// The length of a shared secret: the x coordinate of the common point.
    public static let secretLength = 32

    private let scalar: OpaquePointer
    /// The public key as an uncompressed point.
    public let point: [UInt8]

    /// Generates a key.
    public convenience init() throws(TLSError) {
        guard let scalar = unsafe BN_new() else { throw outOfMemory() }
        repeat {
            guard unsafe BN_priv_rand_range_ex(scalar, Curve.order, 0, nil) == 1 else {
                unsafe BN_clear_free(scalar)
                throw outOfMemory()
            }
        } while unsafe BN_is_zero(scalar) == 1
        try unsafe self.init(taking: scalar)
    }

    /// - Parameter bytes: the private key, a big-endian number.
    /// - Throws: `.badKey` if the number is 0 or not below the curve's order.
    public convenience init(_ bytes: Span<UInt8>) throws(TLSError) {
        let scalar = unsafe bytes.withUnsafeBufferPointer { unsafe BN_bin2bn($0.baseAddress, Int32($0.count), nil) }
        guard let scalar = unsafe scalar else { throw outOfMemory() }
        guard unsafe BN_is_zero(scalar) == 0, unsafe BN_cmp(scalar, Curve.order) < 0 else {
            unsafe BN_clear_free(scalar)
            throw .badKey
        }
        try unsafe self.init(taking: scalar)
    }

    /// Takes ownership of `scalar`, even if this throws.
    private init(taking scalar: OpaquePointer) throws(TLSError) {
        guard let point = unsafe Curve.publicPoint(scalar) else {
            unsafe BN_clear_free(scalar)
            throw outOfMemory()
        }
        (unsafe self.scalar, self.point) = (unsafe scalar, point)
    }

    deinit { unsafe BN_clear_free(scalar) }

    /// Writes the secret that this key shares with the owner of `peer`.
    /// - Parameters:
    ///   - peer: an uncompressed point.
    ///   - secret: 32 bytes.
    /// - Throws: `.badKey` if `peer` is not an uncompressed point on the curve.
    public func agree(with peer: Span<UInt8>, into secret: inout MutableSpan<UInt8>) throws(TLSError) {
        precondition(secret.count == Self.secretLength)
        guard let other = unsafe Curve.point(peer) else { throw .badKey }
        defer { unsafe EC_POINT_free(other) }
        guard let common = unsafe EC_POINT_new(Curve.group) else { throw outOfMemory() }
        defer { unsafe EC_POINT_clear_free(common) }
        guard let x = unsafe BN_new() else { throw outOfMemory() }
        defer { unsafe BN_clear_free(x) }
        // P-256 has cofactor 1, so a point on the curve needs no further check.
        let isDone = unsafe secret.withUnsafeMutableBufferPointer { secret in
            unsafe EC_POINT_mul(Curve.group, common, nil, other, scalar, nil) == 1
                && EC_POINT_get_affine_coordinates(Curve.group, common, x, nil, nil) == 1
                && BN_bn2binpad(x, secret.baseAddress, Int32(secret.count)) == Self.secretLength
        }
        guard isDone else { throw outOfMemory() }
    }

    /// True for an uncompressed point of P-256.
    public static func isPoint(_ bytes: Span<UInt8>) -> Bool {
        guard let point = unsafe Curve.point(bytes) else { return false }
        unsafe EC_POINT_free(point)
        return true
    }
}

/// Also forgets what OpenSSL has noted.
private func outOfMemory() -> TLSError {
    ERR_clear_error()
    return .outOfMemory
}

private enum Curve {
    nonisolated(unsafe) static let group: OpaquePointer = {
        guard let group = unsafe EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1) else {
            preconditionFailure("OpenSSL can't make P-256")
        }
        return unsafe group
    }()

    static var order: OpaquePointer? { unsafe EC_GROUP_get0_order(group) }

    /// Returns nil if there is no memory.
    static func publicPoint(_ scalar: OpaquePointer) -> [UInt8]? {
        guard let point = unsafe EC_POINT_new(group) else { return nil }
        // Its coordinates before the division may tell something of the scalar.
        defer { unsafe EC_POINT_clear_free(point) }
        var bytes = [UInt8](repeating: 0, count: ECDHKey.pointLength)
        let isDone =
            unsafe EC_POINT_mul(group, point, scalar, nil, nil, nil) == 1
            && EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, &bytes, bytes.count, nil) == bytes.count
        return isDone ? bytes : nil
    }

    /// Reads an uncompressed point. Returns nil for another form, infinity, and a point that is not on the curve. The caller frees it.
    static func point(_ bytes: Span<UInt8>) -> OpaquePointer? {
        guard bytes.count == ECDHKey.pointLength, bytes[0] == 4, let point = unsafe EC_POINT_new(group) else { return nil }
        let isRead = unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe EC_POINT_oct2point(group, point, bytes.baseAddress, bytes.count, nil) == 1
        }
        if isRead { return unsafe point }
        ERR_clear_error()
        unsafe EC_POINT_free(point)
        return nil
    }
}

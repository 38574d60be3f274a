internal import COpenSSL

/// ECDSA with P-256 and SHA-256 in JOSE's form (RFC 7518, 3.4): a signature is R || S, 64 bytes, not DER.
public enum ES256 {
    public static let signatureLength = 64

    /// A P-256 private key. Apple issues it as `.p8` (PEM, PKCS#8).
    @safe public final class PrivateKey: @unchecked Sendable {  // EVP_PKEY is only read after init
        let pointer: OpaquePointer

        /// - Throws: `TLSError.badKey` for anything but an unencrypted P-256 private key.
        public init(pem: Span<UInt8>) throws(TLSError) {
            unsafe pointer = try PEM.privateKey(pem)
            guard unsafe isP256(pointer) else { throw .badKey }
        }

        /// Generates a key.
        public init() throws(TLSError) {
            guard let key = unsafe makeP256() else { throw .outOfMemory }
            unsafe pointer = unsafe key
        }

        deinit { unsafe EVP_PKEY_free(pointer) }

        /// The key as PKCS#8 PEM, a secret.
        public func pem() throws(TLSError) -> [UInt8] {
            try unsafe PEM.writing { unsafe PEM_write_bio_PKCS8PrivateKey($0, pointer, nil, nil, 0, nil, nil) == 1 }
        }

        public func publicKeyPEM() throws(TLSError) -> [UInt8] {
            try unsafe PEM.writing { unsafe PEM_write_bio_PUBKEY($0, pointer) == 1 }
        }

        /// The public key as an uncompressed point (SEC 1, 2.3.3): 04, x and y.
        public func point() throws(TLSError) -> [UInt8] {
            var point: UnsafeMutablePointer<UInt8>?
            let count = unsafe EVP_PKEY_get1_encoded_public_key(pointer, &point)
            defer { unsafe CRYPTO_free(point, "", 0) }
            guard let point = unsafe point, count == ECDHKey.pointLength else { throw .outOfMemory }
            return unsafe Array(UnsafeBufferPointer(start: point, count: count))
        }

        /// Returns R || S over `message`.
        public func sign(_ message: Span<UInt8>) throws(TLSError) -> [UInt8] {
            guard let context = unsafe EVP_MD_CTX_new() else { throw .outOfMemory }
            defer { unsafe EVP_MD_CTX_free(context) }
            var der = [UInt8](repeating: 0, count: 80)  // P-256 needs at most 72
            var length = der.count
            let signed = unsafe message.withUnsafeBufferPointer { message in
                unsafe EVP_DigestSignInit(context, nil, EVP_sha256(), nil, pointer) == 1
                    && EVP_DigestSign(context, &der, &length, message.baseAddress, message.count) == 1
            }
            guard signed, let raw = raw(fromDER: der[..<length]) else { throw .outOfMemory }
            return raw
        }
    }

    /// A P-256 public key.
    @safe public final class PublicKey: @unchecked Sendable, Equatable {  // EVP_PKEY is only read after init
        private let pointer: OpaquePointer

        /// Reads PEM (SubjectPublicKeyInfo).
        /// - Throws: `TLSError.badKey` for anything but a P-256 public key.
        public init(pem: Span<UInt8>) throws(TLSError) {
            unsafe pointer = try PEM.publicKey(pem)
            guard unsafe isP256(pointer) else { throw .badKey }
        }

        /// Reads the coordinates of a JWK (RFC 7518, 6.2.1), 32 bytes each.
        /// - Throws: `TLSError.badKey` for a point that is not on the curve.
        public init(x: [UInt8], y: [UInt8]) throws(TLSError) {
            guard x.count == 32, y.count == 32 else { throw .badKey }
            let der = Self.uncompressedPoint + x + y
            let key = unsafe der.withUnsafeBufferPointer { der in
                var cursor = der.baseAddress
                return unsafe d2i_PUBKEY(nil, &cursor, der.count)
            }
            guard let key = unsafe key else {
                ERR_clear_error()
                throw .badKey
            }
            unsafe pointer = key
        }

        /// The SubjectPublicKeyInfo of a P-256 key (RFC 5480) up to its point.
        private static let uncompressedPoint: [UInt8] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
            0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
        ]

        deinit { unsafe EVP_PKEY_free(pointer) }

        public static func == (left: PublicKey, right: PublicKey) -> Bool {
            unsafe EVP_PKEY_eq(left.pointer, right.pointer) == 1
        }

        /// Whether `signature` (R || S) is valid for `message`. Another length is invalid.
        public func isValid(_ signature: Span<UInt8>, for message: Span<UInt8>) -> Bool {
            guard let der = der(fromRaw: signature), let context = unsafe EVP_MD_CTX_new() else { return false }
            defer { unsafe EVP_MD_CTX_free(context) }
            defer { ERR_clear_error() }
            return unsafe message.withUnsafeBufferPointer { message in
                unsafe EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, pointer) == 1
                    && EVP_DigestVerify(context, der, der.count, message.baseAddress, message.count) == 1
            }
        }
    }

    private static func raw(fromDER der: ArraySlice<UInt8>) -> [UInt8]? {
        let signature = unsafe der.withUnsafeBufferPointer { der in
            var cursor = der.baseAddress
            return unsafe d2i_ECDSA_SIG(nil, &cursor, der.count)
        }
        guard let signature = unsafe signature else { return nil }
        defer { unsafe ECDSA_SIG_free(signature) }
        var r = [UInt8](repeating: 0, count: 32)
        var s = r
        guard unsafe BN_bn2binpad(ECDSA_SIG_get0_r(signature), &r, 32) == 32,
            unsafe BN_bn2binpad(ECDSA_SIG_get0_s(signature), &s, 32) == 32
        else { return nil }
        return r + s
    }

    private static func der(fromRaw raw: Span<UInt8>) -> [UInt8]? {
        guard raw.count == signatureLength, let signature = unsafe ECDSA_SIG_new() else { return nil }
        defer { unsafe ECDSA_SIG_free(signature) }
        let parts = unsafe raw.withUnsafeBufferPointer { raw in
            unsafe (BN_bin2bn(raw.baseAddress, 32, nil), BN_bin2bn(raw.baseAddress! + 32, 32, nil))
        }
        guard unsafe ECDSA_SIG_set0(signature, parts.0, parts.1) == 1 else {  // takes ownership of the numbers
            unsafe BN_free(parts.0)
            unsafe BN_free(parts.1)
            return nil
        }
        let length = unsafe i2d_ECDSA_SIG(signature, nil)
        guard length > 0 else { return nil }
        var der = [UInt8](repeating: 0, count: Int(length))
        let written = unsafe der.withUnsafeMutableBufferPointer { buffer in
            var cursor = buffer.baseAddress
            return unsafe i2d_ECDSA_SIG(signature, &cursor)
        }
        return written == length ? der : nil
    }
}

private func isP256(_ key: OpaquePointer) -> Bool { unsafe groupName(of: key) == "prime256v1" }

/// Returns the name of an elliptic curve, or nil if the key has none.
private func groupName(of key: OpaquePointer) -> String? {
    var name = [CChar](repeating: 0, count: 64)
    var length = 0
    guard unsafe EVP_PKEY_get_group_name(key, &name, name.count, &length) == 1 else {
        ERR_clear_error()
        return nil
    }
    return String(decoding: name.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Generates a P-256 key. The caller frees it.
func makeP256() -> OpaquePointer? {
    guard let context = unsafe EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil) else { return nil }
    defer { unsafe EVP_PKEY_CTX_free(context) }
    var key: OpaquePointer?
    guard unsafe EVP_PKEY_keygen_init(context) == 1,
        unsafe EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
        unsafe EVP_PKEY_keygen(context, &key) == 1
    else { return nil }
    return unsafe key
}

/// Why a text is no `ES256.PrivateKey`. Contains nothing of the text.
public enum KeyFault: Error, Sendable, Equatable, CustomStringConvertible {
    case noPEM
    case encrypted
    case publicKey
    case noKey
    /// `RSA`, `ED25519`, or `EC` with its curve.
    case otherKind(String)
    case damaged

    /// - Parameter pem: a text that `ES256.PrivateKey` refused.
    public init(_ pem: Span<UInt8>) {
        self =
            if let kind = Self.kind(pem) {
                .otherKind(kind)
            } else if !PEM.holds("-----BEGIN ", in: pem) {
                .noPEM
            } else if PEM.holds("PRIVATE KEY-----", in: pem) {
                PEM.holds("ENCRYPTED", in: pem) ? .encrypted : .damaged
            } else {
                PEM.holds("PUBLIC KEY-----", in: pem) ? .publicKey : .noKey
            }
    }

    private static func kind(_ pem: Span<UInt8>) -> String? {
        guard let key = unsafe try? PEM.privateKey(pem) else { return nil }
        defer { unsafe EVP_PKEY_free(key) }
        guard let name = unsafe EVP_PKEY_get0_type_name(key) else { return "another" }
        let kind = unsafe String(cString: name)
        guard let curve = unsafe groupName(of: key) else { return kind }
        return kind + " " + curve
    }

    public var description: String {
        switch self {
        case .noPEM: "it is not PEM text"
        case .encrypted: "the private key in it is encrypted"
        case .publicKey: "it contains a public key, not the private one"
        case .noKey: "it contains no private key"
        case .otherKind(let kind): "the private key in it is of another kind or curve (\(kind))"
        case .damaged: "the private key in it is damaged"
        }
    }
}

internal import COpenSSL

/// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518, 3.3).
public enum RS256 {
    /// The accepted lengths of a modulus in bits. Shorter ones are too weak (RFC 7518, 3.3); longer ones cost too much CPU per signature.
    public static let bits = 2_048...4_096
    /// The accepted exponents. Smaller ones have known attacks (FIPS 186-5, 5.4); nobody uses larger ones, which cost CPU.
    static let exponents: ClosedRange<UInt> = 65_537...0xffff_ffff

    /// Why a key is refused. Contains nothing of the key.
    public enum KeyFault: Error, Sendable, Equatable, CustomStringConvertible {
        /// Not an RSA key, or not readable.
        case noKey
        /// The length of its modulus.
        case size(bits: Int)
        case exponent

        public var description: String {
            switch self {
            case .noKey: "it is not an RSA key"
            case .size(let bits): "it has \(bits) bits; RS256 needs \(RS256.bits.lowerBound) to \(RS256.bits.upperBound)"
            case .exponent: "its exponent is even, smaller than \(exponents.lowerBound) or longer than 32 bits"
            }
        }
    }

    /// An RSA private key.
    @safe public final class PrivateKey: @unchecked Sendable {  // EVP_PKEY is only read after init
        private let pointer: OpaquePointer

        /// Reads unencrypted PEM.
        public init(pem: Span<UInt8>) throws(KeyFault) {
            do throws(TLSError) {
                unsafe pointer = try PEM.privateKey(pem)
            } catch { throw .noKey }
            try unsafe check(pointer)
        }

        deinit { unsafe EVP_PKEY_free(pointer) }

        /// Returns a signature, as long as the modulus.
        public func sign(_ message: Span<UInt8>) throws(TLSError) -> [UInt8] {
            guard let context = unsafe EVP_MD_CTX_new() else { throw .outOfMemory }
            defer { unsafe EVP_MD_CTX_free(context) }
            var signature = [UInt8](repeating: 0, count: bits.upperBound / 8)
            var length = signature.count
            let signed = unsafe message.withUnsafeBufferPointer { message in
                unsafe EVP_DigestSignInit(context, nil, EVP_sha256(), nil, pointer) == 1
                    && EVP_DigestSign(context, &signature, &length, message.baseAddress, message.count) == 1
            }
            guard signed else {
                ERR_clear_error()
                throw .outOfMemory
            }
            return Array(signature.prefix(length))
        }
    }

    /// An RSA public key.
    @safe public final class PublicKey: @unchecked Sendable, Equatable {  // EVP_PKEY is only read after init
        private let pointer: OpaquePointer

        /// Reads PEM (SubjectPublicKeyInfo).
        public init(pem: Span<UInt8>) throws(KeyFault) {
            do throws(TLSError) {
                unsafe pointer = try PEM.publicKey(pem)
            } catch { throw .noKey }
            try unsafe check(pointer)
        }

        /// Reads the numbers of a JWK (RFC 7518, 6.3.1), big-endian. Leading zeros count for nothing.
        public init(modulus: [UInt8], exponent: [UInt8]) throws(KeyFault) {
            let (modulus, exponent) = (modulus.drop { $0 == 0 }, exponent.drop { $0 == 0 })
            let bits = modulus.count * 8 - (modulus.first?.leadingZeroBitCount ?? 0)
            // Before OpenSSL sees numbers of any length.
            guard RS256.bits.contains(bits) else { throw .size(bits: bits) }
            guard exponent.count <= 4 else { throw .exponent }
            let numbers = DER.sequence(DER.number(modulus) + DER.number(exponent))
            let der = DER.sequence(Self.algorithm + DER.bits(numbers))
            let key = unsafe der.withUnsafeBufferPointer { der in
                var cursor = der.baseAddress
                return unsafe d2i_PUBKEY(nil, &cursor, der.count)
            }
            guard let key = unsafe key else {
                ERR_clear_error()
                throw .noKey
            }
            unsafe pointer = key
            try unsafe check(pointer)
        }

        /// The AlgorithmIdentifier of `rsaEncryption` (RFC 3279, 2.3.1).
        private static let algorithm: [UInt8] = [
            0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
        ]

        deinit { unsafe EVP_PKEY_free(pointer) }

        public static func == (left: PublicKey, right: PublicKey) -> Bool {
            unsafe EVP_PKEY_eq(left.pointer, right.pointer) == 1
        }

        /// Whether `signature` is valid for `message`. A signature of another length than the modulus is invalid.
        public func isValid(_ signature: Span<UInt8>, for message: Span<UInt8>) -> Bool {
            guard unsafe signature.count == Int(EVP_PKEY_get_size(pointer)), let context = unsafe EVP_MD_CTX_new() else {
                return false
            }
            defer { unsafe EVP_MD_CTX_free(context) }
            defer { ERR_clear_error() }
            return unsafe message.withUnsafeBufferPointer { message in
                unsafe signature.withUnsafeBufferPointer { signature in
                    // PKCS1 v1.5 is the padding of an RSA key unless another one is set.
                    unsafe EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, pointer) == 1
                        && EVP_DigestVerify(
                            context, signature.baseAddress, signature.count, message.baseAddress, message.count) == 1
                }
            }
        }
    }

    /// A key that is restricted to RSASSA-PSS is none for RS256.
    private static func check(_ key: OpaquePointer) throws(KeyFault) {
        defer { ERR_clear_error() }
        guard unsafe EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA else { throw .noKey }
        let bits = unsafe Int(EVP_PKEY_get_bits(key))
        guard RS256.bits.contains(bits) else { throw .size(bits: bits) }
        var exponent: OpaquePointer?
        guard unsafe EVP_PKEY_get_bn_param(key, "e", &exponent) == 1 else { throw .noKey }
        defer { unsafe BN_free(exponent) }
        // A number that doesn't fit is returned as the largest word.
        let value = unsafe UInt(BN_get_word(exponent))
        guard exponents.contains(value), value & 1 == 1 else { throw .exponent }
    }
}

/// Writes the few forms of DER that a public key needs.
private enum DER {
    static func sequence(_ content: [UInt8]) -> [UInt8] { value(0x30, content) }
    static func bits(_ content: [UInt8]) -> [UInt8] { value(0x03, [0] + content) }

    /// - Parameter bytes: a positive number, big-endian, without leading zeros.
    static func number(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        value(0x02, (bytes.first ?? 0x80) & 0x80 == 0 ? Array(bytes) : [0] + bytes)
    }

    private static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let count = content.count
        let length: [UInt8] = count < 0x80 ? [UInt8(count)] : [0x82, UInt8(count >> 8), UInt8(count & 0xff)]
        return [tag] + length + content
    }
}

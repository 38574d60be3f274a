import CSodium

/// Ed25519 (RFC 8032). The private key lives in locked memory.
public enum Ed25519 {
    public static let seedCount = 32
    public static let publicKeyCount = 32
    public static let signatureCount = 64

    public final class PrivateKey: Sendable, CustomStringConvertible, CustomReflectable {
        public let publicKey: [UInt8]
        private let secret: LockedMemory

        /// - Parameter seed: the 32 bytes of RFC 8032's private key.
        public init(seed: Span<UInt8>) throws(LockedMemory.Unavailable) {
            precondition(seed.count == Ed25519.seedCount)
            let secret = try LockedMemory(count: 64)
            var publicKey = [UInt8](repeating: 0, count: Ed25519.publicKeyCount)
            secret.withMutableBytes(0..<64) { secret in
                unsafe secret.withUnsafeMutableBufferPointer { secret in
                    unsafe seed.withUnsafeBufferPointer { seed in
                        _ = unsafe crypto_sign_seed_keypair(&publicKey, secret.baseAddress!, seed.baseAddress!)
                    }
                }
            }
            self.secret = secret
            self.publicKey = publicKey
        }

        /// Returns a detached signature of 64 bytes.
        public func sign(_ message: Span<UInt8>) -> [UInt8] {
            var signature = [UInt8](repeating: 0, count: Ed25519.signatureCount)
            secret.withBytes(0..<64) { secret in
                unsafe secret.withUnsafeBufferPointer { secret in
                    unsafe message.withUnsafeBufferPointer { message in
                        _ = unsafe crypto_sign_detached(
                            &signature, nil, message.baseAddress, UInt64(message.count), secret.baseAddress!)
                    }
                }
            }
            return signature
        }

        public var description: String { "<redacted>" }
        public var customMirror: Mirror { Mirror(self, children: []) }
    }

    /// Whether `key` is a valid public key: canonical, in the main subgroup, not of small order.
    public static func isPublicKey(_ key: Span<UInt8>) -> Bool {
        guard key.count == publicKeyCount else { return false }
        Sodium.initialize()
        return unsafe key.withUnsafeBufferPointer { unsafe crypto_core_ed25519_is_valid_point($0.baseAddress!) == 1 }
    }

    /// Whether `signature` is valid for `message` under `publicKey`. Wrong lengths and non-canonical values are invalid.
    public static func verify(_ signature: Span<UInt8>, message: Span<UInt8>, publicKey: Span<UInt8>) -> Bool {
        guard signature.count == signatureCount, publicKey.count == publicKeyCount else { return false }
        Sodium.initialize()
        return unsafe signature.withUnsafeBufferPointer { signature in
            unsafe message.withUnsafeBufferPointer { message in
                unsafe publicKey.withUnsafeBufferPointer { key in
                    unsafe crypto_sign_verify_detached(
                        signature.baseAddress!, message.baseAddress, UInt64(message.count), key.baseAddress!) == 0
                }
            }
        }
    }
}

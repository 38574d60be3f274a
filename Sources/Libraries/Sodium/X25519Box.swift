import CSodium

/// Anonymous boxes for one receiver: X25519, then XSalsa20-Poly1305 (libsodium's `crypto_box_seal`). 48 bytes longer than the content.
public enum X25519Box {
    public static let publicKeyCount = 32
    public static let overhead = 48

    /// A receiver's key pair. The private key lives in locked memory and ends with this object.
    public final class KeyPair: Sendable, CustomStringConvertible, CustomReflectable {
        public let publicKey: [UInt8]
        private let secret: LockedMemory

        public init() throws(LockedMemory.Unavailable) {
            let secret = try LockedMemory(count: 32)
            var publicKey = [UInt8](repeating: 0, count: publicKeyCount)
            secret.withMutableBytes(0..<32) { secret in
                unsafe secret.withUnsafeMutableBufferPointer { secret in
                    _ = unsafe crypto_box_keypair(&publicKey, secret.baseAddress!)
                }
            }
            self.secret = secret
            self.publicKey = publicKey
        }

        /// Writes the content to `plaintext`, which must be 48 bytes shorter than `sealed`.
        /// - Returns: false, with undefined `plaintext`, for another receiver's box or changed bytes.
        public func open(_ sealed: Span<UInt8>, into plaintext: inout MutableSpan<UInt8>) -> Bool {
            precondition(plaintext.count > 0 && plaintext.count + overhead == sealed.count)
            let result = secret.withBytes(0..<32) { secret in
                unsafe plaintext.withUnsafeMutableBufferPointer { plaintext in
                    unsafe sealed.withUnsafeBufferPointer { sealed in
                        unsafe secret.withUnsafeBufferPointer { secret in
                            unsafe crypto_box_seal_open(
                                plaintext.baseAddress!, sealed.baseAddress!, UInt64(sealed.count), publicKey, secret.baseAddress!)
                        }
                    }
                }
            }
            return result == 0
        }

        public var description: String { "<redacted>" }
        public var customMirror: Mirror { Mirror(self, children: []) }
    }

    /// Seals `plaintext` for the owner of `publicKey`, which must have 32 bytes.
    /// - Returns: nil if the key is not one that an honest receiver could have.
    public static func seal(_ plaintext: Span<UInt8>, for publicKey: Span<UInt8>) -> [UInt8]? {
        precondition(publicKey.count == publicKeyCount)
        Sodium.initialize()
        var sealed = [UInt8](repeating: 0, count: plaintext.count + overhead)
        let result = unsafe plaintext.withUnsafeBufferPointer { plaintext in
            unsafe publicKey.withUnsafeBufferPointer { key in
                unsafe crypto_box_seal(&sealed, plaintext.baseAddress, UInt64(plaintext.count), key.baseAddress!)
            }
        }
        return result == 0 ? sealed : nil
    }
}

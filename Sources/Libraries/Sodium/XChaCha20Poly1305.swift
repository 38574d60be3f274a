import CSodium

/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03, libsodium's IETF form). Key 32 bytes, nonce 24 bytes; a tag of 16 bytes follows the ciphertext.
public enum XChaCha20Poly1305 {
    public static let keyCount = 32
    public static let nonceCount = 24
    public static let tagCount = 16

    /// Writes ciphertext and tag to `sealed`, which must be 16 bytes longer than `plaintext`.
    public static func seal(
        _ plaintext: Span<UInt8>, into sealed: inout MutableSpan<UInt8>, associatedData: Span<UInt8>, nonce: Span<UInt8>,
        key: Span<UInt8>
    ) {
        precondition(sealed.count == plaintext.count + tagCount && nonce.count == nonceCount && key.count == keyCount)
        Sodium.initialize()
        unsafe sealed.withUnsafeMutableBufferPointer { sealed in
            unsafe plaintext.withUnsafeBufferPointer { plaintext in
                unsafe associatedData.withUnsafeBufferPointer { data in
                    unsafe nonce.withUnsafeBufferPointer { nonce in
                        unsafe key.withUnsafeBufferPointer { key in
                            _ = unsafe crypto_aead_xchacha20poly1305_ietf_encrypt(
                                sealed.baseAddress!, nil, plaintext.baseAddress, UInt64(plaintext.count), data.baseAddress,
                                UInt64(data.count), nil, nonce.baseAddress!, key.baseAddress!)
                        }
                    }
                }
            }
        }
    }

    /// Writes the plaintext to `plaintext`, which must be 16 bytes shorter than `sealed`.
    /// - Returns: false, with undefined `plaintext`, for a wrong key, nonce or associated data, changed bytes, or fewer than 16 bytes.
    public static func open(
        _ sealed: Span<UInt8>, into plaintext: inout MutableSpan<UInt8>, associatedData: Span<UInt8>, nonce: Span<UInt8>,
        key: Span<UInt8>
    ) -> Bool {
        guard sealed.count >= tagCount else { return false }
        precondition(plaintext.count == sealed.count - tagCount && nonce.count == nonceCount && key.count == keyCount)
        Sodium.initialize()
        // Pass an address even for an empty plaintext: without one the C function only checks the tag.
        var none: UInt8 = 0
        let result = unsafe plaintext.withUnsafeMutableBufferPointer { plaintext in
            unsafe sealed.withUnsafeBufferPointer { sealed in
                unsafe associatedData.withUnsafeBufferPointer { data in
                    unsafe nonce.withUnsafeBufferPointer { nonce in
                        unsafe key.withUnsafeBufferPointer { key in
                            unsafe withUnsafeMutablePointer(to: &none) { none in
                                unsafe crypto_aead_xchacha20poly1305_ietf_decrypt(
                                    plaintext.baseAddress ?? none, nil, nil, sealed.baseAddress!, UInt64(sealed.count),
                                    data.baseAddress, UInt64(data.count), nonce.baseAddress!, key.baseAddress!)
                            }
                        }
                    }
                }
            }
        }
        return result == 0
    }
}

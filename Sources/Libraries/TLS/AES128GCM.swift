internal import COpenSSL

/// AES-128 in Galois/Counter Mode (NIST SP 800-38D) without associated data.
public enum AES128GCM {
    public static let keyLength = 16
    public static let nonceLength = 12
    public static let tagLength = 16

    /// Encrypts the bytes from `first` in place. The last 16 are replaced by the tag of those before.
    /// - Parameters:
    ///   - key: 16 bytes, used once with a nonce.
    ///   - nonce: 12 bytes.
    public static func seal(
        _ text: inout [UInt8], from first: Int, key: Span<UInt8>, nonce: Span<UInt8>
    ) throws(TLSError) {
        precondition(text.count - first >= tagLength && key.count == keyLength && nonce.count == nonceLength)
        guard let context = unsafe EVP_CIPHER_CTX_new() else { throw .outOfMemory }
        defer { unsafe EVP_CIPHER_CTX_free(context) }
        let count = Int32(text.count - first - tagLength)
        let isDone = unsafe text.withUnsafeMutableBufferPointer { text in
            unsafe key.withUnsafeBufferPointer { key in
                unsafe nonce.withUnsafeBufferPointer { nonce in
                    var (written, rest): (Int32, Int32) = (0, 0)
                    let start = unsafe text.baseAddress! + first
                    return unsafe EVP_EncryptInit_ex(context, cipher, nil, key.baseAddress, nonce.baseAddress) == 1
                        && EVP_EncryptUpdate(context, start, &written, start, count) == 1 && written == count
                        && EVP_EncryptFinal_ex(context, start + Int(count), &rest) == 1 && rest == 0
                        && EVP_CIPHER_CTX_ctrl(
                            context, EVP_CTRL_AEAD_GET_TAG, Int32(tagLength), start + Int(count)) == 1
                }
            }
        }
        guard isDone else { throw .outOfMemory }
    }

    /// Decrypts a text that ends with its tag.
    /// - Returns: nil if it was changed, or sealed under another key or nonce.
    public static func open(_ sealed: Span<UInt8>, key: Span<UInt8>, nonce: Span<UInt8>) throws(TLSError) -> [UInt8]? {
        precondition(key.count == keyLength && nonce.count == nonceLength)
        guard sealed.count >= tagLength else { return nil }
        guard let context = unsafe EVP_CIPHER_CTX_new() else { throw .outOfMemory }
        defer { unsafe EVP_CIPHER_CTX_free(context) }
        let count = sealed.count - tagLength
        var text = [UInt8](repeating: 0, count: count + 1)
        var tag = Array(sealed.extracting(count...).indices.map { sealed[count + $0] })
        let isDone = unsafe sealed.withUnsafeBufferPointer { sealed in
            unsafe key.withUnsafeBufferPointer { key in
                unsafe nonce.withUnsafeBufferPointer { nonce in
                    var (written, rest): (Int32, Int32) = (0, 0)
                    return unsafe EVP_DecryptInit_ex(context, cipher, nil, key.baseAddress, nonce.baseAddress) == 1
                        && EVP_DecryptUpdate(context, &text, &written, sealed.baseAddress, Int32(count)) == 1
                        && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(tagLength), &tag) == 1
                        && EVP_DecryptFinal_ex(context, &tag, &rest) == 1
                }
            }
        }
        ERR_clear_error()
        text.removeLast()
        return isDone ? text : nil
    }

    /// Fetched once: OpenSSL would search its providers at each use.
    private nonisolated(unsafe) static let cipher = unsafe EVP_CIPHER_fetch(nil, "AES-128-GCM", nil)
}

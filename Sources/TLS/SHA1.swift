internal import COpenSSL

/// SHA-1, for the WebSocket handshake (RFC 6455, 4.2.2) and nothing that needs a hash to be secure.
public enum SHA1 {
    /// The 20-byte digest.
    public static func digest(_ message: Span<UInt8>) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 20)
        let done = unsafe message.withUnsafeBufferPointer { message in
            unsafe EVP_Digest(message.baseAddress, message.count, &digest, nil, EVP_sha1(), nil)
        }
        precondition(done == 1, "OpenSSL was built without SHA-1")
        return digest
    }
}

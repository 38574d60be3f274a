internal import COpenSSL

/// Why a text is no `ES256.PrivateKey`, as far as it can be told. Holds nothing of it.
public enum KeyFault: Error, Sendable, Equatable, CustomStringConvertible {
    case noPEM
    case encrypted
    case publicKey
    case noKey
    /// `RSA`, `ED25519`, or `EC` with its curve.
    case otherKind(String)
    case damaged

    /// - Parameter pem: what `ES256.PrivateKey` refuses.
    public init(_ pem: Span<UInt8>) {
        func holds(_ mark: String) -> Bool {
            let mark = Array(mark.utf8)
            guard pem.count >= mark.count else { return false }
            return (0...pem.count - mark.count).contains { start in mark.indices.allSatisfy { pem[start + $0] == mark[$0] } }
        }
        self =
            if let kind = Self.kind(pem) {
                .otherKind(kind)
            } else if !holds("-----BEGIN ") {
                .noPEM
            } else if holds("PRIVATE KEY-----") {
                holds("ENCRYPTED") ? .encrypted : .damaged
            } else {
                holds("PUBLIC KEY-----") ? .publicKey : .noKey
            }
    }

    private static func kind(_ pem: Span<UInt8>) -> String? {
        guard let key = unsafe try? PEM.privateKey(pem) else { return nil }
        defer { unsafe EVP_PKEY_free(key) }
        guard let name = unsafe EVP_PKEY_get0_type_name(key) else { return "another" }
        let kind = unsafe String(cString: name)
        var curve = [CChar](repeating: 0, count: 64)
        var length = 0
        guard unsafe EVP_PKEY_get_group_name(key, &curve, curve.count, &length) == 1 else {
            ERR_clear_error()
            return kind
        }
        return kind + " " + String(decoding: curve.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
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

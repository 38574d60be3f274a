import Foundation

#if canImport(CryptoKit)
    import CryptoKit
#endif

/// The names in pushes, which only the receiver can resolve.
enum Handle {
    /// Returns the first 16 bytes of HMAC-SHA256(key, "mayfly/v1 handle" || kind || slot || id) as base64url.
    ///
    /// - Parameter slot: the room side, or 0 for apps with accounts.
    static func make(key: Data, kind: String, slot: UInt8, id: String) -> String {
        let message = Data("mayfly/v1 handle\(kind)".utf8) + [slot] + Data(id.utf8)
        #if canImport(CryptoKit)
            let code = Data(HMAC<CryptoKit.SHA256>.authenticationCode(for: message, using: SymmetricKey(data: key)))
        #else
            let code = Data(SHA256.authenticationCode(for: Array(message), key: Array(key)))
        #endif
        return code.prefix(16).base64URL
    }
}

import Sodium
import TLS

/// Opens Web Push messages as a browser does (RFC 8291, and RFC 8188's `aes128gcm`).
///
/// It is separate from the broker's encryption, so that a bug there doesn't hide in tests with the simulator.
enum MessageOpener {
    private static let pointCount = ECDHKey.pointLength
    /// `salt[16] || record size u32be || length of the key id || key id`.
    static let headCount = 21 + pointCount
    /// A record with an empty text: the delimiter and the tag.
    static let shortest = headCount + 1 + AES128GCM.tagLength

    /// Returns the key id: the point of the sender's key of this message.
    static func keyID(of message: [UInt8]) -> [UInt8]? {
        guard message.count >= shortest, message[20] == UInt8(pointCount) else { return nil }
        return Array(message[21..<headCount])
    }

    /// Returns the text without its padding. Returns nil unless the message is one record for this receiver.
    static func open(_ message: [UInt8], key: ECDHKey, auth: [UInt8]) -> [UInt8]? {
        guard let sender = keyID(of: message) else { return nil }
        let size = message[16..<20].reduce(0) { $0 << 8 | Int($1) }
        guard size >= message.count - headCount else { return nil }
        var secret = [UInt8](repeating: 0, count: ECDHKey.secretLength)
        var room = secret.mutableSpan
        do { try key.agree(with: sender.span, into: &room) } catch { return nil }
        let material = derive(32, Array("WebPush: info\0".utf8) + key.point + sender, from: secret, salt: auth)
        let salt = Array(message[..<16])
        let content = derive(16, Array("Content-Encoding: aes128gcm\0".utf8), from: material, salt: salt)
        let nonce = derive(12, Array("Content-Encoding: nonce\0".utf8), from: material, salt: salt)
        let record = Array(message[headCount...])
        let opened = try? AES128GCM.open(record.span, key: content.span, nonce: nonce.span)
        // The text, the delimiter of the last record, and zeroes.
        guard let text = opened ?? nil, let end = text.lastIndex(where: { $0 != 0 }), text[end] == 2 else { return nil }
        return Array(text[..<end])
    }

    /// HKDF with SHA-256 (RFC 5869) for at most 32 bytes.
    private static func derive(_ count: Int, _ info: [UInt8], from secret: [UInt8], salt: [UInt8]) -> [UInt8] {
        let extracted = HMACSHA256.code(secret.span, key: salt.span)
        let input = info + [1]
        return Array(HMACSHA256.code(input.span, key: extracted.span).prefix(count))
    }
}

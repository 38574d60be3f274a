import Sealing
import Sodium
public import TLS

/// Encryption of Web Push messages (RFC 8291 with RFC 8188's `aes128gcm`), each as one record.
public enum MessageEncryption {
    /// The length of a padded text. All messages have it, so that none shows its template.
    public static let textCount = 1_024
    /// `salt[16] || record size u32be || 65 || the sender's point[65]`.
    static let headCount = 86
    /// The length of every message: 1,127 bytes.
    public static let messageCount = headCount + textCount + 1 + AES128GCM.tagLength
    public static let authCount = 16
    /// 4,096, as other senders use. A message is one record, and the last record may be shorter (RFC 8188, 2.1).
    private static let recordSize: [UInt8] = [0, 0, 0x10, 0]

    /// - Parameters:
    ///   - text: at most 1,024 bytes.
    ///   - point: the subscription's `p256dh`.
    ///   - auth: the subscription's `auth`.
    /// - Throws: `.badKey` if `point` is not on the curve.
    public static func encrypt(_ text: [UInt8], to point: Span<UInt8>, auth: Span<UInt8>) throws(TLSError) -> [UInt8] {
        try encrypt(text, to: point, auth: auth, with: ECDHKey(), salt: Sodium.randomBytes(16), textCount: textCount)
    }

    /// - Parameters:
    ///   - key: the sender's key of this message.
    ///   - textCount: the length of the padded text.
    static func encrypt(
        _ text: [UInt8], to point: Span<UInt8>, auth: Span<UInt8>, with key: ECDHKey, salt: [UInt8], textCount: Int
    ) throws(TLSError) -> [UInt8] {
        precondition(text.count <= textCount && auth.count == authCount && salt.count == 16)
        let own = key.point
        var keys = try Keys(key, with: point, auth: auth, salt: salt, receiver: point, sender: own.span)
        defer { keys.wipe() }
        var message = [UInt8]()
        message.reserveCapacity(headCount + textCount + 1 + AES128GCM.tagLength)
        message += salt
        message += recordSize
        message.append(UInt8(own.count))
        message += own
        message += text
        // The delimiter of the last record (RFC 8188, 2), then padding.
        message.append(2)
        message += repeatElement(0, count: textCount - text.count + AES128GCM.tagLength)
        try AES128GCM.seal(&message, from: headCount, key: keys.content.span, nonce: keys.nonce.span)
        return message
    }

    /// Opens a message as its receiver does.
    /// - Parameter key: the key whose point is the subscription's `p256dh`.
    /// - Returns: the text without padding. Nil for anything but one record for this receiver.
    public static func decrypt(_ message: [UInt8], with key: ECDHKey, auth: Span<UInt8>) throws(TLSError) -> [UInt8]? {
        guard message.count > headCount + AES128GCM.tagLength, message[20] == 65, auth.count == authCount else { return nil }
        let (own, bytes) = (key.point, message.span)
        let sender = bytes.extracting(21..<headCount)
        var keys: Keys
        do throws(TLSError) {
            keys = try Keys(key, with: sender, auth: auth, salt: Array(message[..<16]), receiver: own.span, sender: sender)
        } catch {
            if error == .badKey { return nil }
            throw error
        }
        defer { keys.wipe() }
        let opened = try AES128GCM.open(bytes.extracting(headCount...), key: keys.content.span, nonce: keys.nonce.span)
        guard var text = opened, let end = text.lastIndex(where: { $0 != 0 }), text[end] == 2 else { return nil }
        text.removeSubrange(end...)
        return text
    }

    /// The key and nonce of one message (RFC 8291, 3.4). Arrays, because nothing would wipe a struct's own bytes on the stack.
    private struct Keys {
        private(set) var content, nonce: [UInt8]

        mutating func wipe() {
            Sodium.wipe(&content)
            Sodium.wipe(&nonce)
        }

        init(
            _ key: ECDHKey, with peer: Span<UInt8>, auth: Span<UInt8>, salt: [UInt8], receiver: Span<UInt8>,
            sender: Span<UInt8>
        ) throws(TLSError) {
            var secret = [UInt8](repeating: 0, count: ECDHKey.secretLength)
            defer { Sodium.wipe(&secret) }
            var span = secret.mutableSpan
            try key.agree(with: peer, into: &span)
            var extract = HMACSHA256.code(secret.span, key: auth)
            defer { Sodium.wipe(&extract) }
            var expand = HMACSHA256(key: extract.span)
            expand.update(Self.info.span)
            expand.update(receiver)
            expand.update(sender)
            expand.update(1)
            var material = expand.finish()
            defer { Sodium.wipe(&material) }
            var pseudo = HMACSHA256.code(material.span, key: salt.span)
            defer { Sodium.wipe(&pseudo) }
            content = HMACSHA256.code(Self.contentInfo.span, key: pseudo.span)
            nonce = HMACSHA256.code(Self.nonceInfo.span, key: pseudo.span)
            content.removeLast(content.count - AES128GCM.keyLength)
            nonce.removeLast(nonce.count - AES128GCM.nonceLength)
        }

        private static let info = Array("WebPush: info\0".utf8)
        private static let contentInfo = Array("Content-Encoding: aes128gcm\0\u{1}".utf8)
        private static let nonceInfo = Array("Content-Encoding: nonce\0\u{1}".utf8)
    }
}

import HTTP1
import TLS

/// The opening handshake of RFC 6455, section 4.
enum WebSocketHandshake {
    /// `Sec-WebSocket-Accept` for the request's key, or why it is refused.
    static func accept(_ message: Message) throws(HandshakeFailure) -> String {
        guard message.method == .get, message.isVersion11, message.bodyCount == 0,
            message.withHeader("upgrade", { $0.listContains("websocket") }) == true,
            message.withHeader("connection", { $0.listContains("upgrade") }) == true,
            let key = message.header("sec-websocket-key"), isKey(key)
        else { throw .incomplete }
        guard message.header("sec-websocket-version") == "13" else { throw .version }
        return answer(to: key)
    }

    /// What a server must answer to `key`.
    static func answer(to key: String) -> String {
        let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
        return base64(SHA1.digest(text.span))
    }

    static func makeKey() -> String { base64((0..<16).map { _ in UInt8.random(in: .min ... .max) }) }

    /// 16 bytes in base64.
    private static func isKey(_ key: String) -> Bool {
        key.utf8.count == 24 && key.hasSuffix("==") && key.utf8.dropLast(2).allSatisfy { alphabet.contains($0) }
    }

    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    private static func base64(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.enumerated().reduce(0) { $0 | Int($1.element) << (16 - 8 * $1.offset) }
            for index in 0..<4 { text.append(index <= group.count ? alphabet[bits >> (18 - 6 * index) & 63] : UInt8(ascii: "=")) }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

enum HandshakeFailure: Error { case incomplete, version }

import HTTP1
import HTTP2

@testable import HTTPServer

/// What the server takes of an HTTP/2 header block, it must also take when it is written as HTTP/1.1: a proxy may do just that.
enum StreamRequestFuzz {
    static func check(_ headers: HTTP2Headers) {
        guard case .taken(let builder, _) = StreamRequest(headers, MessageLimits()) else { return }
        let message = builder.finish()
        var text = Array((headers[":method"] ?? "").utf8) + [0x20]
        text += message.withTarget(copy) + Array(" HTTP/1.1\r\n".utf8)
        if let authority = headers.withValue(of: ":authority", copy) { text += Array("host: ".utf8) + authority + [0x0D, 0x0A] }
        var hasHost = headers[":authority"] != nil
        headers.forEachField { _, name, value in
            if name[0] == UInt8(ascii: ":") || name.isToken("content-length") || (hasHost && name.isToken("host")) { return }
            if name.isToken("host") { hasHost = true }
            text += copy(name) + [0x3A, 0x20] + copy(value) + [0x0D, 0x0A]
        }
        text += [0x0D, 0x0A]
        guard let plain = PlainRequest(text) else {
            fatalError("a request that HTTP/1.1 does not allow: \(String(decoding: text, as: UTF8.self).debugDescription)")
        }
        require(plain.values("host") == [message.withHeader("host", copy)], "one host")
        require(plain.target == message.withTarget(copy), "the same target")
        require(
            RequestParser().parse(text.span) == .complete(consumed: text.count) || message.method == .other,
            "taken as HTTP/1.1 too")
    }
}

import HTTP2

/// A client and a server connected in memory.
struct HTTP2Pair {
    let client: HTTP2Session
    let server: HTTP2Session

    init(clientBody: Int = 1 << 20, serverBody: Int = 1 << 20, change: (inout HTTP2Limits) -> Void = { _ in }) throws {
        client = try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: clientBody))
        var limits = HTTP2Limits(bodyBytes: serverBody)
        change(&limits)
        server = try HTTP2Session(.server, limits: limits)
    }

    /// Transfers bytes in pieces of `step` until neither end has output.
    func run(step: Int = .max) throws {
        while client.wantsWrite || server.wantsWrite {
            try carry(from: client, to: server, step)
            try carry(from: server, to: client, step)
        }
    }

    func carry(from: HTTP2Session, to: HTTP2Session, _ step: Int = .max) throws {
        var bytes: [UInt8] = []
        try from.takeOutbound(into: &bytes)
        var rest = bytes[...]
        while !rest.isEmpty {
            let piece = Array(rest.prefix(step))
            rest = rest.dropFirst(piece.count)
            try to.receive(piece.span)
        }
    }

    /// Exchanges the settings.
    static func connected(change: (inout HTTP2Limits) -> Void = { _ in }) throws -> HTTP2Pair {
        let pair = try HTTP2Pair(change: change)
        try pair.run()
        _ = pair.client.takeEvents()
        _ = pair.server.takeEvents()
        return pair
    }

    static let request: HTTP2Headers = [
        ":method": "POST", ":scheme": "https", ":authority": "localhost", ":path": "/3/device/00", "apns-topic": "a.b",
    ]
    static let response: HTTP2Headers = [":status": "200", "apns-id": "x"]
}

extension HTTP2Session {
    func receive(_ bytes: [UInt8]) throws { try receive(bytes.span) }
}

/// HTTP/2 frames encoded by hand, for input that a well-behaved session never sends (RFC 9113, 4.1; RFC 7541, 6.2.2).
enum Frames {
    static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + frame(type: 4, flags: 0, stream: 0, [])

    static func frame(type: UInt8, flags: UInt8, stream: UInt32, _ payload: [UInt8]) -> [UInt8] {
        let length = payload.count
        return [UInt8(length >> 16), UInt8(length >> 8 & 0xff), UInt8(length & 0xff), type, flags] + bytes(stream) + payload
    }

    static func headers(stream: UInt32, _ block: [UInt8], end: Bool, endHeaders: Bool = true) -> [UInt8] {
        frame(type: 1, flags: (end ? 1 : 0) | (endHeaders ? 4 : 0), stream: stream, block)
    }

    /// A literal without indexing, for lengths under 127.
    static func literal(_ name: String, _ value: String) -> [UInt8] {
        [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.utf8.count)] + Array(value.utf8)
    }

    static func request(method: String = "POST") -> [UInt8] {
        literal(":method", method) + literal(":scheme", "https") + literal(":authority", "x") + literal(":path", "/")
    }

    static func reset(stream: UInt32) -> [UInt8] { frame(type: 3, flags: 0, stream: stream, bytes(8)) }
    static func ping(_ number: UInt32) -> [UInt8] { frame(type: 6, flags: 0, stream: 0, bytes(0) + bytes(number)) }

    static func bytes(_ number: UInt32) -> [UInt8] {
        [UInt8(number >> 24), UInt8(number >> 16 & 0xff), UInt8(number >> 8 & 0xff), UInt8(number & 0xff)]
    }
}

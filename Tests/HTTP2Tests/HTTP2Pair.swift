import HTTP2

/// A client and a server joined by their bytes alone.
struct HTTP2Pair {
    let client: HTTP2Session
    let server: HTTP2Session

    init(clientBody: Int = 1 << 20, serverBody: Int = 1 << 20, change: (inout HTTP2Limits) -> Void = { _ in }) throws {
        client = try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: clientBody))
        var limits = HTTP2Limits(bodyBytes: serverBody)
        change(&limits)
        server = try HTTP2Session(.server, limits: limits)
    }

    /// Carries bytes in pieces of `step` until nobody has any.
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

    /// Past the settings.
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

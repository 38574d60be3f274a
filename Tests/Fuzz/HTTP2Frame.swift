/// An HTTP/2 frame (RFC 9113 section 4.1), read and written in the plainest way.
struct HTTP2Frame {
    var type: UInt8
    var flags: UInt8 = 0
    var stream: UInt32 = 0
    var payload: [UInt8] = []

    static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)

    var bytes: [UInt8] {
        var bytes = Array(Self.bytes(UInt32(payload.count)).dropFirst())
        bytes += [type, flags]
        bytes += Self.bytes(stream)
        return bytes + payload
    }

    static func bytes(_ number: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) } }

    /// The frames that `bytes` are made of; nil when the last one is not whole.
    static func frames(_ bytes: ArraySlice<UInt8>) -> [HTTP2Frame]? {
        var rest = bytes
        var frames: [HTTP2Frame] = []
        while !rest.isEmpty {
            let head = Array(rest.prefix(9))
            let length = head.prefix(3).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(9)
            guard head.count == 9, rest.count >= length else { return nil }
            let stream = head[5...].reduce(0) { $0 << 8 | UInt32($1) }
            frames.append(HTTP2Frame(type: head[3], flags: head[4], stream: stream, payload: Array(rest.prefix(length))))
            rest = rest.dropFirst(length)
        }
        return frames
    }
}

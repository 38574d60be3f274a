import HTTP2

/// A step derived from the input: bytes from the peer, such as frames of any kind and order, or a call of the owner.
enum HTTP2Step {
    case receive([UInt8])
    /// Takes output up to `limit` bytes.
    case send(limit: Int)
    /// A server answers the oldest or the newest open request. A client sends a request.
    case message(oldest: Bool, bodyBytes: Int)
    case interim
    case reset
    case settings(concurrentStreams: UInt32)
    case ping
    case shutdownNotice
    case goAway
    case terminate
}

struct HTTP2Script {
    private var input: FuzzInput
    private let role: HTTP2Session.Role
    private var stream: UInt32 = 1

    static func steps(_ input: FuzzInput, withPreface: Bool, for role: HTTP2Session.Role) -> [HTTP2Step] {
        var script = HTTP2Script(input: input, role: role)
        var steps: [HTTP2Step] = []
        if withPreface {
            steps.append(.receive((role == .server ? HTTP2Frame.preface : []) + HTTP2Frame(type: 4).bytes))
        }
        while !script.input.isAtEnd { steps.append(script.step()) }
        return steps
    }

    private mutating func step() -> HTTP2Step {
        let choice = input.byte()
        switch choice & 15 {
        case 0, 1: return .receive(headers(choice))
        case 2:
            let payload = input.bytes(input.number(upTo: 80))
            let copies = choice & 0x80 == 0 ? 1 : 3
            return .receive(frame(0, flags: choice >> 4 & 1, onStream(), repeatElement(payload, count: copies).flatMap { $0 }))
        case 3: return .receive(frame(3, onStream(), number()))
        case 4: return .receive(frame(6, flags: choice >> 4 & 1, 0, number() + number()))
        case 5:
            var entries: [UInt8] = []
            for _ in 0..<(choice >> 4) {
                entries += [0, input.byte() & 15]
                entries += number()
            }
            return .receive(frame(4, 0, entries))
        case 6: return .receive(frame(8, choice & 16 == 0 ? 0 : onStream(), number()))
        case 7: return .receive(frame(2, onStream(), number() + [input.byte()]))
        case 8: return .receive(frame(7, 0, number() + number() + input.bytes(Int(choice >> 4))))
        case 9: return .receive(frame(input.byte(), flags: input.byte(), onStream(), input.bytes(input.number(upTo: 60))))
        case 10: return .receive(input.bytes(input.number(upTo: 60)))
        case 11: return .receive(frame(1, flags: 5, onStream(), fields()))
        case 12: return .receive(frame(4, flags: 1, 0, []))
        case 13: return .message(oldest: choice & 16 == 0, bodyBytes: input.number(upTo: 255) << Int(choice >> 5))
        case 14: return .send(limit: choice >> 4 == 15 ? .max : input.number(upTo: 255) << 2)
        default: return call(choice >> 4)
        }
    }

    private func call(_ choice: UInt8) -> HTTP2Step {
        switch choice {
        case 0: .terminate
        case 1: .goAway
        case 2: .shutdownNotice
        case 3, 4: .ping
        case 5, 6: .settings(concurrentStreams: 1)
        case 7, 8: .settings(concurrentStreams: 3)
        case 9, 10, 11: .reset
        default: .interim
        }
    }

    private func frame(_ type: UInt8, flags: UInt8 = 0, _ stream: UInt32, _ payload: [UInt8]) -> [UInt8] {
        HTTP2Frame(type: type, flags: flags, stream: stream, payload: payload).bytes
    }

    /// Derives small and large numbers from two bytes.
    private mutating func number() -> [UInt8] {
        let (low, shift) = (input.byte(), input.byte())
        return HTTP2Frame.bytes(UInt32(low) << UInt32(shift & 31) | UInt32(shift >> 5))
    }

    /// Usually the newest stream.
    private mutating func onStream() -> UInt32 {
        let choice = input.byte()
        return choice < 0xC0 ? max(stream, 3) - 2 * UInt32(choice & 1) : UInt32(choice & 31)
    }

    private mutating func headers(_ choice: UInt8) -> [UInt8] {
        var block: [UInt8] = []
        if role == .server {
            block = choice & 0x80 == 0 ? [0x83, 0x86, 0x84] : [0x82, 0x87, 0x84]
            block += Self.literal(":authority", Array("x".utf8))
            stream += 2
        } else {
            block = choice & 0x80 == 0 ? [0x88] : Self.literal(":status", input.bytes(3))
        }
        block += fields()
        let end = choice >> 4 & 1
        let id = role == .server ? stream : onStream()
        guard choice & 0x20 != 0, block.count > 4 else { return frame(1, flags: end | 4, id, block) }
        return frame(1, flags: end, id, Array(block.prefix(4))) + frame(9, flags: 4, id, Array(block.dropFirst(4)))
    }

    private static let names = [
        "content-length", "te", "cookie", "connection", "Upper", "host", ":path", "", "expect", "a b", ":status",
        "transfer-encoding",
        "x", "content-length", "x",
    ]

    /// Header fields as literals, indexed, or random bytes.
    private mutating func fields() -> [UInt8] {
        var block: [UInt8] = []
        for _ in 0..<input.number(upTo: 8) {
            let choice = input.byte()
            switch choice >> 4 {
            case 15: block += input.bytes(Int(choice & 15))
            case 14: block.append(input.byte() | 0x80)
            case let place:
                let value = input.bytes(Int(choice & 7))
                let copies = choice & 8 == 0 ? 1 : 12
                let field = Self.literal(Self.names[Int(place)], repeatElement(value, count: copies).flatMap { $0 })
                block += [place & 1 == 0 ? 0 : 0x40] + field.dropFirst()
            }
        }
        return block
    }

    /// A literal without indexing (RFC 7541 section 6.2.2), for lengths under 127.
    private static func literal(_ name: String, _ value: [UInt8]) -> [UInt8] {
        [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.count)] + value
    }
}

/// An HTTP/2 frame (RFC 9113 section 4.1), with a deliberately simple encoder and decoder.
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

    /// Decodes the frames in `bytes`. Returns nil if the last one is incomplete.
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

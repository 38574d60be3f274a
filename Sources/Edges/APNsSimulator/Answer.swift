import HTTP2

/// An answer to a request.
struct Answer {
    var status: Int
    /// The `apns-id`. Nil for Web Push.
    var id: [UInt8]?
    /// The id by which Apple's console finds a delivery. Only with 200 from the sandbox.
    var uniqueID: [UInt8]?
    /// Seconds.
    var retryAfter: Int?
    /// Names in lower case.
    var more: [(name: String, value: String)] = []
    var body: [UInt8] = []

    /// - Parameter now: unix milliseconds, for the time stamp of a 410.
    static func refused(_ reason: Reason, id: [UInt8], now: UInt64) -> Answer {
        Answer(status: reason.status, id: id, body: json(reason.rawValue, reason.status == 410 ? now : nil))
    }

    var headers: HTTP2Headers {
        var headers = HTTP2Headers(capacity: 128)
        headers.append(":status", status == 200 ? "200" : "\(status)")
        for (name, value) in fields.dropFirst() { headers.append(name, value.span, .never) }
        return headers
    }

    /// The headers as bytes.
    var fields: [(String, [UInt8])] {
        var fields: [(String, [UInt8])] = [(":status", Array("\(status)".utf8))]
        if let id { fields.append(("apns-id", id)) }
        if let uniqueID { fields.append(("apns-unique-id", uniqueID)) }
        if let retryAfter { fields.append(("retry-after", Array("\(retryAfter)".utf8))) }
        return fields + more.map { ($0.name, Array($0.value.utf8)) }
    }

    /// Returns `{"reason":...}`, for 410 with the time at which the token became invalid, in unix milliseconds.
    static func json(_ reason: String, _ timestamp: UInt64?, as form: TimestampForm? = nil) -> [UInt8] {
        var out = Array(#"{"reason":"#.utf8)
        JSON.append(reason, to: &out)
        if let timestamp {
            let member = ",\"timestamp\":"
            let text =
                switch form {
                case nil: member + "\(timestamp)"
                case .seconds: member + "\(timestamp / 1000)"
                case .text: member + "\"\(timestamp)\""
                case .negative: member + "-\(timestamp)"
                case .huge: member + "18446744073709551616"
                case .missing: ""
                case .twice: member + "\(timestamp)" + member + "\(timestamp)"
                }
            out.append(contentsOf: text.utf8)
        }
        out.append(UInt8(ascii: "}"))
        return out
    }
}

extension Answer {
    /// The answer of `fault`. Returns nil if the fault doesn't determine a status.
    init?(_ fault: Fault, id: [UInt8]?, now: UInt64) {
        guard let status = fault.answerStatus else { return nil }
        self.init(status: status, id: id, retryAfter: fault.retryAfter)
        more = fault.headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        if let text = fault.body {
            body = Array(text.utf8)
        } else if let reason = fault.reason {
            body = Self.json(reason, fault.timestamp ?? (status == 410 ? now : nil), as: fault.timestampAs)
        }
    }
}

/// The shape of an answer's frames. The default is an ordinary answer.
public struct AnswerForm: Sendable, Equatable {
    /// Sends an interim answer with this status first, 100 to 199.
    public var interim: Int?
    /// Limit of bytes per DATA frame.
    public var pieces: Int?
    /// Limit of bytes per HEADERS and CONTINUATION frame.
    public var continuation: Int?
    /// The value of `content-length`, which may be wrong.
    public var announced: Int?
    /// Sends a header block after the body.
    public var trailers = false
    /// Milliseconds from the first to the last frame. The body is sent in pieces.
    public var dribbleMs: UInt64 = 0
    /// Closes the connection after half of the answer's bytes.
    public var half = false
    /// Sends header fields without end.
    public var endless = false

    public init() {}

    var isPlain: Bool { self == AnswerForm() }
}

/// The frames of an answer in a shape that nghttp2 can't write.
///
/// Header fields are literals that enter no table (RFC 7541, 6.2.3). So they don't disturb the compression state of nghttp2.
struct AnswerFrames {
    /// In order. The bytes of an element must be sent without interruption.
    private(set) var frames: [[UInt8]] = []

    private enum Kind: UInt8 {
        case data = 0
        case headers = 1
        case continuation = 9
    }
    private static let endStream: UInt8 = 1
    private static let endHeaders: UInt8 = 4
    /// The frame size that every peer accepts (RFC 9113, 4.2).
    private static let frameLimit = 16_384

    init(_ answer: Answer, _ form: AnswerForm, stream: Int32) {
        if let interim = form.interim { putBlock([(":status", Array("\(interim)".utf8))], form, stream, ends: false) }
        var fields = answer.fields
        if let announced = form.announced { fields.append(("content-length", Array("\(announced)".utf8))) }
        // A dribbled answer ends with DATA, because it needs a last frame to delay.
        let endsWithData = !answer.body.isEmpty || form.dribbleMs > 0
        putBlock(fields, form, stream, ends: !endsWithData && !form.trailers)
        putBody(answer.body, form, stream, endsWithData)
        if form.trailers { putBlock([("x-served-by", Array("simulator".utf8))], form, stream, ends: true) }
    }

    private mutating func putBody(_ body: [UInt8], _ form: AnswerForm, _ stream: Int32, _ endsWithData: Bool) {
        var rest = body[...]
        let size = form.pieces ?? (form.dribbleMs > 0 ? 1 : Self.frameLimit)
        while !rest.isEmpty {
            let piece = rest.prefix(size)
            rest = rest.dropFirst(piece.count)
            frames.append(Self.frame(.data, rest.isEmpty && !form.trailers ? Self.endStream : 0, stream, piece))
        }
        if body.isEmpty, endsWithData, !form.trailers { frames.append(Self.frame(.data, Self.endStream, stream, [])) }
    }

    private mutating func putBlock(_ fields: [(String, [UInt8])], _ form: AnswerForm, _ stream: Int32, ends: Bool) {
        var block: [UInt8] = []
        for (name, value) in fields { Self.put(name, value, into: &block) }
        var rest = block[...]
        var kind = Kind.headers
        var whole: [UInt8] = []
        while !rest.isEmpty {
            let part = rest.prefix(form.continuation ?? Self.frameLimit)
            rest = rest.dropFirst(part.count)
            let flags = (rest.isEmpty ? Self.endHeaders : 0) | (kind == .headers && ends ? Self.endStream : 0)
            whole += Self.frame(kind, flags, stream, part)
            kind = .continuation
        }
        frames.append(whole)
    }

    /// Returns the start of an answer whose header block doesn't end, and a frame that continues the block.
    static func endless(_ answer: Answer, stream: Int32) -> (start: [UInt8], more: [UInt8]) {
        var block: [UInt8] = []
        for (name, value) in answer.fields { put(name, value, into: &block) }
        var more: [UInt8] = []
        for _ in 0..<4 { put("x-more", [UInt8](repeating: UInt8(ascii: "m"), count: 1000), into: &more) }
        return (frame(.headers, 0, stream, block[...]), frame(.continuation, 0, stream, more[...]))
    }

    private static func put(_ name: String, _ value: [UInt8], into block: inout [UInt8]) {
        block.append(0x10)
        put(Array(name.utf8), into: &block)
        put(value, into: &block)
    }

    /// Writes a string literal without Huffman coding (RFC 7541, 5.2).
    private static func put(_ text: [UInt8], into block: inout [UInt8]) {
        if text.count < 127 {
            block.append(UInt8(text.count))
        } else {
            block.append(127)
            var rest = text.count - 127
            while rest >= 128 {
                block.append(UInt8(rest & 127 | 128))
                rest >>= 7
            }
            block.append(UInt8(rest))
        }
        block += text
    }

    private static func frame(_ kind: Kind, _ flags: UInt8, _ stream: Int32, _ payload: ArraySlice<UInt8>) -> [UInt8] {
        header(kind.rawValue, flags, stream, payload.count) + payload
    }

    private static func header(_ kind: UInt8, _ flags: UInt8, _ stream: Int32, _ count: Int) -> [UInt8] {
        [
            UInt8(truncatingIfNeeded: count >> 16), UInt8(truncatingIfNeeded: count >> 8), UInt8(truncatingIfNeeded: count), kind,
            flags, UInt8(truncatingIfNeeded: stream >> 24), UInt8(truncatingIfNeeded: stream >> 16),
            UInt8(truncatingIfNeeded: stream >> 8), UInt8(truncatingIfNeeded: stream),
        ]
    }

    /// Returns `count` PING frames.
    static func pings(_ count: Int) -> [UInt8] {
        let ping = header(6, 0, 0, 8) + [0x66, 0x6c, 0x6f, 0x6f, 0x64, 0x20, 0x20, 0x20]
        return (0..<count).flatMap { _ in ping }
    }

    /// Removes the RST_STREAM frames of `streams` from `bytes`, which must be whole frames. Removes their streams from `streams`.
    static func dropResets(of streams: inout Set<Int32>, from bytes: inout [UInt8]) {
        var kept: [UInt8] = []
        var place = 0
        while place + 9 <= bytes.count {
            let end = place + 9 + (Int(bytes[place]) << 16 | Int(bytes[place + 1]) << 8 | Int(bytes[place + 2]))
            let stream = bytes[place + 5..<place + 9].reduce(Int32(0)) { $0 << 8 | Int32($1) }
            if bytes[place + 3] != 3 || streams.remove(stream) == nil { kept += bytes[place..<min(end, bytes.count)] }
            place = end
        }
        if place < bytes.count { kept += bytes[place...] }
        bytes = kept
    }
}

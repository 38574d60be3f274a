/// An answer as frames written by hand, since nghttp2 writes none of these shapes. Their header fields are literals that enter
/// no table (RFC 7541, 6.2.3), so nghttp2's own compression is not disturbed by them.
struct AnswerFrames {
    /// In order; nothing else may be sent between the bytes of one of them.
    private(set) var frames: [[UInt8]] = []

    private enum Kind: UInt8 {
        case data = 0
        case headers = 1
        case continuation = 9
    }
    private static let endStream: UInt8 = 1
    private static let endHeaders: UInt8 = 4
    /// The most that every peer takes (RFC 9113, 4.2).
    private static let frameLimit = 16_384

    init(_ answer: Answer, _ form: AnswerForm, stream: Int32) {
        if let interim = form.interim { putBlock([(":status", Array("\(interim)".utf8))], form, stream, ends: false) }
        var fields = answer.fields
        if let announced = form.announced { fields.append(("content-length", Array("\(announced)".utf8))) }
        // Something has to be left for the end of the time.
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
        for (name, value) in fields {
            block.append(0x10)
            Self.put(Array(name.utf8), into: &block)
            Self.put(value, into: &block)
        }
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

    /// A string literal without Huffman coding (RFC 7541, 5.2).
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

    /// As many PING frames.
    static func pings(_ count: Int) -> [UInt8] {
        let ping = header(6, 0, 0, 8) + [0x66, 0x6c, 0x6f, 0x6f, 0x64, 0x20, 0x20, 0x20]
        return (0..<count).flatMap { _ in ping }
    }

    /// `bytes`, which are whole frames, without the RST_STREAM frames of `streams`; what was left out leaves `streams` too.
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

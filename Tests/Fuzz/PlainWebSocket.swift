/// What RFC 6455 makes of a stream that comes byte by byte, for a peer that takes text only and closes at the first fault.
struct PlainWebSocket {
    struct Ending {
        /// The codes that the close frame may have; an empty one has none.
        let closes: [[UInt8]]
    }

    private(set) var messages: [[UInt8]] = []
    private(set) var pings: [[UInt8]] = []
    private(set) var ending: Ending?
    /// Some faults show before the frame is whole, and which ones is the reader's affair.
    private(set) var endsInsideAFrame = false
    private var partial: [UInt8]?
    private var controlFrames = 0

    init(_ stream: [UInt8], expectsMask: Bool, maximum: Int) {
        var rest = stream[...]
        while ending == nil, let frame = WebSocketFrame(startOf: rest) {
            take(frame, expectsMask: expectsMask, maximum: maximum)
            guard frame.isWhole, ending == nil else { break }
            rest = rest.dropFirst(frame.count)
        }
        endsInsideAFrame = !rest.isEmpty && WebSocketFrame(startOf: rest)?.isWhole != true
    }

    private mutating func take(_ frame: WebSocketFrame, expectsMask: Bool, maximum: Int) {
        let isControl = frame.opcode >= 8
        guard frame.reserved == 0, frame.isMasked == expectsMask, frame.hasShortestLength, frame.announced < 1 << 63,
            [0, 1, 2, 8, 9, 10].contains(frame.opcode), !isControl || (frame.isFinal && frame.announced <= 125),
            isControl || (frame.opcode == 0) == (partial != nil)
        else { return end([1002]) }
        if isControl || (frame.announced == 0 && !frame.isFinal) {
            controlFrames += 1
            if controlFrames > 100 { return end([1008]) }
        }
        if isControl { return takeControl(frame) }
        let isTooBig = frame.announced > UInt64(maximum - (partial?.count ?? 0))
        if frame.opcode == 2 { return end(isTooBig ? [1003, 1009] : [1003]) }
        if isTooBig { return end([1009]) }
        let text = (partial ?? []) + frame.payload
        guard Self.isStartOfText(text) else { return end([1007]) }
        guard frame.isWhole else { return }
        partial = text
        guard frame.isFinal else { return }
        guard String(validating: text, as: UTF8.self) != nil else { return end([1007]) }
        messages.append(text)
        partial = nil
    }

    private mutating func takeControl(_ frame: WebSocketFrame) {
        if frame.opcode == 8, frame.announced == 1 { return end([1002]) }
        guard frame.isWhole else { return }
        switch frame.opcode {
        case 8:
            let code = Array(frame.payload.prefix(2))
            guard Self.isCode(code) else { return end([1002]) }
            // wslay passes over the first two bytes of every piece of a close frame, not of the first one only.
            let isPlain = frame.payload.dropFirst(2).allSatisfy { $0 < 0x80 }
            ending = Ending(closes: isPlain ? [code] : [code, [0x03, 0xEF]])
        case 9: pings.append(frame.payload)
        default: break
        }
    }

    private mutating func end(_ codes: [UInt16]) { ending = Ending(closes: codes.map { [UInt8($0 >> 8), UInt8($0 & 255)] }) }

    private static func isCode(_ bytes: [UInt8]) -> Bool {
        guard bytes.count == 2 else { return bytes.isEmpty }
        let code = UInt16(bytes[0]) << 8 | UInt16(bytes[1])
        return (1000...1003).contains(code) || (1007...1011).contains(code) || (3000...4999).contains(code)
    }

    /// Whether more bytes could make it UTF-8.
    static func isStartOfText(_ bytes: [UInt8]) -> Bool {
        let ends: [[UInt8]] = [
            [], [0x80], [0x80, 0x80], [0x80, 0x80, 0x80], [0xBF, 0x80], [0xBF, 0x80, 0x80],
        ]
        return ends.contains { String(validating: bytes + $0, as: UTF8.self) != nil }
    }
}

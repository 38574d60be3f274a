import WebSocket

/// One WebSocket, as server and as client. The input determines its frames.
enum WebSocketFuzz {
    /// A small limit, so that short inputs reach it.
    static let maximum = 300

    struct Reading: Equatable {
        var messages: [[UInt8]] = []
        var output: [UInt8] = []
        var isClosing = false
        var isFinished = false
        var pongs = 0
    }

    static func read(_ pieces: [[UInt8]], role: WebSocketMachine.Role) -> Reading {
        let machine = WebSocketMachine(role: role, maximumBytes: maximum)
        var reading = Reading()
        for piece in pieces {
            machine.receive(piece.span, nowMs: 0)
            while let message = machine.nextMessage() { reading.messages.append(message.withText(copy)) }
            machine.takeOutput(into: &reading.output)
        }
        reading.isClosing = machine.isClosing
        reading.isFinished = machine.isFinished
        reading.pongs = machine.pongCount
        machine.send([0x78].span)
        machine.close(.goingAway)
        return reading
    }

    static func run(_ input: [UInt8]) {
        for role in [WebSocketMachine.Role.server, .client] {
            let stream = WebSocketFrame.stream(FuzzInput(input), masked: role == .server)
            let slow = read(Splitting.bytes.split(stream), role: role)
            let plain = PlainWebSocket(stream, expectsMask: role == .server, maximum: maximum)
            for splitting in [Splitting.whole, .pieces] {
                let split = read(splitting.split(stream), role: role)
                // Messages in the bytes that end the connection are not delivered.
                require(slow.messages.starts(with: split.messages), "no message that another splitting does not bring")
                require(slow.isFinished || split.messages == slow.messages, "the same messages while nothing is wrong")
                // wslay skips two bytes of each piece of a close frame, so only some splittings may show a bad reason early.
                require(split.isFinished == slow.isFinished || plain.endsInsideAFrame, "the same end: \(split) \(slow)")
                require(
                    role == .client || slow.isFinished || plain.endsInsideAFrame || split.output == slow.output,
                    "the same answers")
            }
            require(plain.messages == slow.messages, "the messages that RFC 6455 has: \(plain) \(slow)")
            checkOutput(slow.output, role, plain)
            if plain.endsInsideAFrame { continue }
            require((plain.ending != nil) == slow.isFinished, "an end where RFC 6455 has one: \(plain) \(slow)")
        }
    }

    /// The output is pongs in the order of the pings, and at most one close frame at the end.
    private static func checkOutput(_ output: [UInt8], _ role: WebSocketMachine.Role, _ plain: PlainWebSocket) {
        var rest = output[...]
        var pongs: [[UInt8]] = []
        var closes: [[UInt8]] = []
        while !rest.isEmpty {
            guard let frame = WebSocketFrame(&rest) else { fatalError("whole frames") }
            require(frame.isFinal && frame.reserved == 0 && frame.payload.count <= 125, "control frames")
            require(frame.isMasked == (role == .client), "a client masks, a server does not")
            require(closes.isEmpty, "nothing after a close frame")
            switch frame.opcode {
            case 10: pongs.append(frame.payload)
            case 8: closes.append(frame.payload)
            default: fatalError("an answer of opcode \(frame.opcode)")
            }
        }
        require(pongs == plain.pings, "a pong for each ping")
        if let close = closes.first, let expected = plain.ending?.closes {
            require(expected.contains(Array(close.prefix(2))), "a close code of \(expected): \(close)")
        }
        // A client closes without a frame after a fault.
        if plain.endsInsideAFrame || role == .client { return }
        require(closes.isEmpty == (plain.ending == nil), "a close frame where the conversation ends")
    }
}

/// A WebSocket frame (RFC 6455 section 5.2), with a deliberately simple encoder and decoder.
struct WebSocketFrame {
    let opcode: UInt8
    let isFinal: Bool
    let reserved: UInt8
    let isMasked: Bool
    /// The length that the frame announces.
    let announced: UInt64
    /// The unmasked payload so far.
    let payload: [UInt8]
    let isWhole: Bool
    let hasShortestLength: Bool

    /// Removes a complete frame from the front of `rest`. Returns nil if there is none.
    init?(_ rest: inout ArraySlice<UInt8>) {
        self.init(startOf: rest)
        guard isWhole else { return nil }
        rest = rest.dropFirst(count)
    }

    /// The total number of bytes.
    var count: Int { Self.headCount(announced, isMasked) + Int(announced) }
    private static func headCount(_ length: UInt64, _ isMasked: Bool) -> Int {
        (length < 126 ? 2 : length < 65536 ? 4 : 10) + (isMasked ? 4 : 0)
    }

    /// Parses a frame with a complete head. Returns nil before that.
    init?(startOf rest: ArraySlice<UInt8>) {
        let bytes = Array(rest.prefix(14))
        guard bytes.count >= 2 else { return nil }
        opcode = bytes[0] & 15
        isFinal = bytes[0] & 0x80 != 0
        reserved = bytes[0] >> 4 & 7
        isMasked = bytes[1] & 0x80 != 0
        let extra = [126: 2, 127: 8][bytes[1] & 0x7F] ?? 0
        let head = 2 + extra + (isMasked ? 4 : 0)
        guard bytes.count >= head else { return nil }
        let length = extra == 0 ? UInt64(bytes[1] & 0x7F) : bytes[2..<2 + extra].reduce(0) { $0 << 8 | UInt64($1) }
        hasShortestLength = Self.headCount(length, isMasked) == head
        announced = length
        let key = isMasked ? Array(bytes[head - 4..<head]) : [0, 0, 0, 0]
        let came = rest.dropFirst(head).prefix(Int(clamping: length))
        payload = came.enumerated().map { $0.element ^ key[$0.offset % 4] }
        isWhole = UInt64(payload.count) == length
    }

    /// Derives a stream from `input`: frames of any kind, usually well-formed, or random bytes.
    static func stream(_ input: FuzzInput, masked: Bool) -> [UInt8] {
        var input = input
        var stream: [UInt8] = []
        while !input.isAtEnd {
            let choice = input.byte()
            if choice == 0xFF {
                stream += input.bytes(input.number(upTo: 40))
                continue
            }
            let opcodes: [UInt8] = [1, 0, 8, 9, 10, 1, 0, choice >> 4]
            // Bit 3: not the last fragment. Bits 4 to 7, if all set: a wrong mask.
            stream.append((choice & 8 == 0 ? 0x80 : 0) | opcodes[Int(choice & 7)])
            let isMasked = choice & 0xF0 == 0xF0 ? !masked : masked
            let count = input.number(upTo: 140)
            let repeats = choice & 0xE0 == 0xE0 ? 3 : 1
            let part = input.bytes(count)
            let payload = Array(repeatElement(part, count: repeats).joined())
            let mark: UInt8 = isMasked ? 0x80 : 0
            if payload.count < 126 {
                stream.append(mark | UInt8(payload.count))
            } else {
                stream += [mark | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
            }
            if isMasked { stream += [choice, 0x5A, 0, 0xA5] }
            let key: [UInt8] = isMasked ? [choice, 0x5A, 0, 0xA5] : [0, 0, 0, 0]
            stream += payload.enumerated().map { $0.element ^ key[$0.offset % 4] }
        }
        return stream
    }
}

/// A reference decoder of RFC 6455 for a stream that arrives byte by byte. It accepts text only and closes at the first fault.
struct PlainWebSocket {
    struct Ending {
        /// The possible codes of the close frame. An empty one has no code.
        let closes: [[UInt8]]
    }

    private(set) var messages: [[UInt8]] = []
    private(set) var pings: [[UInt8]] = []
    private(set) var ending: Ending?
    /// Some faults are visible before the frame is complete. Which ones depends on the parser.
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
            // wslay skips the first two bytes of every piece of a close frame instead of only the first.
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

    /// Whether more bytes could complete it to UTF-8.
    static func isStartOfText(_ bytes: [UInt8]) -> Bool {
        let ends: [[UInt8]] = [
            [], [0x80], [0x80, 0x80], [0x80, 0x80, 0x80], [0xBF, 0x80], [0xBF, 0x80, 0x80],
        ]
        return ends.contains { String(validating: bytes + $0, as: UTF8.self) != nil }
    }
}

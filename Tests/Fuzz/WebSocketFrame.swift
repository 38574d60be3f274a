/// A WebSocket frame (RFC 6455 section 5.2), read and written in the plainest way.
struct WebSocketFrame {
    let opcode: UInt8
    let isFinal: Bool
    let reserved: UInt8
    let isMasked: Bool
    /// The length that the frame announces.
    let announced: UInt64
    /// The payload unmasked, as far as it has come.
    let payload: [UInt8]
    let isWhole: Bool
    let hasShortestLength: Bool

    /// Reads a whole frame off the front of `rest`; nil when there is none.
    init?(_ rest: inout ArraySlice<UInt8>) {
        self.init(startOf: rest)
        guard isWhole else { return nil }
        rest = rest.dropFirst(count)
    }

    /// Bytes in all.
    var count: Int { Self.headCount(announced, isMasked) + Int(announced) }
    private static func headCount(_ length: UInt64, _ isMasked: Bool) -> Int {
        (length < 126 ? 2 : length < 65536 ? 4 : 10) + (isMasked ? 4 : 0)
    }

    /// Reads a frame of which the head has come; nil before that.
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

    /// The stream that `input` describes: frames of any kind, mostly of the right form, or any bytes.
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
            // Bits 3 and 4: not the last fragment, a wrong mask.
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

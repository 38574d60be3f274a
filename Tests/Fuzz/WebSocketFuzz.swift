import WebSocket

/// One WebSocket, as the server and as the client: the input says which frames come, and holds their bytes.
enum WebSocketFuzz {
    /// Small, so that short inputs reach it.
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
                // What comes with the bytes that end the conversation is not delivered.
                require(slow.messages.starts(with: split.messages), "no message that another splitting does not bring")
                require(slow.isFinished || split.messages == slow.messages, "the same messages while nothing is wrong")
                // wslay skips two bytes of each piece of a close frame, so it may see a bad reason early in one splitting only.
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

    /// What is written is pongs, in the order of the pings, and at most one close frame, the last one.
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
        // A client that meets a fault just goes.
        if plain.endsInsideAFrame || role == .client { return }
        require(closes.isEmpty == (plain.ending == nil), "a close frame where the conversation ends")
    }
}

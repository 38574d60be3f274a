import Testing

@testable import WebSocket

/// An idle WebSocket has no wslay buffers, and an active one loses nothing.
@Suite struct RestTests {
    /// Streams, and whether the machine is idle after each frame.
    static let streams: [(frames: [[UInt8]], atRest: [Bool])] = [
        ([text("a"), text(String(repeating: "b", count: 200)), text("")], [true, true, true]),
        ([text(String(repeating: "c", count: 16_384))], [true]),
        ([frame(9, [1, 2, 3]), frame(10), text("d")], [true, true, true]),
        ([text("he", fin: false), frame(0, Array("l".utf8), fin: false), frame(0, Array("lo".utf8))], [false, false, true]),
        ([text("", fin: false), frame(9), frame(0)], [false, false, true]),
    ]

    @Test(arguments: streams)
    func aMachineIsIdleOnlyBetweenMessages(_ frames: [[UInt8]], _ atRest: [Bool]) {
        let machine = WebSocketMachine(role: .server)
        #expect(machine.isIdle)
        for (frame, rests) in zip(frames, atRest) {
            for byte in frame.dropLast() {
                machine.receive([byte].span, nowMs: 0)
                #expect(!machine.isIdle)
            }
            machine.receive([frame[frame.count - 1]].span, nowMs: 0)
            #expect(machine.isIdle == rests)
        }
        #expect(!machine.isFinished)
    }

    /// Pieces contain the end of one frame and the beginning of the next.
    @Test(arguments: streams)
    func piecesAcrossFramesParseTheSame(_ frames: [[UInt8]], _: [Bool]) {
        let whole = frames.flatMap { $0 }
        let expected = read(whole)
        for cut in stride(from: 1, to: whole.count, by: max(1, whole.count / 97)) {
            #expect(read(whole, cuts: [cut]) == expected)
        }
    }

    @Test func sendingLeavesTheMachineIdle() {
        let machine = WebSocketMachine(role: .server)
        var output: [UInt8] = []
        #expect(sends(machine, "hi"))
        #expect(machine.sendPing())
        #expect(machine.isIdle)
        machine.takeOutput(into: &output)
        #expect(output == [0x81, 2, 0x68, 0x69, 0x89, 0])
    }

    @Test func aClosingMachineIsNotIdle() {
        let machine = WebSocketMachine(role: .server)
        machine.receive(text("x").span, nowMs: 0)
        machine.close(.goingAway)
        #expect(!machine.isIdle)
        machine.receive(close(1001).span, nowMs: 0)
        #expect(machine.isFinished)
        #expect(machine.peerCloseCode == .goingAway)

        let told = WebSocketMachine(role: .server)
        told.receive(close(4000).span, nowMs: 0)
        #expect(!told.isIdle)
        #expect(told.peerCloseCode == CloseCode(rawValue: 4000))
        #expect(WebSocketMachine(role: .server).peerCloseCode == .abnormal)
    }

    /// RFC 6455 section 5.2. The detection of idle machines relies on it.
    @Test func aLengthInALongerFormIsRefused() {
        for long in [[0x81, 0xFE, 0, 1], [0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 1]] as [[UInt8]] {
            let machine = WebSocketMachine(role: .server)
            machine.receive((long + [0, 0, 0, 0, 0x61]).span, nowMs: 0)
            #expect(machine.isFinished)
        }
    }

    @Test func aClientIsIdleToo() {
        let machine = WebSocketMachine(role: .client)
        #expect(sends(machine, "hi"))
        machine.receive(frame(1, Array("hello".utf8), masked: false).span, nowMs: 0)
        #expect(machine.isIdle)
        #expect(machine.nextMessage().map(string) == "hello")
    }
}

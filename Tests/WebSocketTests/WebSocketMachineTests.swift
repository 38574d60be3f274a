import Testing

@testable import WebSocket

/// Encodes a frame of a client (masked) or a server.
func frame(_ opcode: UInt8, _ payload: [UInt8] = [], fin: Bool = true, masked: Bool = true, rsv: UInt8 = 0) -> [UInt8] {
    var bytes = [(fin ? 0x80 : 0) | rsv << 4 | opcode]
    let mark: UInt8 = masked ? 0x80 : 0
    switch payload.count {
    case ..<126: bytes.append(mark | UInt8(payload.count))
    case ..<65536: bytes += [mark | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
    default: bytes += [mark | 127] + (0..<8).map { UInt8(payload.count >> (56 - 8 * $0) & 255) }
    }
    guard masked else { return bytes + payload }
    let key: [UInt8] = [0x37, 0xFA, 0x21, 0x3D]
    return bytes + key + payload.indices.map { payload[$0] ^ key[$0 % 4] }
}

func text(_ text: String, fin: Bool = true) -> [UInt8] { frame(1, Array(text.utf8), fin: fin) }

func close(_ code: UInt16, masked: Bool = true) -> [UInt8] { frame(8, [UInt8(code >> 8), UInt8(code & 255)], masked: masked) }

func string(_ message: TextMessage) -> String {
    message.withText { span in String(decoding: span.indices.map { span[$0] }, as: UTF8.self) }
}

func sends(_ machine: WebSocketMachine, _ text: String) -> Bool { machine.send(text.utf8.span) }

struct Reading: Equatable {
    var messages: [String] = []
    var output: [UInt8] = []
    var isFinished = false
}

func read(_ input: [UInt8], cuts: [Int] = [], maximum: Int = 16384) -> Reading {
    let machine = WebSocketMachine(role: .server, maximumBytes: maximum)
    var reading = Reading()
    var start = 0
    for end in cuts + [input.count] {
        machine.receive(input[start..<end].span, nowMs: 0)
        start = end
        while let message = machine.nextMessage() { reading.messages.append(string(message)) }
        machine.takeOutput(into: &reading.output)
    }
    reading.isFinished = machine.isFinished
    return reading
}

@Suite struct WebSocketMachineTests {
    @Test(arguments: [
        (text("hello"), Reading(messages: ["hello"])),
        (text(""), Reading(messages: [""])),
        (text("a") + text("b"), Reading(messages: ["a", "b"])),
        (text("h\u{e9}\u{1F600}"), Reading(messages: ["h\u{e9}\u{1F600}"])),
        (
            text("he", fin: false) + frame(0, Array("l".utf8), fin: false) + frame(0, Array("lo".utf8)),
            Reading(messages: ["hello"])
        ),
        (text("he", fin: false) + frame(9, [7]) + frame(0, Array("y".utf8)), Reading(messages: ["hey"], output: [0x8A, 1, 7])),
        // A character split over two fragments.
        (frame(1, [0xC3], fin: false) + frame(0, [0xA9]), Reading(messages: ["\u{e9}"])),
        (frame(9, [1, 2]), Reading(output: [0x8A, 2, 1, 2])),
        (frame(10, [1, 2]), Reading()),
        (text("x") + close(1000), Reading(messages: ["x"], output: [0x88, 2, 3, 0xE8], isFinished: true)),
        (frame(8), Reading(output: [0x88, 0], isFinished: true)),
        (close(4999) + text("late"), Reading(output: [0x88, 2, 0x13, 0x87], isFinished: true)),
    ])
    func streams(_ input: [UInt8], _ expected: Reading) {
        #expect(read(input) == expected)
        // A cut may only delay a message, not lose it.
        for cut in 0..<input.count { #expect(read(input, cuts: [cut]) == expected, "cut at \(cut)") }
        #expect(read(input, cuts: Array(1..<input.count)) == expected)
    }

    @Test(
        arguments: [
            (frame(2, [1]), 1003),
            (frame(2, [1], fin: false), 1003),
            (frame(1, [0xFF]), 1007),
            (frame(1, [0xC3]), 1007),
            (frame(1, [0xC3], fin: false) + frame(0, [0x28]), 1007),
            (frame(1, [0xED, 0xA0, 0x80]), 1007),  // a surrogate
            (frame(1, [0xC0, 0x80]), 1007),  // an overlong zero
            (frame(1, [0x61], masked: false), 1002),
            (frame(1, [0x61], rsv: 4), 1002),
            (frame(1, [0x61], rsv: 1), 1002),
            (frame(3, [0x61]), 1002),
            (frame(11), 1002),
            (frame(0, [0x61]), 1002),  // a continuation of nothing
            (text("a", fin: false) + text("b"), 1002),
            (frame(9, fin: false), 1002),
            (frame(9, Array(repeating: 0, count: 126)), 1002),
            (frame(8, [3]), 1002),
            (close(999), 1002),
            (close(1005), 1002),
            (close(1006), 1002),
            (close(2999), 1002),
            ([0x81, 0xFE, 0, 5] + [0, 0, 0, 0] + Array("hello".utf8), 1002),  // a longer length field than needed
            ([0x81, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0], 1002),
        ] as [([UInt8], UInt16)])
    func refusals(_ input: [UInt8], _ code: UInt16) {
        let expected = Reading(output: close(code, masked: false), isFinished: true)
        #expect(read(input) == expected)
        for cut in 0..<input.count { #expect(read(input, cuts: [cut]) == expected, "cut at \(cut)") }
        #expect(read(input, cuts: Array(1..<input.count)) == expected)
    }

    @Test func messagesOverTheLimitAreRefusedAtTheirFirstByte() {
        let tooBig = Reading(output: close(1009, masked: false), isFinished: true)
        #expect(read(frame(1, Array(repeating: 0x61, count: 10)), maximum: 10).messages == [String(repeating: "a", count: 10)])
        #expect(read(frame(1, Array(repeating: 0x61, count: 11)), maximum: 10) == tooBig)
        #expect(read(Array(frame(1, Array(repeating: 0x61, count: 11))[..<7]), maximum: 10) == tooBig)
        #expect(read([0x81, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0x61], maximum: 10) == tooBig)
        let pieces = frame(1, Array(repeating: 0x61, count: 6), fin: false) + frame(0, Array(repeating: 0x61, count: 5))
        #expect(read(pieces, maximum: 10) == tooBig)
        // Longer than wslay's own buffer.
        let long = String(repeating: "0123456789", count: 1638)
        for cut in [1, 8, 4096, 8192, 12000] { #expect(read(text(long), cuts: [cut]).messages == [long]) }
    }

    @Test func aCloseReasonMustBeText() {
        #expect(read(frame(8, [3, 0xE8, 0xFF])) == Reading(output: close(1007, masked: false), isFinished: true))
    }

    @Test func aFloodOfControlFramesIsRefused() {
        let machine = WebSocketMachine(role: .server)
        var output: [UInt8] = []
        for _ in 0..<100 { machine.receive(frame(10).span, nowMs: 5000) }
        #expect(!machine.hasOutput)
        for _ in 0..<100 { machine.receive(frame(9).span, nowMs: 15_000) }
        machine.takeOutput(into: &output)
        #expect(output.count == 200)
        machine.receive((frame(9) + text("late")).span, nowMs: 24_999)
        output = []
        machine.takeOutput(into: &output)
        #expect(output == close(1008, masked: false))
        #expect(machine.isFinished)
        #expect(machine.nextMessage() == nil)
    }

    @Test func emptyFragmentsCountAsAFlood() {
        let machine = WebSocketMachine(role: .server)
        machine.receive(text("", fin: false).span, nowMs: 0)
        for _ in 0..<100 { machine.receive(frame(0, fin: false).span, nowMs: 1) }
        #expect(machine.isFinished)
    }

    @Test func closingDropsLaterMessagesAndWaitsForThePeer() {
        let machine = WebSocketMachine(role: .server)
        machine.receive((text("a") + text("b")).span, nowMs: 0)
        #expect(machine.nextMessage().map(string) == "a")
        machine.close(.goingAway)
        #expect(machine.nextMessage() == nil)
        #expect(!sends(machine, "late"))
        var output: [UInt8] = []
        machine.takeOutput(into: &output)
        #expect(output == close(1001, masked: false))
        #expect(!machine.isFinished)
        machine.receive((text("c") + close(1001)).span, nowMs: 0)
        #expect(machine.isFinished)
        #expect(machine.messageCount == 0)
        #expect(machine.peerCloseCode == .goingAway)
        #expect(!machine.hasOutput)
    }

    @Test func aServerWritesUnmaskedFrames() {
        let machine = WebSocketMachine(role: .server)
        #expect(sends(machine, "hi"))
        machine.sendPing()
        var output: [UInt8] = []
        machine.takeOutput(into: &output)
        #expect(output == [0x81, 2, 0x68, 0x69, 0x89, 0])
        let long = [UInt8](repeating: 0x61, count: 70_000)
        machine.send(long.span)
        output = []
        machine.takeOutput(into: &output)
        #expect(output == frame(1, long, masked: false))
    }

    @Test func aClientAndAServerUnderstandEachOther() {
        let server = WebSocketMachine(role: .server)
        let client = WebSocketMachine(role: .client)
        func move(_ source: WebSocketMachine, _ target: WebSocketMachine) {
            var bytes: [UInt8] = []
            source.takeOutput(into: &bytes)
            target.receive(bytes.span, nowMs: 0)
        }
        client.send("from the client".utf8.span)
        move(client, server)
        #expect(server.nextMessage().map(string) == "from the client")
        server.sendPing()
        server.send("from the server".utf8.span)
        move(server, client)
        #expect(client.nextMessage().map(string) == "from the server")
        move(client, server)
        #expect(server.pongCount == 1)
        client.close(.normal)
        move(client, server)
        move(server, client)
        #expect(client.isFinished && server.isFinished)
        #expect(client.peerCloseCode == .normal)
    }

    /// A hostile peer's arrivals cause pings to a socket. Its answers must not get it closed.
    @Test func answersToNumberedPingsAreNoControlFrames() {
        let server = WebSocketMachine(role: .server)
        func pong(_ number: UInt8) { server.receive(frame(10, [0, 0, 0, 0, 0, 0, 0, number]).span, nowMs: 0) }
        for number: UInt8 in 1...200 {
            server.sendPing(UInt64(number))
            pong(number)
            #expect(server.answeredPing == UInt64(number))
        }
        // Repeated and unrequested numbers count.
        for _ in 0..<50 { pong(200) }
        for _ in 0..<50 { pong(201) }
        #expect(!server.isClosing && server.answeredPing == 200 && server.pongCount == 300)
        pong(7)
        #expect(server.isClosing)
    }

    @Test func aPingCarriesItsNumberAndTheNextOneRepeatsIt() {
        let server = WebSocketMachine(role: .server)
        var bytes: [UInt8] = []
        server.sendPing()
        server.sendPing(258)
        server.sendPing()
        server.takeOutput(into: &bytes)
        #expect(bytes == [0x89, 0] + [0x89, 8, 0, 0, 0, 0, 0, 0, 1, 2] + [0x89, 8, 0, 0, 0, 0, 0, 0, 1, 2])
        #expect(server.answeredPing == 0)
        // The peer answers only the last ping.
        server.receive(frame(10, [0, 0, 0, 0, 0, 0, 1, 2]).span, nowMs: 0)
        #expect(server.answeredPing == 258)
    }

    @Test func messagesAreWiped() {
        let message = TextMessage("secret")
        message.wipe()
        #expect(string(message) == String(repeating: "\0", count: 6))
    }
}

/// Damage never yields a message over the limit, or a message after the peer was refused.
@Suite struct MutationTests {
    @Test(arguments: 0..<4)
    func damagedStreamsStayWithinBounds(_ seed: UInt64) {
        var state = seed &* 0x2545_F491_4F6C_DD1D &+ 1
        func chance(_ bound: Int) -> Int {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return Int(state >> 11) % bound
        }
        let stream =
            text("hello") + text("a", fin: false) + frame(9, [1, 2, 3]) + frame(0, Array("b".utf8))
            + text(String(repeating: "x", count: 200))
            + frame(10) + text("h\u{e9}") + close(1000)
        var delivered = 0
        for _ in 0..<3000 {
            var input = stream
            for _ in 0...chance(3) {
                let place = chance(input.count)
                switch chance(4) {
                case 0: input[place] = UInt8(chance(256))
                case 1: input[place] ^= 1 << UInt8(chance(8))
                case 2: input.removeSubrange(place..<min(input.count, place + 1 + chance(4)))
                default: input.insert(contentsOf: input[place..<min(input.count, place + 1 + chance(8))], at: place)
                }
            }
            let whole = read(input, maximum: 256)
            let cut = chance(input.count)
            let pieces = read(input, cuts: [cut], maximum: 256)
            // Messages before a refusal in the same read are not delivered. Messages of an earlier read are.
            #expect(pieces.messages.starts(with: whole.messages))
            #expect(pieces.isFinished == whole.isFinished)
            #expect(pieces.messages.allSatisfy { $0.utf8.count <= 256 })
            delivered += whole.messages.count
        }
        #expect(delivered > 1000)
    }
}

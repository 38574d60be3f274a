import Testing

@testable import WebSocket

/// Damaged streams of frames: no damage makes a message longer than the limit, or brings one to light after the peer was refused.
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
            // What came before a refusal in the same read is not delivered; in a read before it, it is.
            #expect(pieces.messages.starts(with: whole.messages))
            #expect(pieces.isFinished == whole.isFinished)
            #expect(pieces.messages.allSatisfy { $0.utf8.count <= 256 })
            delivered += whole.messages.count
        }
        #expect(delivered > 1000)
    }
}

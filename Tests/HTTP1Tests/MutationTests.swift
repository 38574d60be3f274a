import Testing

@testable import HTTP1

/// Damaged requests parse the same in any pieces and stay within the limits.
@Suite struct MutationTests {
    /// A reproducible random number generator (SplitMix64).
    struct Chance: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
            return z ^ z >> 31
        }
    }

    static let seeds = [
        "GET /a?b HTTP/1.1\r\nHost: a\r\nX-Y:  z \r\n\r\nGET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
        "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\nT: u\r\n\r\nDELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
    ].map { Array($0.utf8) }
    static let pieces = [
        "\r\n", "\n", "\r", " ", "\t", ":", ",", "0", "f", "chunked", "Content-Length: 3\r\n", "Host: x\r\n", "\u{0}", "HTTP/1.1",
    ]

    static func mutate(_ bytes: [UInt8], _ chance: inout Chance) -> [UInt8] {
        var bytes = bytes
        for _ in 0..<Int.random(in: 1...4, using: &chance) {
            let place = Int.random(in: 0..<bytes.count, using: &chance)
            switch Int.random(in: 0..<5, using: &chance) {
            case 0: bytes[place] = UInt8.random(in: .min ... .max, using: &chance)
            case 1: bytes.insert(contentsOf: pieces.randomElement(using: &chance)!.utf8, at: place)
            case 2: bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1...8, using: &chance)))
            case 3: bytes.insert(contentsOf: bytes[place..<min(bytes.count, place + 20)], at: place)
            default: bytes.swapAt(place, Int.random(in: 0..<bytes.count, using: &chance))
            }
            if bytes.isEmpty { return [0] }
        }
        return bytes
    }

    @Test(arguments: 0..<3)
    func damagedRequestsParseTheSameInAnyPieces(_ seed: Int) {
        var chance = Chance(state: UInt64(seed))
        let limits = MessageLimits(targetBytes: 64, headerBytes: 256, headerCount: 8, bodyBytes: 64)
        var accepted = 0
        for _ in 0..<4000 {
            let input = Self.mutate(Self.seeds[seed], &chance)
            let whole = read(bytes: input, limits: limits)
            let cuts = (0..<3).map { _ in Int.random(in: 0...input.count, using: &chance) }.sorted()
            #expect(
                read(bytes: input, cuts: cuts, limits: limits) == whole,
                "\(String(decoding: input, as: UTF8.self).debugDescription) \(cuts)")
            accepted += whole.messages.count
        }
        // Some requests must stay valid, or the test shows nothing.
        #expect(accepted > 400)
    }
}

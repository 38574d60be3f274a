import Policy
import Testing
import Vocabulary

@testable import Broker

@Suite struct PushContentTests {
    private static let full = PushContent(
        template: "activity_state", stampMs: 0x0102_0304_0506_0708, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
        fields: [
            "status": .choice("processing"), "elapsedSeconds": .number(-1), "most": .number(.max), "least": .number(.min),
            "requestId": .handle(Handle(0x1011_1213_1415_1617_1819_1a1b_1c1d_1e1f)), "on": .flag(true), "off": .flag(false),
            "": .choice(""),
        ])

    @Test func whatIsWrittenIsRead() {
        #expect(PushContent(Self.full.encoded) == Self.full)
        let bare = PushContent(template: "", stampMs: 0, collapse: Handle(9 * (.max / 255)), fields: [:])
        #expect(PushContent(bare.encoded) == bare)
        let long = PushContent(
            template: String(repeating: "t", count: 255), stampMs: .max,
            collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
            fields: [String(repeating: "ä", count: 127): .choice(String(repeating: "w", count: 255))])
        #expect(PushContent(long.encoded) == long)
    }

    /// It is compared with what waits, byte by byte.
    @Test func oneContentIsAlwaysWrittenAlike() {
        for _ in 0..<20 {
            var again = Self.full
            again.fields = Dictionary(uniqueKeysWithValues: again.fields.shuffled())
            #expect(again.encoded == Self.full.encoded)
        }
    }

    @Test func nothingThatIsCutShortIsRead() {
        let bytes = Self.full.encoded
        for count in bytes.indices { #expect(PushContent(Array(bytes.prefix(count))) == nil, "the first \(count) bytes") }
    }

    @Test func nothingThatGoesOnIsRead() {
        for byte: UInt8 in [0, 1, 255] { #expect(PushContent(Self.full.encoded + [byte]) == nil) }
    }

    /// Each length and the count, one bit at a time: what follows is then read as something else, to its end or not at all.
    @Test func flippedLengthsAreNotRead() {
        let content = PushContent(
            template: "template", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
            fields: ["a": .choice("word"), "b": .handle(Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f))])
        let bytes = content.encoded
        // Behind stamp and collapse: the template's length, the count, then `a`'s name and word, then `b`'s name.
        let lengths = [24, 33, 34, 37, 42]
        #expect(lengths.map { bytes[$0] } == [8, 2, 1, 4, 1])
        for place in lengths {
            for bit in 0..<8 {
                var flipped = bytes
                flipped[place] ^= 1 << bit
                #expect(PushContent(flipped) == nil, "bit \(bit) of byte \(place)")
            }
        }
    }

    @Test func unknownKindsOfFieldsAreNotRead() {
        let bytes = PushContent(
            template: "t", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), fields: ["a": .flag(true)]
        ).encoded
        let place = bytes.count - 2
        #expect(bytes[place] == 4)
        for kind in UInt8.min...UInt8.max where !(1...4).contains(kind) {
            var other = bytes
            other[place] = kind
            #expect(PushContent(other) == nil, "kind \(kind)")
        }
    }

    @Test func textThatIsNoUTF8IsNotRead() {
        let bytes = PushContent(
            template: "t", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), fields: ["a": .choice("b")]
        ).encoded
        for text in [UInt8(ascii: "t"), UInt8(ascii: "a"), UInt8(ascii: "b")] {
            var broken = bytes
            broken[bytes.lastIndex(of: text)!] = 0xff
            #expect(PushContent(broken) == nil)
        }
    }

    @Test func noBytesByChanceEndTheProgram() {
        let chance = Chance(seed: 11)
        for _ in 0..<2_000 {
            var bytes = Self.full.encoded
            for _ in 0...chance.next() % 4 {
                bytes[Int(chance.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: chance.next())
            }
            guard let content = PushContent(bytes) else { continue }
            #expect(PushContent(content.encoded) == content)
        }
    }
}

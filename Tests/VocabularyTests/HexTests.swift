import Testing
import Vocabulary

// `#expect` can't hold a span.
private func encode(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }
private func decode(_ text: [UInt8]) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: text.count / 2)
    var span = bytes.mutableSpan
    return Hex.decode(text.span, into: &span) ? bytes : nil
}
private func number(_ text: String, at start: Int = 0) -> UInt64? {
    let text = Array(text.utf8)
    return Hex.number(text.span, at: start)
}

@Suite struct HexTests {
    @Test func vectors() {
        #expect(encode([]) == "")
        #expect(encode([0x00, 0x9f, 0xa0, 0xff]) == "009fa0ff")
        #expect(Hex.decode("009fA0fF") == [0x00, 0x9f, 0xa0, 0xff])
        #expect(Hex.decode("") == [])
        for wrong in ["0", "0g", "0 ", " 00", "00\n", "0x00", "00:00", "é0", "/0", ":0", "@0", "`0"] {
            #expect(Hex.decode(wrong) == nil, "\(wrong)")
        }
    }

    @Test func everyByteIsADigitOrNot() {
        let digits = Array("0123456789abcdef".utf8)
        for character in UInt8.min...UInt8.max {
            let lower = (0x41...0x5a).contains(character) ? character | 0x20 : character
            let value = digits.firstIndex(of: lower).map { UInt8($0) }
            #expect(Hex.value(character) == value)
            #expect(decode([character, 0x30]) == value.map { [$0 << 4] })
            #expect(decode([0x30, character]) == value.map { [$0] })
            if let value { #expect(Hex.digit(value) == lower) }
        }
        for byte in UInt8.min...UInt8.max { #expect(Hex.decode(encode([byte])) == [byte]) }
    }

    @Test func numbersHaveOneSpelling() {
        #expect(number("0123456789abcdef") == 0x0123_4567_89ab_cdef)
        #expect(number("xffffffffffffffff", at: 1) == .max)
        for wrong in ["0123456789abcde", "0123456789abcdeF", "0123456789abcdeg", "0123456789abcde/", "0123456789abcde:"] {
            #expect(number(wrong) == nil)
        }
        for value: UInt64 in [0, 1, .max, 0xfedc_ba98_7654_3210] {
            var text: [UInt8] = []
            Hex.append(value, to: &text)
            #expect(number(String(decoding: text, as: UTF8.self)) == value)
        }
    }
}

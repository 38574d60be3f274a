import JSON
import Testing

@Suite struct JSONWriterTests {
    private func written(_ write: (inout JSONWriter) -> Void) -> String {
        var writer = JSONWriter()
        write(&writer)
        return String(decoding: writer.finish(), as: UTF8.self)
    }

    @Test func aFinishedObjectHasRoomForANewline() {
        for count in 0..<600 {
            var writer = JSONWriter()
            writer.add("a", plain: [UInt8](repeating: 0x61, count: count).span)
            var bytes = writer.finish()
            let capacity = bytes.capacity
            bytes.append(0x0a)
            #expect(bytes.capacity == capacity)
            #expect(bytes.count == count + 9)
        }
    }

    @Test func writesMembersInOrder() {
        let text = written { json in
            json.add("a", "x\"\\\u{1}\n{")
            json.add("b", 5)
            json.add("c", false)
            json.add("d", ["e", "f"])
            json.add("g", UInt64.max)
            json.add("h", timeMs: 951_782_399_999)
            json.add("i", orNull: nil as Int?)
            json.add("j", orNull: "k[")
            json.add("l", encoded: Array("[1]".utf8))
            json.add("m", count: 2) { text in
                for (index, byte) in "on".utf8.enumerated() { text[index] = byte }
            }
            json.add("p", 0.5)
        }
        #expect(
            text == #"{"a":"x\"\\\u0001\n{","b":5,"c":false,"d":["e","f"],"g":18446744073709551615,"h":"2000-02-28T23:59:59Z","#
                + #""i":null,"j":"k[","l":[1],"m":"on","p":0.5}"#)
    }

    @Test func writesNestedObjects() {
        let text = written { json in
            json.add("a") { _ in }
            json.add("b") { inner in
                inner.add("c", [])
                inner.add("d") { $0.add("e", 1) }
            }
            json.add("f", objects: [1, 2]) { $0.add("g", $1) }
            json.add("h", objects: [Int]()) { _, _ in }
        }
        #expect(text == #"{"a":{},"b":{"c":[],"d":{"e":1}},"f":[{"g":1},{"g":2}],"h":[]}"#)
        #expect(written { _ in } == "{}")
    }

    @Test func writtenTextsParse() throws {
        var all = ""
        for scalar in UInt32(0)...0x2_0000 { Unicode.Scalar(scalar).map { all.unicodeScalars.append($0) } }
        for text in [all, "", "\u{10ffff}"] {
            let json = Array(written { $0.add(text, text) }.utf8)
            #expect(try JSONValue(json.span, deepest: 1) == .object([JSONMember(key: text, value: .string(text))]))
        }
    }
}

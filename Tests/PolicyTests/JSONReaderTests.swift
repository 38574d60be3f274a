import Testing

@testable import Policy

@Suite struct JSONReaderTests {
    private func read(_ text: String) throws -> JSONValue { try JSONReader.read(Array(text.utf8)) }

    private func canonical(_ text: String) throws -> String {
        var out: [UInt8] = []
        JSONWriter.append(try read(text), to: &out)
        return String(decoding: out, as: UTF8.self)
    }

    @Test(arguments: [
        "", " ", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "'a'", "01", "1.", ".5", "1e", "+1", "-", "tru", "nul", "NaN",
        "\"a",
        "\"\\x\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "\"a\u{1}\"", "1 2", "{} x", "[1 2]",
        "/* */ 1",
    ])
    func refuses(_ text: String) {
        #expect(throws: JSONReader.Failure.self) { try read(text) }
    }

    @Test func refusesWhatIsNotUTF8() {
        for bytes: [UInt8] in [[0x22, 0xff, 0x22], [0x22, 0xc0, 0xaf, 0x22], [0x22, 0xed, 0xa0, 0x80, 0x22]] {
            #expect(throws: JSONReader.Failure.self) { try JSONReader.read(bytes) }
        }
    }

    @Test func refusesWhatIsTooDeep() throws {
        func nested(_ depth: Int) -> String { String(repeating: "[", count: depth) + String(repeating: "]", count: depth) }
        #expect(throws: Never.self) { try read(nested(JSONReader.maximumDepth + 1)) }
        #expect(throws: JSONReader.Failure.self) { try read(nested(JSONReader.maximumDepth + 2)) }
        #expect(throws: JSONReader.Failure.self) { try read(String(repeating: "[", count: 200_000)) }
    }

    @Test func tellsWhere() {
        let failure = #expect(throws: JSONReader.Failure.self) { try read("{\n  \"a\": 1,\n  b: 2\n}") }
        #expect(failure?.line == 3)
        #expect(failure?.column == 3)
    }

    @Test func writesCanonically() throws {
        #expect(
            try canonical(
                " { \"b\" : [ 1 , -0.5e3, true , null ] , \"a\" : { \"\\u00e9\" : \"\\/\\u0001\\n\\\"\\ud83d\\ude00\" } } ")
                == "{\"a\":{\"é\":\"/\\u0001\\n\\\"😀\"},\"b\":[1,-0.5e3,true,null]}")
        #expect(
            try canonical("{\"\u{ffff}\":1,\"\u{10000}\":2,\"B\":3,\"a\":4}")
                == "{\"B\":3,\"a\":4,\"\u{ffff}\":1,\"\u{10000}\":2}")
    }
}

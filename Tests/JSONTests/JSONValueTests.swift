import JSON
import Testing

@Suite struct JSONValueTests {
    private func read(_ text: String) throws -> JSONValue { try read(Array(text.utf8)) }

    private func read(_ bytes: [UInt8]) throws -> JSONValue { try JSONValue(bytes.span, deepest: Self.deepest) }
    private static let deepest = 32

    private func canonical(_ text: String) throws -> String {
        var out: [UInt8] = []
        try read(text).append(to: &out)
        return String(decoding: out, as: UTF8.self)
    }

    @Test func refusesExcessiveNesting() throws {
        func nested(_ depth: Int) -> String { String(repeating: "[", count: depth) + String(repeating: "]", count: depth) }
        #expect(throws: Never.self) { try read(nested(Self.deepest)) }
        #expect(throws: JSONError.self) { try read(nested(Self.deepest + 1)) }
        #expect(throws: JSONError.self) { try read(String(repeating: "[", count: 200_000)) }
    }

    @Test(
        arguments: [
            ("{\n  \"a\": 1,\n  b: 2\n}", .noKey, 3, 3), ("", .nothingFollows, 1, 1), ("[1,\n", .nothingFollows, 2, 1),
            ("[x]", .noValue, 1, 2),
            ("{\"a\" 1}", .noColon, 1, 6), ("{\"a\":1 x", .noCommaOrBrace, 1, 8), ("[1 2]", .noCommaOrBracket, 1, 4),
            ("-x", .noDigit, 1, 2),
            ("\"a\nb\"", .controlCharacter, 1, 3), ("\"a", .openText, 1, 3), ("\"\\x\"", .unknownEscape, 1, 4),
            ("\"\\u12g4\"", .notFourDigits, 1, 4),
            ("\"\\ud800\"", .halfASurrogatePair, 1, 8), ("{} x", .somethingFollows, 1, 4), ("\u{feff}1", .byteOrderMark, 1, 1),
        ] as [(String, JSONError.Problem, Int, Int)])
    func reportsProblemAndPosition(_ text: String, _ problem: JSONError.Problem, _ line: Int, _ column: Int) {
        let failure = #expect(throws: JSONError.self) { try read(text) }
        #expect(failure?.problem == problem)
        let bytes = Array(text.utf8)
        let place = failure.map { JSONError.place(of: $0.position, in: bytes.span) }
        #expect(place?.line == line && place?.column == column)
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

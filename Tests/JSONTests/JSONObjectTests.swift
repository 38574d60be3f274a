import JSON
import Testing

// `#expect` and `#require` can't capture a span, so reads are in separate functions.
private func parse(_ bytes: [UInt8]) -> JSONObject? { JSONObject(bytes.span) }
private func integer(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> Int? {
    try object.integer(name, in: body.span)
}
private func string(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> [UInt8]? {
    try object.bytes(name, in: body.span)
}
private func plainString(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> Range<Int>? {
    try object.plainString(name, in: body.span)
}

private func names(_ object: JSONObject?, _ body: [UInt8]) -> [String]? {
    object?.names(in: body.span).map { String(decoding: $0, as: UTF8.self) }
}
private func opened(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> JSONObject? {
    try object.object(name, in: body.span).flatMap { object.opened($0, in: body.span) }
}
private func items(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> [JSONDocument.Item]? {
    try object.items(name, in: body.span)
}
private func texts(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> [String]? {
    try object.texts(name, in: body.span)?.map { String(decoding: $0, as: UTF8.self) }
}

@Suite struct JSONObjectTests {
    private func object(_ text: String) -> JSONObject? { parse(Array(text.utf8)) }

    @Test(arguments: [
        "{}", " {\"a\" : 1 } \n", "{\"a\":[1,2.5e-3,{\"b\":null}],\"c\":\"\\u00e9\\n\"}", "{\"\":0}", "{\"a\":-0.0E+1}",
        "{\"ü\":\"日本\"}",
    ])
    func acceptsObjects(_ text: String) { #expect(object(text) != nil) }

    @Test(arguments: [
        "", " ", "null", "1", "\"a\"", "[]", "{", "}", "{}{}", "{} x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "{a:1}",
        "{'a':1}", "{\"a\":01}", "{\"a\":+1}", "{\"a\":1.}", "{\"a\":.5}", "{\"a\":1e}", "{\"a\":NaN}", "{\"a\":tru}",
        "{\"a\":\"\u{1}\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12g4\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"b}", "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"\\u0061\":2}", "\u{feff}{}", "{\"\\ud800\":1}", "{\"a\":\"\\ud83d\"}", "{\"a\":\"\\ude00\\ud83d\"}",
        "{\"a\":1}\u{0}",
    ])
    func refusesAnythingElse(_ text: String) { #expect(object(text) == nil) }

    @Test func refusesInvalidUTF8() {
        #expect(parse([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]) == nil)
        // An overlong slash, and a surrogate in UTF-8.
        #expect(parse(([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d] as [UInt8])) == nil)
        #expect(parse(([0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x3a, 0x31, 0x7d] as [UInt8])) == nil)
    }

    @Test(arguments: [2, 16, 17, 2_000])
    func refusesRepeatedNames(_ count: Int) {
        let members = (0..<count).map { "\"\($0)\":0" }
        #expect(object("{" + members.joined(separator: ",") + "}") != nil)
        for more in [members[0], members[count / 2], members[count - 1], "\"\\u0031\":1"] {
            #expect(object("{" + (members + [more]).joined(separator: ",") + "}") == nil)
            #expect(object("{" + ([more] + members).joined(separator: ",") + "}") == nil)
        }
    }

    @Test func depthIsBounded() {
        func nested(_ depth: Int) -> String {
            "{\"a\":" + String(repeating: "[", count: depth - 1) + String(repeating: "]", count: depth - 1) + "}"
        }
        #expect(object(nested(16)) != nil)
        #expect(object(nested(17)) == nil)
        #expect(object(String(repeating: "{\"a\":", count: 8_000)) == nil)
    }

    @Test func refusesTruncatedText() {
        let whole = Array("{\"a\":[1,{\"b\":\"\\u00e9\"}],\"c\":-1.5e3}".utf8)
        #expect(parse(whole) != nil)
        for end in 0..<whole.count { #expect(parse(Array(whole[..<end])) == nil) }
    }

    @Test func readsWholeNumbersOnly() throws {
        let body = Array("{\"a\":10,\"b\":-3,\"c\":1.0,\"d\":1e2,\"e\":\"5\",\"f\":99999999999999999999,\"g\":null}".utf8)
        let object = try #require(parse(body))
        #expect(try integer(object, "a", body) == 10)
        #expect(try integer(object, "b", body) == -3)
        #expect(try integer(object, "g", body) == nil)
        #expect(try integer(object, "z", body) == nil)
        for name in ["c", "d", "e"] {
            #expect(throws: JSONObject.Failure.wrongType) { try integer(object, name, body) }
        }
        #expect(throws: JSONObject.Failure.outOfRange) { try integer(object, "f", body) }
    }

    @Test func decodesEscapes() throws {
        let body = Array(#"{"a":"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00","c":"plain","d":"x\u0041"}"#.utf8)
        let object = try #require(parse(body))
        #expect(try string(object, "a", body) == Array("\"\\/\u{8}\u{c}\n\r\tA😀".utf8))
        let range = try #require(try plainString(object, "c", body))
        #expect(Array(body[range]) == Array("plain".utf8))
        #expect(throws: JSONObject.Failure.outOfRange) { try plainString(object, "d", body) }
    }

    /// An array that grows while an escape is decoded would leave a part of the text in freed memory.
    @Test func escapesAreDecodedIntoOneArray() throws {
        let escaped = String(repeating: "\\n", count: 1000)
        let body = Array("{\"a\":\"\(escaped)\"}".utf8)
        let object = try #require(parse(body))
        let decoded = try #require(try string(object, "a", body))
        #expect(decoded == [UInt8](repeating: 0x0a, count: 1000))
        #expect(decoded.capacity >= 2000)
    }

    @Test(arguments: [
        ("\\u00e9", "é"), ("\\u20AC", "€"), ("\\uD83D\\uDE00", "😀"), ("\\udbff\\udfff", "\u{10ffff}"), ("\\u0000", "\0"),
        ("a\\u0062c\\\\u0041", "abc\\u0041"),
    ])
    func decodesUnits(_ escaped: String, _ text: String) throws {
        let body = Array("{\"a\":\"\(escaped)\"}".utf8)
        let object = try #require(parse(body))
        #expect(try string(object, "a", body) == Array(text.utf8))
    }

    @Test(arguments: [
        "\\ud83d", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041", "\\ud83d\\ud83d", "\\ude00", "\\u12", "\\u", "\\", "\\ud83d\\u",
        "\\ud83d\\",
        "\\ud83d\\ude0",
    ])
    func refusesIncompleteEscapes(_ escaped: String) { #expect(object("{\"a\":\"\(escaped)\"}") == nil) }

    @Test func readsNestedValues() throws {
        let body = Array(#" {"a":{"b":[1,{"c":"x"},"y"],"d":{"e":1,"\u0065":2}},"\u0066":["z","\n"]}"#.utf8)
        let object = try #require(parse(body))
        #expect(names(object, body) == ["a", "f"])
        let inner = try #require(try opened(object, "a", body))
        #expect(names(inner, body) == ["b", "d"])
        let listed = try #require(try items(inner, "b", body))
        #expect(listed.map(\.kind) == [.number, .object, .string])
        #expect(listed.map { String(decoding: body[$0.range], as: UTF8.self) } == ["1", #"{"c":"x"}"#, "y"])
        #expect(try opened(inner, "d", body) == nil, "it has a name twice")
        #expect(try texts(object, "f", body) == ["z", "\n"])
        #expect(throws: JSONObject.Failure.wrongType) { try texts(inner, "b", body) }
        #expect(throws: JSONObject.Failure.wrongType) { try items(inner, "d", body) }
    }
}

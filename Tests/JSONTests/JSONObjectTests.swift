import JSON
import Testing

// `#expect` and `#require` can't capture a span, so reads are in separate functions.
private func parse(_ bytes: [UInt8]) -> JSONObject? { JSONObject(bytes.span) }
private func failure(_ bytes: [UInt8]) -> (problem: JSONError.Problem, words: String)? {
    do throws(JSONError) {
        _ = try JSONObject(parsing: bytes.span)
        return nil
    } catch { return (error.problem, error.words(in: bytes.span)) }
}
private func has(_ object: JSONObject, _ name: String, _ body: [UInt8]) -> Bool { object.has(name, in: body.span) }
private func seconds(_ object: JSONObject, _ name: String, _ body: [UInt8]) throws -> Int? {
    try object.seconds(name, in: body.span)
}
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
    guard let object else { return nil }
    var names: [String] = []
    object.readNames(in: body.span) { name in
        names.append(String(decoding: name.indices.map { name[$0] }, as: UTF8.self))
        return true
    }
    return names
}
private func count(untilFalse object: JSONObject, _ body: [UInt8], after most: Int) -> Int {
    var count = 0
    object.readNames(in: body.span) { _ in
        count += 1
        return count < most
    }
    return count
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
        "{\"a\":\"\u{1}\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12g4\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"b}",
        "\u{feff}{}", "{\"a\":1}\u{0}", "{\"a\":[1}", "{\"a\":[1]]", "{\"a\":[{]}", "{\"a\":[[1]}", "{\"a\":{\"b\":[}]}}",
        "{\"a\":[\"]}", "{\"a\":[\"\\\"]}", "{\"a\":[1,]}", "{\"a\":[,]}", "{\"a\":{\"b\"}}", "{\"a\":[NaN]}",
        "{\"a\":[\"\\ud8\"]}",
    ])
    func refusesAnythingElse(_ text: String) { #expect(object(text) == nil) }

    @Test func refusesInvalidUTF8() {
        #expect(parse([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]) == nil)
        // An overlong slash, and a surrogate in UTF-8.
        #expect(parse(([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d] as [UInt8])) == nil)
        #expect(parse(([0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x3a, 0x31, 0x7d] as [UInt8])) == nil)
    }

    /// Parsers differ in which one of two they read, so neither is read.
    @Test(arguments: [1, 16, 2_000])
    func refusesRepeatedNamesThatAreRead(_ count: Int) throws {
        let members = (0..<count).map { "\"\($0)\":0" }
        for (twice, position) in [("\"a\":1,\"a\":2", 7), ("\"a\":null,\"\\u0061\":2", 10), ("\"\\u0061\":\"x\",\"a\":{}", 14)] {
            let head = "{" + members.joined(separator: ",") + ","
            let body = Array((head + twice + "}").utf8)
            let object = try #require(parse(body))
            #expect(has(object, "a", body) && names(object, body)?.count == count + 2)
            let repeated = JSONObject.Failure.repeated(at: head.utf8.count + position)
            #expect(throws: repeated) { try integer(object, "a", body) }
            #expect(throws: repeated) { try string(object, "a", body) }
            #expect(throws: repeated) { try texts(object, "a", body) }
            #expect(try integer(object, "0", body) == 0, "it is there once")
        }
    }

    /// What nobody reads may be any JSON value.
    @Test(arguments: [
        #""\ud83d""#, #""\ude00\ud83d""#, #""\ud83d\u0041""#, #"{"\ud83d":1,"\ud83d":2}"#, #"{"a":1,"a":2}"#, "1e999999",
        "[[[[[]]]]]",
        #"["]","}","\"","\\",{"[":"{"}]"#,
    ])
    func doesNotJudgeWhatIsNotRead(_ value: String) throws {
        for text in [
            #"{"x":\#(value),"a":1}"#, #"{"a":1,"x":\#(value)}"#, #"{"x":1,"a":1,"x":\#(value)}"#,
            #"{"\ud800":0,"a":1,"\ud800":\#(value)}"#,
        ] {
            let body = Array(text.utf8)
            let object = try #require(parse(body))
            #expect(try integer(object, "a", body) == 1, "\(text)")
        }
    }

    /// At any depth, without recursion and in linear time. The kinds of brackets must match at each level.
    @Test func depthIsNotLimited() throws {
        for depth in [15, 62, 63, 64, 65, 127, 128, 129, 1_000, 500_000] {
            let kinds = (0..<depth).map { $0 * 7 % 3 == 0 }
            let open = kinds.map { $0 ? "{\"b\":" : "[" }.joined()
            let close = kinds.reversed().map { $0 ? "}" : "]" }
            let body = Array("{\"x\":\(open)0\(close.joined()),\"a\":1}".utf8)
            let object = try #require(parse(body), "\(depth)")
            #expect(try integer(object, "a", body) == 1)
            #expect(names(object, body) == ["x", "a"])
            guard depth <= 129 else { continue }
            for index in close.indices {
                var wrong = close
                wrong[index] = wrong[index] == "}" ? "]" : "}"
                #expect(self.object("{\"x\":\(open)0\(wrong.joined()),\"a\":1}") == nil, "\(depth) \(index)")
            }
        }
        #expect(object(String(repeating: "{\"a\":", count: 100_000)) == nil)
        #expect(object(String(repeating: "[", count: 1_000_000)) == nil)
    }

    @Test func anObjectOfManyNamesIsReadInLinearTime() throws {
        let body = Array(("{" + (0..<40_000).map { _ in "\"\\u0062\":1" }.joined(separator: ",") + ",\"a\":1}").utf8)
        let object = try #require(parse(body))
        for _ in 0..<20 { #expect(try integer(object, "a", body) == 1) }
        #expect(count(untilFalse: object, body, after: 3) == 3 && count(untilFalse: object, body, after: .max) == 40_001)
    }

    @Test(
        arguments: [
            ("[]", .noObject, "line 1, column 1: an object is expected here"),
            (" 1", .noObject, "line 1, column 2: an object is expected here"),
            ("\u{feff}{}", .byteOrderMark, "line 1, column 1: a byte order mark precedes the JSON"),
            ("{\n\"secret\": NaN}", .noValue, "line 2, column 11: this is not a JSON value; NaN and Infinity are none"),
        ] as [(String, JSONError.Problem, String)])
    func reportsProblemAndPosition(_ text: String, _ problem: JSONError.Problem, _ words: String) {
        let found = failure(Array(text.utf8))
        #expect(found?.problem == problem && found?.words == words)
    }

    @Test func reportsTheFirstByteThatIsNotUTF8() {
        let found = failure(Array("{\"a\":\"ü".utf8) + [0xe9, 0x22, 0x7d])
        #expect(found?.problem == .notUTF8 && found?.words == "line 1, column 9: this byte is not UTF-8")
    }

    @Test func secondsAreRoundedDown() throws {
        for (text, whole) in [
            ("10", 10), ("10.0", 10), ("10.999", 10), ("1e2", 100), ("1.8e9", 1_800_000_000), ("18E+8", 1_800_000_000),
            ("-0.5", -1), ("-3", -3),
            ("1799999999.123", 1_799_999_999), ("12e-1", 1), ("1e-400", 0), ("-0.0", 0),
            ("9007199254740993", 9_007_199_254_740_993),
            ("12345678901234567890e-10", 1_234_567_890),
        ] {
            let body = Array("{\"a\":\(text)}".utf8)
            #expect(try seconds(try #require(parse(body)), "a", body) == whole, "\(text)")
        }
        for text in ["1e400", "-1e400", "1e19", "99999999999999999999", "9223372036854775808"] {
            let body = Array("{\"a\":\(text)}".utf8)
            let object = try #require(parse(body))
            #expect(throws: JSONObject.Failure.outOfRange, "\(text)") { try seconds(object, "a", body) }
        }
        let body = Array("{\"a\":\"10\",\"b\":null,\"c\":1,\"c\":2}".utf8)
        let object = try #require(parse(body))
        #expect(throws: JSONObject.Failure.wrongType) { try seconds(object, "a", body) }
        #expect(try seconds(object, "b", body) == nil && seconds(object, "z", body) == nil)
        #expect(throws: JSONObject.Failure.repeated(at: 26)) { try seconds(object, "c", body) }
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

    /// They are no text. An escape must be whole even in a string that nobody reads.
    @Test(arguments: [
        "\\ud83d", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041", "\\ud83d\\ud83d", "\\ude00",
    ])
    func refusesToReadLoneSurrogates(_ escaped: String) throws {
        let body = Array("{\"a\":\"\(escaped)\",\"b\":[\"\(escaped)\"],\"\(escaped)\":1}".utf8)
        let object = try #require(parse(body))
        #expect(throws: JSONObject.Failure.outOfRange) { try string(object, "a", body) }
        #expect(throws: JSONObject.Failure.outOfRange) { try texts(object, "b", body) }
        #expect(names(object, body) == ["a", "b", "\u{fffd}"])
        #expect(!has(object, "\u{fffd}", body))
    }

    @Test(arguments: ["\\u12", "\\u", "\\", "\\ud83d\\u", "\\ud83d\\", "\\ud83d\\ude0"])
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
        let twice = try #require(try opened(inner, "d", body))
        #expect(throws: JSONObject.Failure.repeated(at: 41)) { try integer(twice, "e", body) }
        #expect(try texts(object, "f", body) == ["z", "\n"])
        #expect(throws: JSONObject.Failure.wrongType) { try texts(inner, "b", body) }
        #expect(throws: JSONObject.Failure.wrongType) { try items(inner, "d", body) }
    }
}

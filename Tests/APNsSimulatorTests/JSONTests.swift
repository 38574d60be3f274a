import Testing

@testable import APNsSimulator

@Suite struct JSONTests {
    @Test(
        arguments: [
            ("null", .null), (" [ ] ", .array([])), ("{}", .object([:])), ("-0.5e+1", .number(-5)), ("0", .number(0)),
            (#""a\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00""#, .string("a\"\\/\u{8}\u{c}\n\r\téé😀")),
            (
                #"{"a":[1,true,{"b":null}], "c":""}"#,
                .object(["a": .array([.number(1), .bool(true), .object(["b": .null])]), "c": .string("")])
            ),
        ] as [(String, JSON)])
    func valuesAreRead(text: String, value: JSON) {
        #expect(JSON(parsing: Array(text.utf8)) == value)
    }

    @Test(arguments: [
        "", " ", "{", "}", "[1,]", "[,1]", "[1 2]", #"{"a"}"#, #"{"a":}"#, #"{"a":1,}"#, #"{"a":1,"a":2}"#, "{a:1}", "'a'", "01",
        "1.", ".5",
        "+1", "-", "1e", "1e+", "0x1", "NaN", "tru", "nulll", #"""#, #""\x""#, #""\u12g4""#, #""\ud800""#, #""\ud800A""#,
        #""\udc00""#,
        "\"a\nb\"", "1 2", "{} x", String(repeating: "[", count: 100_000), String(repeating: #"{"a":"#, count: 65) + "1",
    ])
    func invalidTextIsRefused(text: String) {
        #expect(JSON(parsing: Array(text.utf8)) == nil)
        #expect(!JSON.isObjectWithMembers(Array(#"{"x":\#(text)}"#.utf8)) || text == #"{"a":1,"a":2}"#)
    }

    @Test(arguments: [
        (#"{"a":[{"b":"\u00e9"}]}"#, true), ("{}", false), ("[{}]", false), (#"[{"a":1}]"#, false), (#"{"a":1}x"#, false),
    ])
    func objectsWithMembersAreDetected(text: String, expected: Bool) {
        #expect(JSON.isObjectWithMembers(Array(text.utf8)) == expected)
    }

    @Test func invalidUTF8IsRefused() {
        #expect(JSON(parsing: [0x22, 0xff, 0x22]) == nil)
        #expect(JSON(parsing: [0x22, 0xed, 0xa0, 0x80, 0x22]) == nil)
        #expect(!JSON.isObjectWithMembers(Array(#"{"a":""#.utf8) + [0xff] + Array(#""}"#.utf8)))
    }

    @Test func nestingIsLimited() {
        func nested(_ depth: Int) -> [UInt8] {
            Array((String(repeating: "[", count: depth) + String(repeating: "]", count: depth)).utf8)
        }
        #expect(JSON(parsing: nested(64)) != nil)
        #expect(JSON(parsing: nested(65)) == nil)
    }

    @Test(arguments: ["", "plain", "\"\\/\u{0}\u{1f}\n", "é😀\u{7f}"])
    func stringsRoundTrip(text: String) {
        var out: [UInt8] = []
        JSON.append(text, to: &out)
        #expect(JSON(parsing: out) == .string(text))
    }

    @Test func base64URLMustBeCanonical() {
        #expect(Base64URL.decode("".utf8) == [])
        #expect(Base64URL.decode("AA".utf8) == [0])
        #expect(Base64URL.decode("_-8".utf8) == [0xff, 0xef])
        for text in ["A", "AB", "AA=", "AA==", "A A", "+/8", "AAAAA"] { #expect(Base64URL.decode(text.utf8) == nil) }
    }
}

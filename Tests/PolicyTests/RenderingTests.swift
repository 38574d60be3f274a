import Policy
import Testing
import Vocabulary

@Suite struct RenderingTests {
    private static let alert = "{\"pushType\":\"alert\",\"priority\":10,\"ttlSeconds\":60,"

    @Test func peerWaitingIsRendered() throws {
        let policy = try #require(try Policy.builtIn("rooms"))
        let push = try policy.render("peer_waiting", handle: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f))
        #expect(
            String(decoding: push.payload, as: UTF8.self)
                == #"{"aps":{"alert":{"body":"Your chat partner is waiting"},"mutable-content":1,"sound":"default"},"roomId":"AAECAwQFBgcICQoLDA0ODw"}"#
        )
        #expect(push.pushType == .alert)
        #expect(push.priority == 10)
        #expect(push.ttlSeconds == 120)
        #expect(push.payload.count == policy.templates["peer_waiting"]?.worstCasePayload)
    }

    // Promise: template-renders-as-written
    @Test func everyKindOfFieldIsRendered() throws {
        let template =
            Self.alert + """
                "title":"{percent} %","subtitle":"\\"{state}\\"","body":"now {state}, then {state}","category":"PRINT","interruption-level":"passive",
                "handleKey":"printerState.prefix","constants":{"printerState":{"type":"progress"},"list":[1,{"z":0.5,"a":null}]},
                "fields":{
                  "percent":{"kind":"number","min":-50,"max":100,"step":25,"key":"printerState.progress"},
                  "state":{"kind":"enum","values":["Printing","a \\"quoted\\" one"],"key":"printerState.status"},
                  "quiet":{"kind":"flag","key":"quiet"},
                  "request":{"kind":"handle","key":"requestId"}}}
                """
        let payload = try render(
            template,
            [
                "percent": .number(-25), "state": .choice("a \"quoted\" one"), "quiet": .flag(false),
                "request": .handle(Handle(0)),
            ])
        #expect(
            payload
                == #"{"aps":{"alert":{"body":"now a \"quoted\" one, then a \"quoted\" one","subtitle":"\"a \"quoted\" one\"","title":"-25 %"},"#
                + #""category":"PRINT","interruption-level":"passive"},"list":[1,{"a":null,"z":0.5}],"#
                + #""printerState":{"prefix":"_____________________w","progress":-25,"status":"a \"quoted\" one","type":"progress"},"#
                + #""quiet":false,"requestId":"AAAAAAAAAAAAAAAAAAAAAA"}"#)
    }

    @Test func localizedTextsAreRendered() throws {
        #expect(
            try render(Self.alert + #""title-loc-key":"WAITING_TITLE","loc-key":"WAITING"}"#)
                == #"{"aps":{"alert":{"loc-key":"WAITING","title-loc-key":"WAITING_TITLE"}}}"#)
    }

    @Test func otherPushTypesAreRendered() throws {
        #expect(
            try render(#"{"pushType":"background","priority":5,"ttlSeconds":0,"handleKey":"h"}"#)
                == #"{"aps":{"content-available":1},"h":"_____________________w"}"#)
        let voip = try Policy(rooms(template: #"{"pushType":"voip","priority":10,"ttlSeconds":30}"#)).render(
            "t", handle: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f))
        #expect(String(decoding: voip.payload, as: UTF8.self) == #"{"aps":{"content-available":1}}"#)
        #expect(voip.pushType == .voip)
        let live = #"""
            {"pushType":"liveactivity","priority":5,"ttlSeconds":300,"event":"update","constants":{"v":1},
             "fields":{"done":{"kind":"flag","key":"state.done"}}}
            """#
        #expect(
            try render(live, ["done": .flag(true)], nowMs: 1_700_000_000_999)
                == #"{"aps":{"content-state":{"state":{"done":true},"v":1},"event":"update","timestamp":1700000000}}"#)
        #expect(throws: RenderError.timeMissing) { try render(live, ["done": .flag(true)]) }
    }

    @Test func badgesAndTimesAreRendered() throws {
        #expect(try render(Self.alert + #""body":"x","badge":0}"#) == #"{"aps":{"alert":{"body":"x"},"badge":0}}"#)
        #expect(try render(Self.alert + #""badge":0}"#) == #"{"aps":{"badge":0,"content-available":1}}"#)
        let timed = Self.alert + #""body":"x","badge":999,"times":{"sent":0,"until.at":60}}"#
        #expect(
            try render(timed, nowMs: 1_700_000_000_999)
                == #"{"aps":{"alert":{"body":"x"},"badge":999},"sent":"2023-11-14T22:13:20Z","until":{"at":"2023-11-14T22:14:20Z"}}"#
        )
        // The longest offset.
        #expect(try Policy(rooms(template: timed)).templates["t"]?.worstCasePayload == render(timed, nowMs: 1).utf8.count)
        #expect(throws: RenderError.timeMissing) { try render(timed) }
    }

    @Test func datesOfLiveActivitiesAreRendered() throws {
        let end = #"""
            {"pushType":"liveactivity","priority":10,"ttlSeconds":300,"event":"end","staleSeconds":300,"dismissSeconds":0,
             "times":{"until":5},"constants":{"a":null,"b":{"c":null,"d":[null]}},
             "fields":{"n":{"kind":"number","min":0,"max":100,"step":1,"key":"b.n"}}}
            """#
        let payload = try render(end, ["n": .number(100)], nowMs: 1_700_000_000_999)
        #expect(
            payload
                == #"{"aps":{"content-state":{"a":null,"b":{"c":null,"d":[null],"n":100},"until":"2023-11-14T22:13:25Z"},"dismissal-date":1700000000,"#
                + #""event":"end","stale-date":1700000300,"timestamp":1700000000}}"#)
        // The longest offset.
        #expect(try Policy(rooms(template: end)).templates["t"]?.worstCasePayload == payload.utf8.count)
    }

    // Promise: expiry-within-the-tokens
    @Test func expiryIsNeverLaterThanTheTokens() throws {
        let template = try #require(try Policy.builtIn("rooms")?.templates["peer_waiting"])
        #expect(template.expiration(nowMs: 1_000_000, tokenExpiryMs: 9_000_000) == 1120)
        #expect(template.expiration(nowMs: 1_000_000, tokenExpiryMs: 1_050_999) == 1050)
        let once = try Policy(rooms(template: #"{"pushType":"background","priority":5,"ttlSeconds":0}"#)).templates["t"]
        #expect(once?.expiration(nowMs: 1_000_000, tokenExpiryMs: 9_000_000) == 0)
    }

    @Test func invalidValuesAreRefused() throws {
        let template =
            Self.alert + """
                "body":"{n} {e}","fields":{"n":{"kind":"number","min":1,"max":9,"step":4},"e":{"kind":"enum","values":["a","b"]},
                "h":{"kind":"handle","key":"h"},"q":{"kind":"flag","key":"q"}}}
                """
        let good: [String: FieldValue] = [
            "n": .number(5), "e": .choice("b"), "h": .handle(Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)), "q": .flag(true),
        ]
        #expect(throws: Never.self) { try render(template, good) }
        func refused(_ field: String, _ value: FieldValue?, _ error: RenderError) {
            var fields = good
            fields[field] = value
            #expect(throws: error) { try render(template, fields) }
        }
        refused("n", nil, .missingField("n"))
        refused("n", .number(4), .outOfRange("n"))
        refused("n", .number(0), .outOfRange("n"))
        refused("n", .number(10), .outOfRange("n"))
        refused("n", .number(.max), .outOfRange("n"))
        refused("n", .choice("5"), .wrongKind("n"))
        refused("e", .choice("c"), .notListed("e"))
        refused("e", .choice(""), .notListed("e"))
        refused("e", .number(1), .wrongKind("e"))
        refused("h", .choice("a"), .wrongKind("h"))
        refused("q", .number(1), .wrongKind("q"))
        refused("text", .choice("a"), .unknownField)
        let policy = try #require(try Policy.builtIn("rooms"))
        #expect(throws: RenderError.unknownField) {
            try policy.render(
                "peer_waiting", handle: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), fields: ["name": .choice("x")])
        }
    }

    /// A word that equals a listed one by Unicode's rules but has other bytes is not listed.
    @Test func wordsAreComparedByBytes() throws {
        let template = Self.alert + "\"body\":\"{e}\",\"fields\":{\"e\":{\"kind\":\"enum\",\"values\":[\"caf\u{e9}\"]}}}"
        #expect(try render(template, ["e": .choice("caf\u{e9}")]).contains("caf\u{e9}"))
        #expect(throws: RenderError.notListed("e")) { try render(template, ["e": .choice("cafe\u{301}")]) }
    }

    /// A payload consists only of the policy's own words, numbers on the policy's steps, flags and handles. Other text of a caller never gets into a
    /// payload.
    // Promise: no-free-text
    @Test func callersCantInsertText() throws {
        let template =
            Self.alert + """
                "title":"{e}","body":"{n} {e}","handleKey":"id","fields":{"n":{"kind":"number","min":0,"max":100,"step":50,"key":"n"},
                "e":{"kind":"enum","values":["red","green"],"key":"e"},"q":{"kind":"flag","key":"q"}}}
                """
        let policy = try Policy(rooms(template: template))
        let handle = Handle(0)
        var allowed: Set<[UInt8]> = []
        for word in ["red", "green"] {
            for number in [0, 50, 100] {
                for flag in [true, false] {
                    allowed.insert(
                        try policy.render(
                            "t", handle: handle, fields: ["n": .number(number), "e": .choice(word), "q": .flag(flag)]
                        ).payload)
                }
            }
        }
        #expect(allowed.count == 12)

        var random = SplitMix(state: 7)
        var rendered = 0
        for _ in 0..<20_000 {
            // Half of the values have the right kind. Otherwise hardly any push would be rendered.
            let fields: [String: FieldValue] = [
                "n": Bool.random(using: &random) ? .number(50 * Int.random(in: -1...3, using: &random)) : random.value(),
                "e": Bool.random(using: &random)
                    ? .choice(["red", "green", "blue"].randomElement(using: &random) ?? "") : random.value(),
                "q": Bool.random(using: &random) ? .flag(Bool.random(using: &random)) : random.value(),
            ]
            guard let push = try? policy.render("t", handle: handle, fields: fields) else { continue }
            rendered += 1
            #expect(allowed.contains(push.payload))
        }
        #expect(rendered > 1000)
    }
}

/// A seeded generator, so that failures are reproducible.
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }

    /// Texts that are similar or unrelated to a template's words, and values of all other kinds.
    mutating func value() -> FieldValue {
        switch Int.random(in: 0..<8, using: &self) {
        case 0: return .flag(Bool.random(using: &self))
        case 1: return .flag(true)
        case 2: return .number([0, 50, 100, 25, -50, .min, .max].randomElement(using: &self) ?? 0)
        case 3: return .number(Int.random(in: -200...200, using: &self))
        case 4:
            return .choice(["red", "green", "Red", "red ", "re", "{n}", "red\",\"x\":\"y", ""].randomElement(using: &self) ?? "")
        case 5: return .handle(Handle(UInt128.random(in: .min ... .max, using: &self)))
        default:
            let count = Int.random(in: 0..<12, using: &self)
            return .choice(
                String(
                    String.UnicodeScalarView(
                        (0..<count).compactMap { _ in Unicode.Scalar(UInt32.random(in: 0..<0x300, using: &self)) })))
        }
    }
}

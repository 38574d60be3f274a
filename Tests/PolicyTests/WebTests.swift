import Testing
import Vocabulary

@testable import Policy

/// An origin of the greatest length.
let longestOrigin = "https://" + String(repeating: "o", count: 192)

/// What browsers show.
@Suite struct WebTests {
    private static let alert = "{\"pushType\":\"alert\",\"priority\":10,\"ttlSeconds\":60,"
    private static let voip = "{\"pushType\":\"voip\",\"priority\":10,\"ttlSeconds\":30"
    /// The base64url of 16 bytes of 0 and of 255.
    private static let (none, all) = ("AAAAAAAAAAAAAAAAAAAAAA", "_____________________w")

    private func show(_ template: String, _ fields: [String: FieldValue] = [:], nowMs: UInt64 = 0) throws -> String? {
        let template = try #require(try Policy(rooms(template: template)).templates["t"])
        return try show(template, fields, nowMs: nowMs)
    }

    private func show(_ template: Template, _ fields: [String: FieldValue] = [:], nowMs: UInt64 = 0) throws -> String? {
        let message = try template.renderWeb(handle: Handle(.max), fields: fields, nowMs: nowMs, origin: "https://app.example")
        return message.map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func peerWaitingIsShown() throws {
        let template = try #require(try builtIn("rooms").templates["peer_waiting"])
        #expect(
            try show(template)
                == #"{"mutable":true,"notification":{"data":{"roomId":"\#(Self.all)","template":"peer_waiting"},"#
                + #""navigate":"https://app.example/","tag":"\#(Self.all)","title":"Your chat partner is waiting"},"web_push":8030}"#
        )
    }

    @Test func callsRing() throws {
        let template = try #require(try builtIn("calls").templates["incoming_call"])
        let fields: [String: FieldValue] = [
            "sessionId": .handle(Handle(0)), "callerUid": .handle(Handle(.max)), "callType": .choice("video"),
        ]
        #expect(
            try show(template, fields)
                == #"{"mutable":true,"notification":{"data":{"callType":"video","callerUid":"\#(Self.all)","sessionId":"\#(Self.none)","#
                + #""template":"incoming_call"},"navigate":"https://app.example/","requireInteraction":true,"tag":"\#(Self.all)","#
                + #""title":"Incoming call"},"web_push":8030}"#)
    }

    /// `data` has all that is beside `aps`, at the same paths.
    @Test func everythingIsShown() throws {
        let template =
            Self.alert + """
                "title":"{percent} %","subtitle":"a","body":"\\"{state}\\"","sound":"default","badge":1,"handleKey":"printer.id",
                "constants":{"printer":{"type":"x"},"list":[1]},"times":{"at":60},"web":{"path":"/p#c?a=\\"b\\"","requireInteraction":false},
                "fields":{"percent":{"kind":"number","min":-50,"max":100,"step":25,"key":"printer.progress"},
                  "state":{"kind":"enum","values":["on","an \\"odd\\" one"]},"quiet":{"kind":"flag","key":"quiet"},
                  "request":{"kind":"handle","key":"requestId"}}}
                """
        let fields: [String: FieldValue] = [
            "percent": .number(-25), "state": .choice("an \"odd\" one"), "quiet": .flag(true), "request": .handle(Handle(0)),
        ]
        let data =
            #"{"at":"2023-11-14T22:14:20Z","list":[1],"printer":{"id":"\#(Self.all)","progress":-25,"type":"x"},"quiet":true,"#
            + #""requestId":"\#(Self.none)""#
        #expect(
            try show(template, fields, nowMs: 1_700_000_000_999)
                == #"{"mutable":true,"notification":{"body":"\"an \"odd\" one\"","data":\#(data),"template":"t"},"#
                + #""navigate":"https://app.example/p#c?a=\"b\"","tag":"\#(Self.all)","title":"-25 %"},"web_push":8030}"#)
        let push = try render(template, fields, nowMs: 1_700_000_000_999)
        let beside = data.replacing(#"{"at""#, with: #""at""#)
        #expect(push.hasSuffix("," + beside + "}"))
        #expect(throws: RenderError.timeMissing) { try show(template, fields) }
        #expect(throws: RenderError.missingField("percent")) { try show(template) }
    }

    @Test(
        arguments: [
            (alert + #""title":"A","body":"B"}"#, #""A""#, #""B""#),
            (alert + #""title":"A","body":"B","web":{}}"#, #""A""#, #""B""#),
            (alert + #""title":"A","body":"B","web":{"title":"\"W\""}}"#, #""\"W\"""#, #""B""#),
            (alert + #""subtitle":"S","body":"B"}"#, #""B""#, nil),
            (alert + #""title-loc-key":"A","loc-key":"B"}"#, #""Notification""#, nil),
            (alert + #""title":"A","loc-key":"B"}"#, #""A""#, nil),
            (alert + #""badge":0,"web":{"title":"W"}}"#, #""W""#, nil), (voip + #","web":{}}"#, #""Notification""#, nil),
        ])
    func titlesAndBodies(_ template: String, _ title: String, _ body: String?) throws {
        #expect(
            try show(template)
                == #"{"mutable":true,"notification":{\#(body.map { "\"body\":\($0)," } ?? "")"data":{"template":"t"},"navigate":"https://app.example/","#
                + #""tag":"\#(Self.all)","title":\#(title)},"web_push":8030}"#)
    }

    @Test(
        arguments: [
            #"{"pushType":"background","priority":5,"ttlSeconds":60}"#,
            #"{"pushType":"liveactivity","priority":10,"ttlSeconds":60,"event":"update"}"#, voip + "}", alert + #""badge":0}"#,
        ])
    func pushesThatShowNothingAreSkipped(_ template: String) throws {
        let policy = try Policy(rooms(template: template))
        #expect(policy.templates["t"]?.reachesBrowsers == false)
        #expect(try show(template, nowMs: 1) == nil)
        #expect(policy.summary().contains("browsers show                     nothing: it isn't sent to them\n"))
    }

    @Test func builtInTemplatesReachBrowsers() throws {
        let templates = try ["rooms", "companion", "monitor", "calls"].flatMap { try builtIn($0).templates.values }
        let reaching = Set(templates.filter(\.reachesBrowsers).map(\.name))
        #expect(
            reaching == [
                "peer_waiting", "approval_request", "question_asked", "task_complete", "task_failed", "clear_approval",
                "approval_over",
                "print_started", "print_complete", "print_failed", "print_paused", "progress_milestone", "incoming_call",
            ])
        for template in templates where template.reachesBrowsers {
            var fields: [String: FieldValue] = [:]
            for field in template.fields {
                fields[field.name] =
                    switch field.kind {
                    case .handle: .handle(Handle(.max))
                    case .oneOf(let words): .choice(try #require(words.max { $0.utf8.count < $1.utf8.count }))
                    case .number(let range, _): .number(range.upperBound)
                    case .flag: .flag(false)
                    }
            }
            let message = try template.renderWeb(handle: Handle(.max), fields: fields, nowMs: 1, origin: longestOrigin)
            #expect(message?.count == template.web?.worstCase, "\(template.name)")
            #expect(message?.count ?? .max <= 1_024, "\(template.name)")
        }
    }

    // MARK: Lint

    @Test func messagesAtTheLimitPass() throws {
        #expect(longestOrigin.utf8.count == 200)
        func lint(_ template: (Int) -> String, wrapping: Int) throws {
            let fits = try Policy(rooms(template: template(1_024 - wrapping)))
            #expect(fits.templates["t"]?.web?.worstCase == 1_024)
            let over = Policy.lint(try rooms(template: template(1_025 - wrapping)))
            #expect(over.map(\.path) == ["$.templates.t"])
            #expect(over.first?.problem == "can make a Web Push of 1025 bytes")
        }
        let around =
            #"{"mutable":true,"notification":{"data":{"template":"t"},"navigate":"/","tag":"","title":""},"web_push":8030}"#
        let bytes = around.utf8.count + 200 + 22
        try lint({ Self.alert + "\"body\":\"\(String(repeating: "x", count: $0))\"}" }, wrapping: bytes)
        // The longest word counts, as it is escaped.
        try lint(
            {
                Self.alert
                    + "\"body\":\"\(String(repeating: "x", count: $0)){f}\",\"fields\":{\"f\":{\"kind\":\"enum\",\"values\":"
                    + "[\"a\",\"\\\"\\\"\\\"\",\"abcde\"]}}}"
            }, wrapping: bytes + 6)
    }

    struct Bad: Sendable, CustomTestStringConvertible {
        let template: String
        let findings: [String]
        init(_ template: String, _ findings: String...) { (self.template, self.findings) = (template, findings) }
        var testDescription: String { template }
    }

    private static func web(_ web: String) -> String { alert + "\"body\":\"x\",\"web\":\(web)}" }

    static let bad = [
        Bad(web("true"), ".web: is true or false, not an object"), Bad(web("[]"), ".web: is a list, not an object"),
        Bad(web("{\"body\":\"x\"}"), ".web.body: is an unknown key"),
        Bad(web("{\"navigate\":\"https://x/\"}"), ".web.navigate: is an unknown key"),
        Bad(
            web("{\"title\":1,\"requireInteraction\":1,\"path\":null}"), ".web.title: is 1, not a text",
            ".web.path: is null, not a text", ".web.requireInteraction: is 1, not true or false"),
        Bad(web("{\"title\":\"\"}"), ".web.title: is empty or has a control character"),
        Bad(web("{\"title\":\"a\\nb\"}"), ".web.title: is empty or has a control character"),
        Bad(web("{\"title\":\"{f}\"}"), ".web.title: has a brace"), Bad(web("{\"title\":\"a}\"}"), ".web.title: has a brace"),
        Bad(web("{\"path\":\"\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"chats\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"@other.example/\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"/two words\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"/{f}\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"/é\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(web("{\"path\":\"/\\u007f\"}"), ".web.path: is not / and visible ASCII characters without braces"),
        Bad(
            "{\"pushType\":\"background\",\"priority\":5,\"ttlSeconds\":60,\"web\":{}}",
            ".web: is not allowed in a background push"),
        Bad(
            "{\"pushType\":\"liveactivity\",\"priority\":5,\"ttlSeconds\":60,\"event\":\"update\",\"web\":{}}",
            ".web: is not allowed in a liveactivity push"),
        Bad(voip + ",\"title\":\"x\",\"web\":{}}", ".title: is not allowed in a voip push"),
        Bad(voip + ",\"web\":{\"title\":\"\(String(repeating: "x", count: 1_000))\"}}", ": can make a Web Push of 1330 bytes"),
        // The name's place
        Bad(alert + "\"body\":\"x\",\"handleKey\":\"template\"}", ": uses the payload key template"),
        Bad(alert + "\"body\":\"x\",\"constants\":{\"template\":{}}}", ": uses the payload key template"),
        Bad(
            alert + "\"body\":\"x\",\"fields\":{\"f\":{\"kind\":\"flag\",\"key\":\"template.f\"}}}",
            ": uses the payload key template"),
    ]

    @Test(arguments: bad) func refusesWeb(_ bad: Bad) throws {
        let findings = Policy.lint(try rooms(template: bad.template))
        #expect(findings.map { "\($0.path): \($0.problem)" } == bad.findings.map { "$.templates.t" + $0 })
        for finding in findings { #expect(!finding.reason.isEmpty && !finding.remedy.isEmpty) }
    }

    /// A push that isn't sent to browsers may use the key.
    @Test func theNamesPlaceIsFreeElsewhere() throws {
        #expect(Policy.lint(try rooms(template: Self.voip + ",\"handleKey\":\"template\"}")).isEmpty)
    }

    @Test func theSummarySaysWhatBrowsersShow() throws {
        let template = try #require(try builtIn("calls").templates["incoming_call"]?.web)
        #expect(
            try builtIn("calls").summary().contains(
                "  browsers show                     \"Incoming call\" until it is closed, a click opens / (at most \(template.worstCase) bytes)\n"
            ))
        let path = try Policy(rooms(template: Self.web("{\"path\":\"/a\"}"))).summary()
        #expect(path.contains("browsers show                     \"x\", a click opens /a (at most "))
    }
}

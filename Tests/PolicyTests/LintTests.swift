import Policy
import Testing
import Vocabulary

/// Refused policies, with the path of each finding.
@Suite struct LintTests {
    struct Edit: Sendable, CustomTestStringConvertible {
        let old, new: String
        let paths: [String]
        init(_ old: String, _ new: String, _ paths: String...) { (self.old, self.new, self.paths) = (old, new, paths) }
        var testDescription: String { "\(old) -> \(new)" }
    }

    static let edits = [
        // The file as a whole
        Edit("\"name\": \"rooms\",", "", "$.name"),
        Edit("\"name\": \"rooms\"", "\"name\": \"Rooms & more\"", "$.name"),
        Edit("\"name\": \"rooms\"", "\"name\": 7", "$.name"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"name\": \"rooms\"", "$.name"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"na\\u006de\": \"other\"", "$.name"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"comment\": \"x\"", "$.comment"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"a'b\": 1", "$['a\\'b']"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"kind\": \"Rooms\"", "$.kind"),
        Edit("\"name\": \"rooms\"", "\"name\": \"rooms\", \"kind\": null", "$.kind"),
        Edit("\"limits\"", "\"limit\"", "$.limit"),
        Edit("\"templates\"", "\"template\"", "$.template"),
        // The log's timing
        Edit("\"hourSeconds\": 3600, ", "", "$.ledger.hourSeconds"),
        Edit("\"hourSeconds\": 3600", "\"hourSeconds\": 3600, \"weekSeconds\": 604800", "$.ledger.weekSeconds"),
        Edit("\"hourSeconds\": 3600", "\"hourSeconds\": 3601", "$.ledger.hourSeconds"),
        Edit("\"hourSeconds\": 3600", "\"hourSeconds\": 7", "$.ledger.daySeconds"),
        Edit("\"daySeconds\": 86400", "\"daySeconds\": 3599", "$.ledger.daySeconds"),
        Edit("\"batchSeals\": 64", "\"batchSeals\": 0", "$.ledger.batchSeals"),
        Edit("{ \"hourSeconds\": 3600, \"daySeconds\": 86400, \"batchSeals\": 64 }", "64", "$.ledger"),
        // Limits
        Edit("\"roomLifeSeconds\": { \"min\": 10, \"max\": 604800, \"default\": 86400 },", "", "$.limits.roomLifeSeconds"),
        Edit("\"max\": 604800", "\"max\": 2592001", "$.limits.roomLifeSeconds.max"),
        Edit("\"max\": 604800", "\"max\": 6.0e5", "$.limits.roomLifeSeconds.max"),
        Edit("\"max\": 604800", "\"max\": \"604800\"", "$.limits.roomLifeSeconds.max"),
        Edit("\"max\": 604800", "\"max\": 99999999999999999999", "$.limits.roomLifeSeconds.max"),
        Edit("\"max\": 604800", "\"max\": 9", "$.limits.roomLifeSeconds.min"),
        Edit("\"max\": 604800, \"default\": 86400", "\"max\": 604800, \"default\": 9", "$.limits.roomLifeSeconds.default"),
        Edit("\"max\": 86400,", "\"max\": 86401,", "$.limits.joinCode.lifeSeconds.max"),
        Edit("\"max\": 86400, \"default\": 86400", "\"max\": 86400, \"default\": 9", "$.limits.joinCode.lifeSeconds.default"),
        Edit("\"shortest\": 4", "\"shortest\": 3", "$.limits.joinCode.shortest"),
        Edit("\"shortest\": 4", "\"shortest\": 9", "$.limits.joinCode.shortBelow"),
        Edit("\"pendingShort\": 1000", "\"pendingShort\": 0", "$.limits.joinCode.pendingShort"),
        Edit("\"keptAfterAcceptSeconds\": 600", "\"keptAfterAcceptSeconds\": 119", "$.limits.joinCode.keptAfterAcceptSeconds"),
        Edit(
            "\"knockThrottleSeconds\": 30", "\"registrationLifeSeconds\": {}, \"knockThrottleSeconds\": 30",
            "$.limits.registrationLifeSeconds"),
        Edit("\"knockThrottleSeconds\": 30", "\"knockThrottleSeconds\": 0", "$.limits.knockThrottleSeconds"),
        Edit("\"knockThrottleSeconds\": 30", "\"knockThrottleSeconds\": true", "$.limits.knockThrottleSeconds"),
        Edit("{ \"count\": 30, \"seconds\": 300 }", "30", "$.limits.tokenKnocks"),
        Edit("\"count\": 30, \"seconds\": 300", "\"count\": 9, \"seconds\": 300", "$.limits.tokenKnocks.count"),
        Edit("\"count\": 30, \"seconds\": 300", "\"count\": 30", "$.limits.tokenKnocks.seconds"),
        Edit("\"count\": 30, \"seconds\": 300", "\"seconds\": 300", "$.limits.tokenKnocks.count"),
        Edit("{ \"count\": 30, \"seconds\": 300 }", "{}", "$.limits.tokenKnocks.count", "$.limits.tokenKnocks.seconds"),
        Edit("\"count\": 30, \"seconds\": 300", "\"count\": 30, \"seconds\": 86401", "$.limits.tokenKnocks.seconds"),
        Edit("\"presenceSeconds\": 45", "\"presenceSeconds\": 5", "$.limits.peerGraceSeconds"),
        Edit("\"presenceProbeSeconds\": 2", "\"presenceProbeSeconds\": 0", "$.limits.presenceProbeSeconds"),
        Edit("\"presenceProbeSeconds\": 2", "\"presenceProbeSeconds\": 6", "$.limits.presenceProbeSeconds"),
        Edit("\"peerGraceSeconds\": 5", "\"peerGraceSeconds\": -1", "$.limits.peerGraceSeconds"),
        Edit("\"startGraceSeconds\": 15", "\"startGraceSeconds\": 121", "$.limits.startGraceSeconds"),
        Edit("\"retryWindowSeconds\": 120", "\"retryWindowSeconds\": 121", "$.limits.retryWindowSeconds"),
        Edit("\"jobDeadlineSeconds\": 120", "\"jobDeadlineSeconds\": 121", "$.limits.jobDeadlineSeconds"),
        Edit("\"ipv4\": 32", "\"ipv4\": 33", "$.limits.addressBits.ipv4"),
        Edit("\"ipv6\": 56", "\"ipv6\": 128", "$.limits.addressBits.ipv6"),
        Edit("{ \"count\": 100, \"seconds\": 600 }", "100", "$.limits.wrongCodes.perAddress"),
        Edit("{ \"count\": 100, ", "{ \"count\": 601, ", "$.limits.wrongCodes.overall"),
        Edit("{ \"count\": 100, ", "{ \"per\": 1, \"count\": 100, ", "$.limits.wrongCodes.perAddress.per"),
        Edit("\"count\": 1000000, \"seconds\": 600", "\"count\": 1000000, \"seconds\": 0", "$.limits.creations.overall.seconds"),
        // The one template
        Edit("\"peer_waiting\"", "\"Peer waiting\"", "$.templates['Peer waiting']"),
        Edit("\"body\": \"Your chat partner is waiting\",", "", "$.templates.peer_waiting.body"),
        Edit("\"Your chat partner is waiting\"", "\"\"", "$.templates.peer_waiting.body"),
        Edit("\"Your chat partner is waiting\"", "\"{name} is waiting\"", "$.templates.peer_waiting.body"),
        Edit("\"Your chat partner is waiting\"", "\"a\\u0000b\"", "$.templates.peer_waiting.body"),
        Edit("\"handleKey\": \"roomId\"", "\"handleKey\": \"aps.roomId\"", "$.templates.peer_waiting.handleKey"),
        Edit("\"handleKey\": \"roomId\"", "\"handleKey\": \"a..b\"", "$.templates.peer_waiting.handleKey"),
        Edit("\"handleKey\": \"roomId\"", "\"collapseId\": \"room\"", "$.templates.peer_waiting.collapseId"),
        Edit("\"mutable-content\": 1", "\"mutable-content\": 2", "$.templates.peer_waiting['mutable-content']"),
        Edit("\"mutable-content\": 1", "\"mutable-content\": true", "$.templates.peer_waiting['mutable-content']"),
        Edit("\"sound\": \"default\"", "\"sound\": \"two words\"", "$.templates.peer_waiting.sound"),
        Edit("\"ttlSeconds\": 120", "\"ttlSeconds\": 2592001", "$.templates.peer_waiting.ttlSeconds"),
        Edit(
            "\"ttlSeconds\": 120", "\"expiration\": 120", "$.templates.peer_waiting.expiration",
            "$.templates.peer_waiting.ttlSeconds"),
        Edit("\"priority\": 10", "\"priority\": 1", "$.templates.peer_waiting.priority"),
        Edit("\"pushType\": \"alert\"", "\"pushType\": \"location\"", "$.templates.peer_waiting.pushType"),
    ]

    // Promise: lint-explains
    @Test(arguments: edits) func refusesEdited(_ edit: Edit) throws {
        let findings = try Policy.lint(rooms(edit.old, edit.new))
        #expect(findings.map(\.path) == edit.paths)
        for finding in findings {
            #expect(!finding.problem.isEmpty && !finding.reason.isEmpty && !finding.remedy.isEmpty)
        }
    }

    /// Edits of a policy for an audience. `SchemaTests` covers its bounds.
    static let audienceEdits = [
        Edit("\"kind\": \"companion\"", "\"kind\": \"pager\"", "$.kind"),
        Edit("\"deviceLifeSeconds\": 2592000,", "", "$.limits.deviceLifeSeconds"),
        Edit("\"deviceLifeSeconds\": 2592000", "\"deviceLifeSeconds\": \"30 d\"", "$.limits.deviceLifeSeconds"),
        Edit("\"approvalSeconds\": 60", "\"approvalSeconds\": 60, \"presenceSeconds\": 45", "$.limits.presenceSeconds"),
        Edit("\"approvalSeconds\": 60,", "", "$.limits.approvalSeconds"),
        Edit("\"activitiesPerOwner\": 100,", "", "$.limits.activitiesPerOwner"),
        Edit("{ \"count\": 600, \"seconds\": 60 }", "600", "$.limits.eventsPerUser"),
        Edit("{ \"count\": 600, \"seconds\": 60 }", "{ \"count\": 600 }", "$.limits.eventsPerUser.seconds"),
    ]

    @Test(arguments: audienceEdits) func refusesEditedAudience(_ edit: Edit) throws {
        #expect(Policy.lint(try edited("companion", (edit.old, edit.new))).map(\.path) == edit.paths)
    }

    /// A policy whose limits are of another kind is refused for the limits and the log's timing, without follow-up findings.
    @Test func limitsMustMatchTheKind() throws {
        let findings = Policy.lint(try rooms("\"name\": \"rooms\"", "\"name\": \"rooms\", \"kind\": \"monitor\""))
        #expect(findings.contains { $0.path == "$.limits.deviceLifeSeconds" && $0.problem == "is missing" })
        #expect(findings.allSatisfy { $0.path.hasPrefix("$.limits.") || $0.path == "$.ledger" })
    }

    struct Bad: Sendable, CustomTestStringConvertible {
        let template: String
        let paths: [String]
        init(_ template: String, _ paths: String...) {
            (self.template, self.paths) = (template, paths.map { "$.templates.t" + $0 })
        }
        var testDescription: String { String(template.prefix(160)) }
    }

    private static let alert = "{\"pushType\":\"alert\",\"priority\":10,\"ttlSeconds\":60,"
    private static let background = "{\"pushType\":\"background\",\"priority\":5,\"ttlSeconds\":60"
    private static let live = "{\"pushType\":\"liveactivity\",\"priority\":10,\"ttlSeconds\":60,"
    private static func field(_ field: String, body: String = "x") -> String {
        alert + "\"body\":\"\(body)\",\"fields\":{\"f\":\(field)}}"
    }

    static let bad = [
        // Free text
        Bad(field("{\"kind\":\"text\",\"key\":\"f\"}"), ".fields.f.kind"),
        Bad(field("{\"kind\":\"string\",\"key\":\"f\"}"), ".fields.f.kind"),
        Bad(field("{\"kind\":\"url\",\"key\":\"f\",\"pattern\":\".*\"}"), ".fields.f.kind"),
        Bad(field("{\"kind\":[\"enum\",\"text\"],\"key\":\"f\"}"), ".fields.f.kind"),
        Bad(field("{\"key\":\"f\"}"), ".fields.f.kind"),
        Bad(field("{\"kind\":\"enum\",\"key\":\"f\"}"), ".fields.f.values"),
        Bad(field("{\"kind\":\"enum\",\"values\":[],\"key\":\"f\"}"), ".fields.f.values"),
        Bad(field("{\"kind\":\"enum\",\"values\":[\"a\",\"a\"],\"key\":\"f\"}"), ".fields.f.values[1]"),
        Bad(field("{\"kind\":\"enum\",\"values\":[\"a\",7],\"key\":\"f\"}"), ".fields.f.values[1]"),
        Bad(
            field("{\"kind\":\"enum\",\"values\":[\"\(String(repeating: "w", count: 65))\"],\"key\":\"f\"}"),
            ".fields.f.values[0]"),
        Bad(field("{\"kind\":\"enum\",\"values\":[\"a\"],\"allowOther\":true,\"key\":\"f\"}"), ".fields.f.allowOther"),
        Bad(field("{\"kind\":\"number\",\"min\":0,\"max\":1000000,\"step\":1,\"key\":\"f\"}"), ".fields.f.step"),
        Bad(field("{\"kind\":\"number\",\"min\":0,\"max\":10,\"step\":3,\"key\":\"f\"}"), ".fields.f.step"),
        Bad(field("{\"kind\":\"number\",\"min\":5,\"max\":5,\"step\":1,\"key\":\"f\"}"), ".fields.f.min"),
        Bad(field("{\"kind\":\"number\",\"key\":\"f\"}"), ".fields.f.min", ".fields.f.max", ".fields.f.step"),
        // Texts
        Bad(field("{\"kind\":\"handle\",\"key\":\"f\"}", body: "room {f}"), ".body"),
        Bad(field("{\"kind\":\"flag\",\"key\":\"f\"}", body: "quiet: {f}"), ".body"),
        Bad(field("{\"kind\":\"flag\",\"key\":\"f\"}", body: "{other}"), ".body"),
        Bad(field("{\"kind\":\"flag\",\"key\":\"f\"}", body: "50 % }"), ".body"),
        Bad(field("{\"kind\":\"flag\",\"key\":\"f\"}", body: "a {"), ".body"),
        Bad(field("{\"kind\":\"flag\"}"), ".fields.f"),
        Bad(alert + "\"body\":\"x\",\"loc-key\":\"X\"}", "['loc-key']"),
        Bad(alert + "\"title\":\"x\",\"title-loc-key\":\"X\",\"body\":\"x\"}", "['title-loc-key']"),
        Bad(alert + "\"subtitle\":\"x\",\"loc-key\":\"X\"}", "['loc-key']"),
        Bad(alert + "\"title\":\"only a title\"}", ".body"),
        Bad(alert + "\"body\":\"x\",\"interruption-level\":\"loud\"}", "['interruption-level']"),
        Bad(alert + "\"body\":\"x\",\"content-available\":0}", "['content-available']"),
        Bad(background + ",\"content-available\":1}", "['content-available']"),
        Bad(alert + "\"body\":\"x\",\"event\":\"update\"}", ".event"),
        Bad(alert + "\"body\":\"x\",\"badge\":1000}", ".badge"),
        Bad(alert + "\"body\":\"x\",\"badge\":-1}", ".badge"),
        Bad(alert + "\"body\":\"x\",\"badge\":\"1\"}", ".badge"),
        Bad(alert + "\"body\":\"x\",\"staleSeconds\":60}", ".staleSeconds"),
        Bad(alert + "\"body\":\"x\",\"dismissSeconds\":60}", ".dismissSeconds"),
        // Places
        Bad(field("{\"kind\":\"flag\",\"key\":\"aps.badge\"}"), ".fields.f.key"),
        Bad(field("{\"kind\":\"flag\",\"key\":\"\"}"), ".fields.f.key"),
        Bad(alert + "\"body\":\"x\",\"constants\":{\"aps\":{\"badge\":1}}}", ".constants.aps"),
        Bad(alert + "\"body\":\"x\",\"constants\":[1]}", ".constants"),
        Bad(alert + "\"body\":\"x\",\"constants\":{\"id\":1},\"handleKey\":\"id\"}", ".handleKey"),
        Bad(alert + "\"body\":\"x\",\"constants\":{\"id\":1},\"handleKey\":\"id.room\"}", ".handleKey"),
        Bad(alert + "\"body\":\"x\",\"handleKey\":\"f\",\"fields\":{\"f\":{\"kind\":\"flag\",\"key\":\"f\"}}}", ".fields.f.key"),
        Bad(
            alert
                + "\"body\":\"x\",\"constants\":{\"a\":[{\"b\":\"{f}\"}]},\"fields\":{\"f\":{\"kind\":\"flag\",\"key\":\"f\"}}}",
            ".constants.a[0].b"),
        Bad(alert + "\"body\":\"x\",\"fields\":{\"the field\":{\"kind\":\"flag\",\"key\":\"f\"}}}", ".fields['the field']"),
        Bad(alert + "\"body\":\"x\",\"times\":[60]}", ".times"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"at\":\"soon\"}}", ".times.at"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"at\":1700000000}}", ".times.at"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"aps.at\":60}}", ".times['aps.at']"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"a b\":60}}", ".times['a b']"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"at\":60},\"constants\":{\"at\":null}}", ".times.at"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"at\":60,\"at.most\":60}}", ".times['at.most']"),
        // Constants that aren't an object have no fields.
        Bad(
            alert + "\"body\":\"x\",\"constants\":{\"todo\":null},\"fields\":{\"f\":{\"kind\":\"flag\",\"key\":\"todo.done\"}}}",
            ".fields.f.key"),
        // Apple's rules
        Bad(background + ",\"body\":\"x\"}", ".body"),
        Bad(background + ",\"badge\":0}", ".badge"),
        Bad(alert + "\"badge\":0,\"sound\":\"default\",\"mutable-content\":1}", ".sound", "['mutable-content']"),
        Bad(alert + "\"badge\":0,\"title\":\"x\"}", ".body"), Bad(alert + "\"sound\":\"default\"}", ".body"),
        Bad(alert + "\"badge\":0,\"content-available\":1}", "['content-available']"),
        Bad(background + ",\"sound\":\"default\",\"mutable-content\":1}", ".sound", "['mutable-content']"),
        Bad("{\"pushType\":\"background\",\"priority\":10,\"ttlSeconds\":60}", ".priority"),
        Bad("{\"pushType\":\"voip\",\"priority\":5,\"ttlSeconds\":30}", ".priority"),
        Bad("{\"pushType\":\"voip\",\"priority\":10,\"ttlSeconds\":3600}", ".ttlSeconds"),
        Bad("{\"pushType\":\"voip\",\"priority\":10,\"ttlSeconds\":30,\"title\":\"x\"}", ".title"),
        Bad("{\"pushType\":\"liveactivity\",\"priority\":10,\"ttlSeconds\":30}", ".event"),
        Bad("{\"pushType\":\"liveactivity\",\"priority\":10,\"ttlSeconds\":30,\"event\":\"start\"}", ".event"),
        Bad("{\"pushType\":\"liveactivity\",\"priority\":10,\"ttlSeconds\":30,\"event\":\"end\",\"body\":\"x\"}", ".body"),
        Bad(live + "\"event\":\"update\",\"dismissSeconds\":900}", ".dismissSeconds"),
        Bad(live + "\"event\":\"end\",\"dismissSeconds\":14401}", ".dismissSeconds"),
        Bad(live + "\"event\":\"update\",\"staleSeconds\":0}", ".staleSeconds"),
        Bad(live + "\"event\":\"update\",\"stale-date\":1700000000}", "['stale-date']"),
        Bad(live + "\"event\":\"end\",\"dismissal-date\":1700000000,\"timestamp\":1}", "['dismissal-date']", ".timestamp"),
        // Time
        Bad(live + "\"event\":\"update\",\"sendSlotSeconds\":10}", ".sendSlotSeconds"),
        Bad(alert + "\"body\":\"x\",\"times\":{\"at\":60},\"jitterSeconds\":10}", ".jitterSeconds"),
        Bad(alert + "\"body\":\"x\",\"sendSlotSeconds\":0}", ".sendSlotSeconds"),
        Bad(alert + "\"body\":\"x\",\"sendSlotSeconds\":30,\"jitterSeconds\":30}", ".sendSlotSeconds"),
        Bad(alert + "\"body\":\"x\",\"jitterSeconds\":60}", ".jitterSeconds"),
        Bad(
            "{\"pushType\":\"alert\",\"priority\":10,\"ttlSeconds\":0,\"body\":\"x\",\"sendSlotSeconds\":60,\"jitterSeconds\":60}",
            ".sendSlotSeconds"),
        // Size: the longest words count
        Bad(alert + "\"body\":\"x\",\"subtitle\":\"\(String(repeating: "x", count: 4060))\"}", ""),
        Bad(
            alert
                + "\"body\":\"x\",\"subtitle\":\"{f}\(String(repeating: "x", count: 3980))\",\"fields\":{\"f\":{\"kind\":\"enum\",\"values\":[\"a\",\""
                + String(repeating: "\\\"", count: 40) + "\"]}}}", ""),
        Bad(
            "{\"pushType\":\"voip\",\"priority\":10,\"ttlSeconds\":30,\"constants\":{\"x\":\"\(String(repeating: "y", count: 5100))\"}}",
            ""),
    ]

    // Promise: four-kinds-of-fields
    @Test(arguments: bad) func refusesTemplate(_ bad: Bad) throws {
        #expect(try Policy.lint(rooms(template: bad.template)).map(\.path) == bad.paths)
    }

    @Test func payloadsAtTheLimitPass() throws {
        // {"aps":{"alert":{"body":"x","subtitle":""}}} has 44 bytes. Browsers show no subtitle.
        func template(_ count: Int) -> String {
            Self.alert + "\"body\":\"x\",\"subtitle\":\"\(String(repeating: "x", count: count))\"}"
        }
        let fits = try rooms(template: template(4096 - 44))
        #expect(Policy.lint(fits).isEmpty)
        #expect(try Policy(fits).render("t", handle: Handle(1)).payload.count == 4096)
        let over = Policy.lint(try rooms(template: template(4096 - 43)))
        #expect(over.map(\.path) == ["$.templates.t"])
        #expect(over.first?.problem == "can make a payload of 4097 bytes")
    }

    @Test func oneRunFindsEverything() throws {
        let text = try rooms().replacing("\"min\": 10", with: "\"min\": 0").replacing("\"shortest\": 4", with: "\"shortest\": 1")
            .replacing("\"priority\": 10", with: "\"priority\": 7")
        #expect(
            Policy.lint(Array(text.utf8)).map(\.path) == [
                "$.limits.roomLifeSeconds.min", "$.limits.joinCode.lifeSeconds.min", "$.limits.joinCode.shortest",
                "$.templates.peer_waiting.priority",
            ])
    }

    @Test func aRefusedPolicyThrows() throws {
        let error = #expect(throws: PolicyError.self) { try Policy(rooms("\"shortest\": 4", "\"shortest\": 1")) }
        #expect(error?.findings.count == 1)
        #expect(error?.description.contains("$.limits.joinCode.shortest: is 1, outside 4 to 64") == true)
    }
}

/// Lint returns for any file. Accepted templates render within the computed size.
@Suite struct FuzzTests {
    private static let pieces = [
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "null", "true", "-1", "0", "1", "64", "9223372036854775807",
        "-9223372036854775808",
        "1e400", "0.5", "\"aps\"", "\"aps.alert\"", "\"{f}\"", "\"kind\": \"number\"",
        "\"fields\": {\"f\": {\"kind\": \"flag\", \"key\": \"f\"}},",
        "\"badge\": 7,", "\"times\": {\"t\": 60},", "\"staleSeconds\": 60,", "\"kind\": \"calls\",", "\"sendSlotSeconds\": 60,",
        "\"title\": \"x\",", "\"web\": {\"path\": \"/x\"},", "\"pushType\": \"liveactivity\"", "\"priority\": 5", "é", "\u{0}",
        "\u{feff}",
    ]

    @Test func lintAlwaysReturns() throws {
        var random = SplitMix(state: 11)
        let bases = try Policy.builtInNames.map { Array(try text($0).utf8) }
        var passed = 0
        for round in 0..<1000 {
            var bytes = bases[round % bases.count]
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let start = Int.random(in: 0..<bytes.count, using: &random)
                let end = min(bytes.count, start + Int.random(in: 0..<12, using: &random))
                switch Int.random(in: 0..<4, using: &random) {
                case 0: bytes[start] = UInt8.random(in: .min ... .max, using: &random)
                case 1: bytes.removeSubrange(start..<end)
                case 2: bytes.insert(contentsOf: Array(bytes[start..<end]), at: start)
                default: bytes.replaceSubrange(start..<end, with: (Self.pieces.randomElement(using: &random) ?? "").utf8)
                }
            }
            let findings = Policy.lint(bytes)
            guard findings.isEmpty else {
                #expect(throws: PolicyError.self) { try Policy(bytes) }
                continue
            }
            passed += 1
            for template in try Policy(bytes).templates.values where template.fields.isEmpty {
                let push = try template.render(handle: Handle(.max), nowMs: 1_700_000_000_000)
                #expect(push.payload.count == template.worstCasePayload && push.payload.count <= 4096)
                let message = try template.renderWeb(handle: Handle(.max), nowMs: 1_700_000_000_000, origin: longestOrigin)
                #expect(message?.count == template.web?.worstCase && message?.count ?? 0 <= 1_024)
            }
        }
        // Only changes in white space and texts keep a policy valid.
        #expect(passed > 5 && passed < 500)
    }

    @Test func shortAndLongFilesAreRefused() {
        for count in [0, 1, 2, 100] { #expect(!Policy.lint([UInt8](repeating: 0x7b, count: count)).isEmpty) }
        #expect(Policy.lint([UInt8](repeating: 0x20, count: Policy.maximumCount + 1)).map(\.path) == ["$"])
        #expect(Policy.lint([0xef, 0xbb, 0xbf] + Array("{}".utf8)).map(\.path) == ["$"])
    }
}

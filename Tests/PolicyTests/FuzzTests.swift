import Policy
import Testing
import Vocabulary

/// Whatever a policy file holds, lint answers; what it lets pass can be rendered within the size it promised.
@Suite struct FuzzTests {
    private static let pieces = [
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "null", "true", "-1", "0", "1", "64", "9223372036854775807",
        "-9223372036854775808",
        "1e400", "0.5", "\"aps\"", "\"aps.alert\"", "\"{f}\"", "\"kind\": \"number\"",
        "\"fields\": {\"f\": {\"kind\": \"flag\", \"key\": \"f\"}},",
        "\"badge\": 7,", "\"times\": {\"t\": 60},", "\"staleSeconds\": 60,", "\"kind\": \"calls\",", "\"sendSlotSeconds\": 60,",
        "\"title\": \"x\",", "\"pushType\": \"liveactivity\"", "\"priority\": 5", "é", "\u{0}",
        "\u{feff}",
    ]

    @Test func lintAlwaysAnswers() throws {
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
            }
        }
        // Changes inside spaces and texts leave a good policy; nearly all others must not.
        #expect(passed > 5 && passed < 500)
    }

    @Test func shortAndLongFiles() {
        for count in [0, 1, 2, 100] { #expect(!Policy.lint([UInt8](repeating: 0x7b, count: count)).isEmpty) }
        #expect(Policy.lint([UInt8](repeating: 0x20, count: Policy.maximumCount + 1)).map(\.path) == ["$"])
        #expect(Policy.lint([0xef, 0xbb, 0xbf] + Array("{}".utf8)).map(\.path) == ["$"])
    }
}

import FoundationEssentials
import Policy
import Testing
import Vocabulary

/// The exact payloads of the built-in policy `companion`, and their decoding by an app.
@Suite struct CompanionTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let template: String
        let fields: [String: FieldValue]
        let type: PushType
        let priority, ttl: Int
        let payload: String
        var testDescription: String { template }
    }

    private static let now: UInt64 = 1_767_312_123_456
    private static func handle(_ byte: UInt8) -> FieldValue { .handle(Handle(UInt128(byte) * (.max / 255))) }
    /// The base64url of 16 bytes of 0, of 1 and of 255.
    private static let (none, one, all) = ("AAAAAAAAAAAAAAAAAAAAAA", "AQEBAQEBAQEBAQEBAQEBAQ", "_____________________w")

    private static func alert(_ template: String, _ fields: [String: FieldValue], ttl: Int, _ payload: String) -> Case {
        Case(template: template, fields: fields, type: .alert, priority: 10, ttl: ttl, payload: payload)
    }
    private static func silent(_ template: String, _ fields: [String: FieldValue], _ payload: String) -> Case {
        Case(template: template, fields: fields, type: .background, priority: 5, ttl: 3_600, payload: payload)
    }
    /// Takes the place of an approval's notification without a sound, and wakes the app.
    private static func clearing(_ template: String, _ fields: [String: FieldValue], _ payload: String) -> Case {
        Case(template: template, fields: fields, type: .alert, priority: 5, ttl: 3_600, payload: payload)
    }
    private static func activity(_ template: String, _ fields: [String: FieldValue], priority: Int, ttl: Int, _ payload: String)
        -> Case
    {
        Case(template: template, fields: fields, type: .liveactivity, priority: priority, ttl: ttl, payload: payload)
    }

    static let cases = [
        alert(
            "approval_request", ["requestId": handle(0), "sessionId": handle(1)], ttl: 60,
            #"{"aps":{"alert":{"body":"Open the app to see what it wants to do","subtitle":"A tool waits for you","title":"Approval Needed"},"#
                + #""badge":1,"category":"APPROVAL_REQUEST","interruption-level":"time-sensitive","mutable-content":1,"sound":"default"},"#
                + #""expiresAt":"2026-01-02T00:03:03Z","requestId":"\#(none)","sessionId":"\#(one)","toolName":"Tool","type":"approval"}"#
        ),
        alert(
            "question_asked", ["questionId": handle(0), "sessionId": handle(1)], ttl: 3_600,
            #"{"aps":{"alert":{"body":"Open the app to read it","title":"Your assistant has a question"},"category":"QUESTION_ASKED","#
                + #""mutable-content":1,"sound":"default"},"questionId":"\#(none)","sessionId":"\#(one)","type":"question"}"#),
        alert(
            "task_complete", ["sessionId": handle(1)], ttl: 3_600,
            #"{"aps":{"alert":{"body":"Your assistant finished working","title":"Task Complete"},"category":"TASK_COMPLETE","#
                + #""mutable-content":1,"sound":"default"},"sessionId":"\#(one)","type":"complete"}"#),
        alert(
            "task_failed", ["sessionId": handle(1)], ttl: 3_600,
            #"{"aps":{"alert":{"body":"An error occurred","title":"Task Failed"},"category":"TASK_ERROR","#
                + #""mutable-content":1,"sound":"default"},"sessionId":"\#(one)","type":"error"}"#),
        clearing(
            "clear_approval",
            ["clearApprovalId": handle(255), "requestId": handle(255), "reason": .choice("approved_on_other_device")],
            #"{"aps":{"alert":{"body":"Answered elsewhere"},"content-available":1,"interruption-level":"passive"},"#
                + #""clearApprovalId":"\#(all)","reason":"approved_on_other_device","requestId":"\#(all)","type":"clear_approval"}"#
        ),
        clearing(
            "approval_over", ["clearApprovalId": handle(255), "requestId": handle(255), "reason": .choice("timed_out")],
            #"{"aps":{"alert":{"body":"No longer needed"},"content-available":1,"interruption-level":"passive"},"#
                + #""clearApprovalId":"\#(all)","reason":"timed_out","requestId":"\#(all)","type":"clear_approval"}"#
        ),
        clearing(
            "approval_over", ["clearApprovalId": handle(255), "requestId": handle(255), "reason": .choice("withdrawn")],
            #"{"aps":{"alert":{"body":"No longer needed"},"content-available":1,"interruption-level":"passive"},"#
                + #""clearApprovalId":"\#(all)","reason":"withdrawn","requestId":"\#(all)","type":"clear_approval"}"#
        ),
        silent(
            "clear_session", ["sessionId": handle(1)],
            #"{"aps":{"content-available":1},"sessionId":"\#(one)","type":"clear_session"}"#),
        silent(
            "session_handoff", ["sessionId": handle(1), "handedOffTo": .choice("desktop")],
            #"{"aps":{"content-available":1},"handedOffTo":"desktop","sessionId":"\#(one)","type":"session_handoff"}"#),
        activity(
            "activity_state", ["status": .choice("processing"), "elapsedSeconds": .number(40)], priority: 5, ttl: 300,
            #"{"aps":{"content-state":{"approvalRequest":null,"currentOperation":null,"elapsedSeconds":40,"status":"processing","#
                + #""todoProgress":null},"event":"update","stale-date":1767312423,"timestamp":1767312123}}"#),
        activity(
            "activity_progress", ["elapsedSeconds": .number(86_400), "completed": .number(2), "total": .number(5)],
            priority: 5, ttl: 300,
            #"{"aps":{"content-state":{"approvalRequest":null,"currentOperation":null,"elapsedSeconds":86400,"status":"processing","#
                + #""todoProgress":{"completed":2,"currentTask":null,"total":5}},"event":"update","stale-date":1767312423,"timestamp":1767312123}}"#
        ),
        activity(
            "activity_question", ["elapsedSeconds": .number(0)], priority: 10, ttl: 300,
            #"{"aps":{"content-state":{"approvalRequest":null,"currentOperation":"Waiting for your response","elapsedSeconds":0,"#
                + #""status":"awaitingAnswer","todoProgress":null},"event":"update","stale-date":1767312423,"timestamp":1767312123}}"#
        ),
        activity(
            "activity_approval", ["elapsedSeconds": .number(10), "requestId": handle(0)], priority: 10, ttl: 60,
            #"{"aps":{"content-state":{"approvalRequest":{"requestId":"\#(none)","summary":"Open the app to see what it wants to do","#
                + #""toolName":"Tool"},"currentOperation":null,"elapsedSeconds":10,"status":"awaitingApproval","todoProgress":null},"#
                + #""event":"update","stale-date":1767312423,"timestamp":1767312123}}"#),
        activity(
            "activity_end", ["status": .choice("error")], priority: 10, ttl: 3_600,
            #"{"aps":{"content-state":{"approvalRequest":null,"currentOperation":null,"elapsedSeconds":0,"status":"error","#
                + #""todoProgress":null},"dismissal-date":1767313023,"event":"end","timestamp":1767312123}}"#),
    ]

    // Promise: seed-companion-texts
    @Test(arguments: cases) func payloads(_ given: Case) throws {
        let policy = try builtIn("companion")
        let push = try policy.render(
            given.template, handle: Handle(7 * (.max / 255)), fields: given.fields, nowMs: Self.now)
        #expect(String(decoding: push.payload, as: UTF8.self) == given.payload)
        #expect((push.pushType, push.priority, push.ttlSeconds) == (given.type, given.priority, given.ttl))
        #expect(push.payload.count <= policy.templates[given.template]?.worstCasePayload ?? 0)
    }

    @Test func everyTemplateIsTested() throws {
        #expect(Set(Self.cases.map(\.template)) == Set(try builtIn("companion").templates.keys))
    }

    // MARK: What phones read

    /// A Live Activity's state, as ActivityKit decodes it.
    private struct ContentState: Decodable {
        enum Status: String, Decodable { case idle, processing, awaitingApproval, awaitingAnswer, completed, error }
        struct Progress: Decodable {
            let completed, total: Int
            let currentTask: String?
        }
        struct Request: Decodable { let requestId, toolName, summary: String }

        let status: Status
        let currentOperation: String?
        let elapsedSeconds: Int
        let todoProgress: Progress?
        let approvalRequest: Request?
    }
    private struct Update: Decodable {
        struct APS: Decodable {
            enum CodingKeys: String, CodingKey {
                case timestamp, event
                case state = "content-state"
                case stale = "stale-date"
                case dismissal = "dismissal-date"
            }
            let timestamp: Int
            let event: String
            let state: ContentState
            let stale, dismissal: Int?
        }
        let aps: APS
    }

    @Test(arguments: cases.filter { $0.type == .liveactivity }) func statesDecode(_ given: Case) throws {
        let aps = try JSONDecoder().decode(Update.self, from: Data(given.payload.utf8)).aps
        #expect(aps.timestamp == Int(Self.now / 1_000))
        #expect(aps.event == (given.template == "activity_end" ? "end" : "update"))
        #expect(aps.stale == (aps.event == "end" ? nil : aps.timestamp + 300))
        #expect(aps.dismissal == (aps.event == "end" ? aps.timestamp + 900 : nil))
        #expect((aps.state.approvalRequest != nil) == (aps.state.status == .awaitingApproval))
        #expect((aps.state.todoProgress != nil) == (given.template == "activity_progress"))
        #expect(aps.state.todoProgress?.currentTask == nil)
    }

    /// The values beside `aps`, as in a notification's `userInfo`. Each `type` has its own shape.
    private enum Info: Decodable {
        case approval(requestId: String, toolName: String, expiresAt: String)
        case question(questionId: String, sessionId: String)
        case ended(sessionId: String)
        case clearApproval(clearApprovalId: String, requestId: String, reason: String)
        case clearSession(sessionId: String)
        case handoff(sessionId: String, to: String)

        enum CodingKeys: CodingKey {
            case type, requestId, toolName, expiresAt, questionId, sessionId, clearApprovalId, reason, handedOffTo
        }

        init(from decoder: any Decoder) throws {
            let info = try decoder.container(keyedBy: CodingKeys.self)
            func text(_ key: CodingKeys) throws -> String { try info.decode(String.self, forKey: key) }
            switch try text(.type) {
            case "approval":
                self = .approval(
                    requestId: try text(.requestId), toolName: try text(.toolName),
                    expiresAt: try text(.expiresAt))
            case "question": self = .question(questionId: try text(.questionId), sessionId: try text(.sessionId))
            case "complete", "error": self = .ended(sessionId: try text(.sessionId))
            case "clear_approval":
                self = .clearApproval(
                    clearApprovalId: try text(.clearApprovalId), requestId: try text(.requestId), reason: try text(.reason))
            case "clear_session": self = .clearSession(sessionId: try text(.sessionId))
            case "session_handoff": self = .handoff(sessionId: try text(.sessionId), to: try text(.handedOffTo))
            case let other:
                throw DecodingError.dataCorruptedError(forKey: .type, in: info, debugDescription: other)
            }
        }
    }

    @Test(arguments: cases.filter { $0.type != .liveactivity }) func infoDecodes(_ given: Case) throws {
        switch (given.template, try JSONDecoder().decode(Info.self, from: Data(given.payload.utf8))) {
        case ("approval_request", .approval(Self.none, "Tool", "2026-01-02T00:03:03Z")),
            ("question_asked", .question(Self.none, Self.one)),
            ("task_complete", .ended(Self.one)), ("task_failed", .ended(Self.one)), ("clear_session", .clearSession(Self.one)),
            ("clear_approval", .clearApproval(Self.all, Self.all, "approved_on_other_device")),
            ("approval_over", .clearApproval(Self.all, Self.all, "timed_out")),
            ("approval_over", .clearApproval(Self.all, Self.all, "withdrawn")),
            ("session_handoff", .handoff(Self.one, "desktop")):
            break
        case (_, let info): #expect(Bool(false), "\(given.template) reads as \(info)")
        }
    }
}

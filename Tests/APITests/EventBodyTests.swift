import Broker
import JSON
import Testing

@testable import API

/// Events of sessions: fields that are read, and fields that are dropped.
@Suite struct EventBodyTests {
    private func text(_ type: String?, _ data: String?) -> String {
        let fields = [type.map { "\"type\":\"\($0)\"" }, data.map { "\"data\":\($0)" }].compactMap(\.self)
        return "{\(fields.joined(separator: ","))}"
    }

    private func read(
        _ type: String?, _ data: String? = nil
    ) throws(InvalidRequest) -> (event: CompanionEvent, ownID: [UInt8]?, dropped: [String]) {
        let body = try RequestBody(text(type, data))
        let read = try body.fields { $0.event() }
        return (read.event, read.ownID, body.dropped)
    }

    /// The first error, or nil if there is none.
    private func refusal(_ type: String?, _ data: String? = nil) -> BrokerError? {
        RequestBody.errors(of: text(type, data)) { $0.event() }?.errors[0]
    }

    // MARK: Types

    @Test(arguments: [
        ("approval_request", "{}", CompanionEvent.approvalRequest),
        ("question_asked", "{}", .question),
        ("task_failed", "{}", .complete(success: false)),
        // Any status but success is reported as a failure.
        ("task_complete", "{}", .complete(success: false)),
        ("task_complete", #"{"status":"success"}"#, .complete(success: true)),
        ("task_complete", #"{"status":"error"}"#, .complete(success: false)),
        ("task_complete", #"{"status":null}"#, .complete(success: false)),
        ("task_complete", #"{"status":"completed"}"#, .complete(success: false)),
        ("task_complete", #"{"status":"aborted"}"#, .complete(success: false)),
        ("task_complete", #"{"status":"Success"}"#, .complete(success: false)),
        ("task_complete", #"{"status":""}"#, .complete(success: false)),
        ("task_complete", #"{"status":1}"#, .complete(success: false)),
        ("task_complete", #"{"status":{"success":true}}"#, .complete(success: false)),
        ("claude-complete", #"{"status":"success"}"#, .complete(success: true)),
        ("claude-complete", #"{"status":"aborted"}"#, .complete(success: false)),
        ("claude-complete", #"{"status":"error"}"#, .complete(success: false)),
        ("claude-complete", #"{"status":"failed"}"#, .complete(success: false)),
        ("progress_update", "{}", .progress(SessionProgress())),
        ("progress_update", #"{"elapsedSeconds":0}"#, .progress(SessionProgress(elapsedSeconds: 0))),
        ("progress_update", #"{"elapsedSeconds":77.9}"#, .progress(SessionProgress(elapsedSeconds: 77))),
        ("progress_update", #"{"elapsedSeconds":1e2}"#, .progress(SessionProgress(elapsedSeconds: 100))),
        (
            "progress_update", #"{"todoProgress":{"total":9,"completed":-1},"elapsedSeconds":77}"#,
            .progress(SessionProgress(elapsedSeconds: 77, completed: -1, total: 9))
        ),
        ("progress_update", #"{"todoProgress":null}"#, .progress(SessionProgress())),
        ("progress_update", #"{"todoProgress":{}}"#, .progress(SessionProgress())),
        ("state_change", #"{"newState":"idle"}"#, .state("idle")),
        // The policy lists the allowed words.
        ("state_change", #"{"newState":"\u0061ny"}"#, .state("any")),
        ("state_change", #"{"newState":"idle","previousState":"processing"}"#, .state("idle", before: "processing")),
        ("state_change", #"{"newState":"idle","previousState":7}"#, .state("idle")),
    ])
    func everyTypeIsRead(type: String, data: String, event: CompanionEvent) throws {
        let body = try read(type, data)
        #expect(body.event == event && body.dropped.isEmpty)
    }

    @Test func allListedTypesAreAccepted() throws {
        for type in EventBody.types {
            #expect(refusal(type, #"{"newState":"idle"}"#) == nil, "\(type)")
        }
        for type in EventBody.types where type != "state_change" { #expect(refusal(type) == nil, "\(type) without data") }
    }

    @Test func otherTypesAreRefused() {
        #expect(refusal(nil) == .missingField("type"))
        #expect(refusal(nil, "{}") == .missingField("type"))
        for type in ["", "approval", "Approval_request", "approval_request ", "approval_response", "claude_complete"] {
            #expect(refusal(type)?.field == "type", "\(type)")
        }
    }

    @Test(
        arguments: [
            ("approval_request", #"{"requestId":"r"}"#, "r"), ("approval_request", #"{"id":"r"}"#, "r"),
            ("approval_request", #"{"id":"i","requestId":"r"}"#, "r"), ("approval_request", #"{"requestId":null,"id":"i"}"#, "i"),
            ("approval_request", "{}", nil), ("question_asked", #"{"questionId":"q","id":"i"}"#, "q"),
            ("question_asked", #"{"id":"i"}"#, "i"), ("question_asked", "{}", nil),
        ] as [(String, String, String?)])
    func backEndsOwnIDIsRead(type: String, data: String, id: String?) throws {
        let body = try read(type, data)
        #expect(body.ownID == id.map { Array($0.utf8) } && body.dropped.isEmpty)
    }

    @Test func idOfAnotherTypeIsDropped() throws {
        let question = try read("question_asked", #"{"requestId":"r"}"#)
        #expect(question.ownID == nil && question.dropped == ["data.requestId"])
        let failed = try read("task_failed", #"{"id":7}"#)
        #expect(failed.ownID == nil && failed.dropped == ["data.id"])
    }

    // MARK: Wrong types and ranges

    @Test func allErrorsAreReported() {
        func fields(_ type: String, _ data: String) -> [String] {
            RequestBody.errors(of: text(type, data)) { $0.event() }?.details.map(\.name) ?? []
        }
        let todo = #"{"elapsedSeconds":"1","todoProgress":{"completed":"1","total":[]}}"#
        #expect(
            fields("progress_update", todo) == [
                "data.elapsedSeconds", "data.todoProgress.completed", "data.todoProgress.total",
            ])
        #expect(
            fields("progress_update", #"{"elapsedSeconds":"1","todoProgress":7}"#) == [
                "data.elapsedSeconds", "data.todoProgress",
            ])
        #expect(fields("nothing", "[]") == ["data"])
    }

    @Test(arguments: ["[]", "1", "\"{}\"", "true"]) func dataMustBeAnObject(data: String) {
        for type in EventBody.types { #expect(refusal(type, data) == .wrongType("data", expected: "an object"), "\(type)") }
    }

    @Test(arguments: [
        ("approval_request", #"{"requestId":7}"#, "data.requestId"),
        ("question_asked", #"{"id":["q"]}"#, "data.id"),
        ("progress_update", #"{"elapsedSeconds":"1"}"#, "data.elapsedSeconds"),
        ("progress_update", #"{"elapsedSeconds":true}"#, "data.elapsedSeconds"),
        ("progress_update", #"{"todoProgress":[1,2]}"#, "data.todoProgress"),
        ("progress_update", #"{"todoProgress":"1 of 2"}"#, "data.todoProgress"),
        ("progress_update", #"{"todoProgress":{"completed":"1","total":2}}"#, "data.todoProgress.completed"),
        ("progress_update", #"{"todoProgress":{"completed":1,"total":2.0}}"#, "data.todoProgress.total"),
        ("state_change", #"{"newState":7}"#, "data.newState"),
    ])
    func wrongTypesAreRefused(type: String, data: String, field: String) {
        guard case .wrongType(let named, _)? = refusal(type, data) else {
            Issue.record("\(type) \(data): \(String(describing: refusal(type, data)))")
            return
        }
        #expect(named == field)
    }

    @Test(arguments: [
        ("approval_request", #"{"requestId":""}"#, "data.requestId"),
        ("question_asked", "{\"questionId\":\"\(String(repeating: "q", count: 129))\"}", "data.questionId"),
        ("progress_update", #"{"elapsedSeconds":99999999999999999999}"#, "data.elapsedSeconds"),
        ("progress_update", #"{"todoProgress":{"completed":1,"total":99999999999999999999}}"#, "data.todoProgress.total"),
        ("progress_update", #"{"todoProgress":{"completed":4,"total":3}}"#, "data.todoProgress.completed"),
        ("progress_update", #"{"todoProgress":{"completed":1,"total":0}}"#, "data.todoProgress.completed"),
    ])
    func valuesOutOfRangeAreRefused(type: String, data: String, field: String) {
        guard case .outOfRange(let named, _)? = refusal(type, data) else {
            Issue.record("\(type) \(data): \(String(describing: refusal(type, data)))")
            return
        }
        #expect(named == field)
    }

    @Test func missingCounterpartsAreReported() {
        #expect(refusal("state_change") == .missingField("data.newState"))
        #expect(refusal("state_change", #"{"previousState":"idle"}"#) == .missingField("data.newState"))
        #expect(refusal("progress_update", #"{"todoProgress":{"completed":1}}"#) == .missingField("data.todoProgress.total"))
        #expect(refusal("progress_update", #"{"todoProgress":{"total":1}}"#) == .missingField("data.todoProgress.completed"))
    }

    /// Their values aren't checked.
    @Test func fieldsOfAnotherTypeAreDropped() throws {
        #expect(
            try read("approval_request", #"{"status":7,"newState":[],"elapsedSeconds":"x"}"#).dropped == [
                "data.elapsedSeconds", "data.newState", "data.status",
            ])
        #expect(try read("task_failed", #"{"status":{"a":1}}"#).dropped == ["data.status"])
    }

    @Test(arguments: [
        ("task_complete", #"{"status":"error","status":"success"}"#, "data.status", 51),
        ("state_change", #"{"newState":"idle","newState":"idle"}"#, "data.newState", 51),
        ("progress_update", #"{"todoProgress":{"completed":1,"completed":1,"total":1}}"#, "data.todoProgress.completed", 66),
        ("progress_update", #"{"todoProgress":null,"todoProgress":{}}"#, "data.todoProgress", 56),
        ("approval_request", #"{"id":"a","id":"a"}"#, "data.id", 46),
    ])
    func fieldsThatAreReadAppearOnce(type: String, data: String, field: String, column: Int) {
        #expect(refusal(type, data) == .malformedJSON("line 1, column \(column): the name \(field) is repeated"))
    }

    /// Neither repeated names, nor depth, nor lone surrogates.
    @Test(arguments: [
        #""toolInput":{"a":1,"a":2}"#, #""toolInput":1,"toolInput":2"#, #""toolInput":"\ud83d""#,
        #""toolInput":\#(String(repeating: "[", count: 100_000))\#(String(repeating: "]", count: 100_000))"#,
    ])
    func contentIsNotJudged(_ content: String) throws {
        let body = try read("state_change", "{\(content),\"newState\":\"idle\"}")
        #expect(body.event == .state("idle") && body.dropped == ["data.toolInput"])
    }

    // MARK: Dropped fields

    @Test func namesOfDroppedFieldsAreListed() throws {
        let body = try read(
            "progress_update",
            #"{"zeta":"text","currentOperation":"text","todoProgress":{"total":1,"completed":0,"currentTask":"text"},"elapsedSeconds":1}"#
        )
        #expect(body.dropped == ["data.currentOperation", "data.todoProgress.currentTask", "data.zeta"])
    }

    /// A name could contain content.
    @Test(arguments: [
        "", " ", "two words", "ä", "a.b", "a-b", "a\\u0000b", "a\\nb", String(repeating: "a", count: 33), "😀", "a/b", "\\\"", "[",
        "`", "{", "@",
    ])
    func namesThatCouldBeTextAreNotEchoed(name: String) throws {
        #expect(try read("question_asked", "{\"\(name)\":1}").dropped == ["data.*"])
        #expect(
            try read("progress_update", "{\"todoProgress\":{\"completed\":1,\"total\":2,\"\(name)\":1}}").dropped
                == ["data.todoProgress.*"])
    }

    /// 50,000 names once made an answer longer than the request.
    @Test func manyNamesAreListedInPart() throws {
        let same = String(repeating: ",\"\":0", count: 50_000)
        let todo = try read("progress_update", "{\"todoProgress\":{\"completed\":1,\"total\":2\(same)},\"a\":0,\"a\":1}")
        #expect(todo.dropped == ["data.a", "data.todoProgress.*"])
        let many = (10..<20_000).map { "\"n\($0)\":0" }.joined(separator: ",")
        #expect(try read("task_complete", "{\(many),\"status\":\"success\"}").dropped == (10..<26).map { "data.n\($0)" })
        let both = try read("progress_update", "{\(many),\"todoProgress\":{\(many)}}")
        #expect(both.dropped.count == 2 * RequestBody.mostListed)
        var json = JSONWriter()
        json.add(dropped: both.dropped)
        #expect(
            String(decoding: json.finish(), as: UTF8.self)
                == "{\"dropped\":[\((10..<26).map { "\"data.n\($0)\"" }.joined(separator: ","))]}")
    }

    @Test func plainNamesAreEchoed() throws {
        for name in ["a", "Z9_", "_", "0", String(repeating: "a", count: 32)] {
            #expect(try read("question_asked", "{\"\(name)\":1}").dropped == ["data.\(name)"])
        }
    }
}

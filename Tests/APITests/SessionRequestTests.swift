import Broker
import Sealing
import Testing
import Vocabulary
import WebSocket

@testable import API

/// Messages from sockets of the companion.
@Suite struct SessionRequestTests {
    private static let id = "AAECAwQFBgcICQoLDA0ODw"

    private func read(_ text: String) throws(InvalidRequest) -> SessionRequest {
        try RequestBody(text).fields { SessionRequest($0) }
    }

    private func invalid(_ text: String) -> InvalidRequest? { RequestBody.errors(of: text) { SessionRequest($0) } }

    private func refusal(_ text: String) -> BrokerError? { invalid(text)?.errors[0] }

    @Test func allErrorsAreReported() {
        func fields(_ text: String) -> [String] { invalid(text)?.details.map(\.name) ?? [] }
        let claim = #"{"type":"ping","deviceId":"d","clientType":"watch","pushToken":"0","userId":7}"#
        #expect(fields(claim) == ["userId", "sessionId", "clientType", "pushToken"])
        #expect(fields(#"{"type":"approval_response","pushToken":"0"}"#) == ["requestId", "approved", "pushToken"])
        #expect(fields(#"{"type":"question_asked","sessionId":"","eventId":"","data":7}"#) == ["sessionId", "data", "eventId"])
        #expect(fields(#"{"type":"a name","deviceId":7}"#) == ["deviceId"])
        let text = String(decoding: SocketMessage.refusal(invalid(claim)!, to: "ping"), as: UTF8.self)
        #expect(text.contains(#""details":{"userId":["#) && text.hasPrefix(#"{"type":"error","to":"ping","code":"wrong_type""#))
    }

    @Test func eventIsRead() throws {
        let request = try read(
            #"{"type":"approval_request","sessionId":"s","userId":"u","eventId":"e","data":{"toolName":"x","id":"i"},"summary":"y"}"#
        )
        guard case .event(let event, let session, let eventID, let dropped) = request.kind else {
            Issue.record("\(request.kind)")
            return
        }
        #expect(session == Array("s".utf8) && eventID == Array("e".utf8) && request.user == Array("u".utf8))
        #expect(event.event == .approvalRequest && event.ownID == Array("i".utf8))
        #expect(dropped == ["data.toolName", "summary"])
        #expect(request.claim == nil)
    }

    @Test func eventsNeedASession() {
        for type in EventBody.types {
            #expect(refusal("{\"type\":\"\(type)\",\"data\":{\"newState\":\"idle\"}}") == .missingField("sessionId"), "\(type)")
            #expect(refusal("{\"type\":\"\(type)\",\"sessionId\":\"s\",\"data\":{\"newState\":\"idle\"}}") == nil, "\(type)")
        }
    }

    @Test(arguments: [
        (#"{"type":"ping"}"#, "ping"), (#"{"type":"auth"}"#, "auth"), (#"{"type":"approval_response"}"#, "approval_response"),
        (#"{"type":"task_failed","deviceId":"d"}"#, "task_failed"), (#"{"type":"a name","deviceId":"d"}"#, "claim"),
        (#"{"type":"a name","deviceId":7}"#, "claim"), (#"{"type":"a name"}"#, nil), (#"{"type":"a name","deviceId":null}"#, nil),
        (#"{"deviceId":"d"}"#, "claim"), (#"{"type":null,"deviceId":"d"}"#, "claim"), (#"{"type":7,"deviceId":"d"}"#, nil),
        (#"{"type":7}"#, nil), ("{}", nil), ("a name", nil),
    ])
    func errorsNameOnlyKnownMessages(text: String, name: String?) {
        let found = SessionRequest.name(of: TextMessage(text))
        #expect(found == name, "\(text)")
    }

    @Test func errorsContainRetryAfter() {
        let late = String(
            decoding: SocketMessage.refusal(InvalidRequest([.tooManyRequests(retryAfterSeconds: 7)]), to: "ping"), as: UTF8.self)
        let again = #""error":"Too many requests. Try again in 7 s.","retryAfterSeconds":7}"#
        #expect(late == #"{"type":"error","to":"ping","code":"too_many_requests","# + again)
        let never = String(decoding: SocketMessage.refusal(InvalidRequest([.requestNotFound]), to: nil), as: UTF8.self)
        #expect(never == #"{"type":"error","code":"request_not_found","error":"Request expired or not found"}"#)
    }

    @Test func answerIsRead() throws {
        let request = try read(
            "{\"type\":\"approval_response\",\"requestId\":\"\(Self.id)\",\"approved\":false,\"pushToken\":\"0a0b\"}")
        guard case .answer(let name, let approved, let token) = request.kind else {
            Issue.record("\(request.kind)")
            return
        }
        #expect(
            RequestName(name) == RequestName(id: RequestID(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), own: Array(Self.id.utf8))
                && !approved)
        #expect(token?.withBytes { $0.count == 2 && $0[0] == 10 && $0[1] == 11 } == true)
        #expect(refusal(#"{"type":"approval_response","approved":true}"#) == .missingField("requestId"))
        #expect(refusal("{\"type\":\"approval_response\",\"requestId\":\"\(Self.id)\"}") == .missingField("approved"))
        #expect(refusal("{\"type\":\"approval_response\",\"requestId\":\"\(Self.id)\",\"approved\":1}")?.field == "approved")
        #expect(
            refusal("{\"type\":\"approval_response\",\"requestId\":\"\(Self.id)\",\"approved\":true,\"pushToken\":\"x\"}")
                == .invalidToken("pushToken"))
    }

    @Test(arguments: ["short", id + "A", "AAECAwQFBgcICQoLDA0OD!", "AAECAwQFBgcICQoLDA0ODx", String(repeating: "a", count: 128)])
    func otherIDsAreNamesOfTheBackEnd(text: String) {
        #expect(RequestName(text) == RequestName(own: Array(text.utf8)))
        #expect(RequestName(segment: text[...]) == RequestName(own: Array(text.utf8)))
    }

    /// The answer is the same as for an expired request.
    @Test(arguments: ["", String(repeating: "a", count: 129), "%ff", "%2"]) func invalidNamesMatchNoRequest(text: String) {
        #expect(RequestName(segment: text[...]) == RequestName())
        if !text.hasPrefix("%") { #expect(RequestName(text) == RequestName()) }
    }

    @Test func namesInPathsAreDecoded() {
        #expect(RequestName(segment: "approval%2F1") == RequestName(own: Array("approval/1".utf8)))
    }

    @Test func pingIsRead() throws {
        guard case .ping = try read(#"{"type":"ping"}"#).kind else {
            Issue.record("no ping")
            return
        }
    }

    // MARK: Claims

    @Test func anyMessageCanClaim() throws {
        for message in [
            #"{"type":"ping","sessionId":"s","deviceId":"d","clientType":"web","pushToken":"0a"}"#,
            #"{"type":"whatever they call it","sessionId":"s","deviceId":"d","clientType":"web","pushToken":"0a"}"#,
            #"{"type":"question_asked","sessionId":"s","deviceId":"d","clientType":"web","pushToken":"0a"}"#,
            #"{"sessionId":"s","deviceId":"d","clientType":"web","pushToken":"0a"}"#,
            #"{"type":null,"sessionId":"s","deviceId":"d","clientType":"web","pushToken":"0a"}"#,
        ] {
            let claim = try #require(try read(message).claim)
            #expect(
                claim.session == Array("s".utf8) && claim.device == Array("d".utf8) && claim.type == .web && claim.token != nil)
        }
        #expect(try read(#"{"type":"ping","sessionId":"s","deviceId":"d"}"#).claim?.type == .ios)
        #expect(try read(#"{"type":"ping","sessionId":"s"}"#).claim == nil)
    }

    @Test func incompleteClaimsAreRefused() {
        #expect(refusal(#"{"type":"ping","deviceId":"d"}"#) == .missingField("sessionId"))
        #expect(refusal(#"{"deviceId":"d"}"#) == .missingField("sessionId"))
        #expect(refusal(#"{"sessionId":"s","deviceId":7}"#)?.field == "deviceId")
        #expect(refusal(#"{"sessionId":"s"}"#) == .missingField("type"))
        #expect(refusal(#"{"type":"ping","sessionId":"s","deviceId":""}"#)?.field == "deviceId")
        #expect(refusal(#"{"type":"ping","sessionId":"s","deviceId":"d","clientType":"watch"}"#)?.field == "clientType")
        #expect(refusal(#"{"type":"ping","sessionId":"s","deviceId":"d","pushToken":"0"}"#) == .invalidToken("pushToken"))
        let long = String(repeating: "d", count: 129)
        #expect(refusal("{\"type\":\"ping\",\"sessionId\":\"s\",\"deviceId\":\"\(long)\"}")?.field == "deviceId")
    }

    // MARK: Bad input

    @Test func malformedMessagesAreRefused() {
        for text in ["", "[]", "{} {}"] { #expect(refusal(text)?.code == "malformed_json", "\(text)") }
        #expect(refusal("{}") == .missingField("type"))
        #expect(refusal(#"{"type":7}"#) == .wrongType("type", expected: "a string"))
        // Without a claim, unknown types are refused.
        #expect(refusal(#"{"type":"auth","token":"x"}"#)?.field == "type")
        #expect(refusal(#"{"type":"activity","sessionId":"s"}"#)?.field == "type")
        #expect(refusal(#"{"type":"question_asked","sessionId":"s","data":[]}"#)?.field == "data")
        #expect(refusal(#"{"type":"question_asked","sessionId":7}"#)?.field == "sessionId")
        #expect(refusal(#"{"type":"question_asked","sessionId":"s","eventId":""}"#)?.field == "eventId")
        #expect(refusal(#"{"type":"question_asked","sessionId":"s","userId":[]}"#)?.field == "userId")
    }

    @Test func refusalsEchoNothing() {
        let text = #"{"type":"hunter2","sessionId":"hunter2","deviceId":"hunter2","clientType":"hunter2","pushToken":"hunter2"}"#
        let name = SessionRequest.name(of: TextMessage(text))
        let refusal = SocketMessage.refusal(invalid(text) ?? InvalidRequest([.notFound]), to: name)
        #expect(!String(decoding: refusal, as: UTF8.self).contains("hunter2"))
    }
}

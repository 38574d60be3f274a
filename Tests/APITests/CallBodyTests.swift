import Broker
import Testing

@testable import API

@Suite struct CallBodyTests {
    private func read(_ text: String) -> Result<CallBody, InvalidRequest> {
        Result { () throws(InvalidRequest) in try RequestBody(text).fields { CallBody($0) } }
    }

    /// The webhook of the documentation, with some fields of `data` changed.
    private func body(_ changes: [String: String?] = [:], trigger: String = #""call_initiated""#) -> String {
        var fields: [String: String?] = [
            "id": #""session-uuid""#, "sessionId": #""session-uuid""#, "type": #""video""#,
            "initiator": #"{ "uid": "alice", "name": "Alice" }"#, "receiver": #"{ "uid": "bob", "name": "Bob" }"#,
            "receiverType": #""user""#,
        ]
        fields.merge(changes) { $1 }
        let data = fields.compactMap { name, value in value.map { "\"\(name)\": \($0)" } }.joined(separator: ", ")
        return #"{ "trigger": \#(trigger), "data": { \#(data) } }"#
    }

    private func call(_ text: String) throws -> (CallInvitation, dropped: [String]) {
        let body = try RequestBody(text)
        guard case .call(let invitation) = try body.fields({ CallBody($0) }) else { throw BrokerError.notFound }
        return (invitation, body.dropped)
    }

    private func ignored(_ text: String) -> CallBody.Reason? {
        if case .success(.ignored(let reason)) = read(text) { reason } else { nil }
    }

    private func error(_ changes: [String: String?]) -> BrokerError? {
        if case .failure(let invalid) = read(body(changes)) { invalid.errors[0] } else { nil }
    }

    @Test func documentedWebhookIsRead() throws {
        let (invitation, dropped) = try call(body())
        #expect(
            invitation
                == CallInvitation(
                    session: Array("session-uuid".utf8), caller: Array("alice".utf8), receiver: Array("bob".utf8), media: .video))
        #expect(dropped == ["data.initiator.name", "data.receiver.name"])
        #expect(try call(body(["type": #""audio""#])).0.media == .audio)
    }

    @Test func sessionComesFromEitherField() throws {
        let changed = ["sessionId": #""one""#, "id": #""two""#]
        #expect(try call(body(changed)).0.session == Array("one".utf8))
        for absent in [nil, "null"] as [String?] {
            #expect(try call(body(["sessionId": absent, "id": #""two""#])).0.session == Array("two".utf8))
            #expect(error(["sessionId": absent, "id": nil]) == .missingField("data.id"))
        }
    }

    @Test func onlyTheStartOfACallRings() {
        for trigger in ["call_ended", "call_rejected", "message_sent", "", "CALL_INITIATED", "call_initiated "] {
            #expect(ignored(body(trigger: "\"\(trigger)\"")) == .otherTrigger, "\(trigger)")
        }
        // The rest of an ignored webhook isn't checked.
        #expect(ignored(#"{"trigger":"call_ended","data":7}"#) == .otherTrigger)
    }

    /// They are no errors, because a sender repeats webhooks after errors.
    @Test func otherKindsOfCallsAreIgnored() {
        for type in ["group", "", "User", "users"] {
            #expect(ignored(body(["receiverType": "\"\(type)\"", "receiver": #"{"guid":"g"}"#])) == .groupCall)
        }
        for type in ["screen", "", "VIDEO"] { #expect(ignored(body(["type": "\"\(type)\""])) == .unknownType) }
    }

    @Test func allErrorsAreReported() {
        let text = body(["sessionId": "7", "type": nil, "initiator": "{}", "receiver": "[]", "receiverType": nil])
        guard case .failure(let invalid) = read(text) else { return #expect(Bool(false), "it was accepted") }
        #expect(
            invalid.details.map(\.name) == [
                "data.receiverType", "data.type", "data.sessionId", "data.initiator.uid", "data.receiver",
            ])
    }

    @Test func malformedWebhooksAreRefused() {
        func code(_ text: String) -> String? {
            if case .failure(let invalid) = read(text) { invalid.errors[0].code } else { nil }
        }
        for text in ["", "[]", "{", #"{"trigger":"call_initiated","trigger":"x"}"#, "null", "\u{feff}{}"] {
            #expect(code(text) == "malformed_json", "\(text)")
        }
        #expect(code("{}") == "missing_field" && code(#"{"trigger":7}"#) == "wrong_type")
        #expect(code(#"{"trigger":"call_initiated"}"#) == "missing_field")
        #expect(code(#"{"trigger":"call_initiated","data":[]}"#) == "wrong_type")
        #expect(error(["receiverType": nil]) == .missingField("data.receiverType"))
        #expect(error(["type": nil]) == .missingField("data.type"))
        let twice = error(["initiator": #"{"uid":"a","uid":"b"}"#])
        #expect(twice?.detail.contains("the name data.initiator.uid is repeated") == true)
    }

    @Test(arguments: ["initiator", "receiver"])
    func peopleNeedIDs(_ who: String) {
        let path = "data.\(who)"
        #expect(error([who: nil]) == .missingField(path))
        #expect(error([who: #""bob""#]) == .wrongType(path, expected: "an object"))
        #expect(error([who: "{}"]) == .missingField("\(path).uid"))
        #expect(error([who: #"{"uid":7}"#]) == .wrongType("\(path).uid", expected: "a string"))
        #expect(error([who: #"{"uid":"\ud800"}"#])?.status == 400)
        for uid in ["", String(repeating: "u", count: 129)] {
            #expect(error([who: "{\"uid\":\"\(uid)\"}"]) == .outOfRange("\(path).uid", allowed: "1 to 128 bytes"))
        }
        #expect(error([who: "{\"uid\":\"\(String(repeating: "u", count: 128))\"}"]) == nil)
    }

    @Test func otherFieldsAreDroppedAndListed() throws {
        let text = body([
            "initiator": #"{"uid":"a","avatar":"https://x/y","name":{"uid":"z"}}"#, "note": #""hello""#, "a name, maybe": "1",
        ]).replacing(#""data":"#, with: #""appId": 1, "data":"#)
        #expect(
            try call(text).dropped == [
                "appId", "data.*", "data.initiator.avatar", "data.initiator.name", "data.note", "data.receiver.name",
            ])
    }
}

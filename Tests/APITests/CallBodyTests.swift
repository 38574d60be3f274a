import Broker
import Testing

@testable import API

@Suite struct CallBodyTests {
    private func read(_ text: String) -> Result<CallBody, BrokerError> {
        let bytes = Array(text.utf8)
        return Result { () throws(BrokerError) in try CallBody(bytes.span) }
    }

    /// A webhook as the document shows it, with some of `data` in another form.
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

    private func error(_ changes: [String: String?]) -> BrokerError? {
        if case .failure(let error) = read(body(changes)) { error } else { nil }
    }

    @Test func theDocumentsBodyIsRead() throws {
        let read = try read(body()).get()
        #expect(
            read.invitation
                == CallInvitation(
                    session: Array("session-uuid".utf8), caller: Array("alice".utf8), receiver: Array("bob".utf8), media: .video))
        #expect(read.dropped == ["data.initiator.name", "data.receiver.name"])
        #expect(try self.read(body(["type": #""audio""#])).get().invitation?.media == .audio)
    }

    @Test func aSessionIsNamedByEitherField() throws {
        let changed = ["sessionId": #""one""#, "id": #""two""#]
        #expect(try read(body(changed)).get().invitation?.session == Array("one".utf8))
        for absent in [nil, "null"] as [String?] {
            #expect(try read(body(["sessionId": absent, "id": #""two""#])).get().invitation?.session == Array("two".utf8))
            #expect(error(["sessionId": absent, "id": nil]) == .missingField("data.id"))
        }
    }

    @Test func nothingButACallsBeginningRings() throws {
        for trigger in ["call_ended", "call_rejected", "message_sent", "", "CALL_INITIATED", "call_initiated "] {
            let read = try read(body(trigger: "\"\(trigger)\"")).get()
            #expect(read.invitation == nil && read.dropped.isEmpty, "\(trigger)")
        }
        // Of what rings nothing, nothing else is asked.
        #expect(try read(#"{"trigger":"call_ended","data":7}"#).get().invitation == nil)
    }

    @Test func whatIsNoCallIsRefusedByName() {
        func code(_ text: String) -> String? { if case .failure(let error) = read(text) { error.code } else { nil } }
        for text in ["", "[]", "{", #"{"trigger":"call_initiated","trigger":"x"}"#, "null", "\u{feff}{}"] {
            #expect(code(text) == "malformed_json", "\(text)")
        }
        #expect(code("{}") == "missing_field" && code(#"{"trigger":7}"#) == "wrong_type")
        #expect(code(#"{"trigger":"call_initiated"}"#) == "missing_field")
        #expect(code(#"{"trigger":"call_initiated","data":[]}"#) == "wrong_type")
        for type in ["group", "", "User", "users"] { #expect(error(["receiverType": "\"\(type)\""]) == .groupCall) }
        #expect(error(["receiverType": nil]) == .missingField("data.receiverType"))
        for type in ["screen", "", "VIDEO"] {
            #expect(error(["type": "\"\(type)\""]) == .outOfRange("data.type", allowed: "audio or video"))
        }
        #expect(error(["type": nil]) == .missingField("data.type"))
        #expect(error(["initiator": #"{"uid":"a","uid":"b"}"#]) == .malformedJSON)
    }

    @Test(arguments: ["initiator", "receiver"])
    func peopleHaveIDs(_ who: String) {
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

    @Test func allElseIsDroppedAndNamed() throws {
        let text = body([
            "initiator": #"{"uid":"a","avatar":"https://x/y","name":{"uid":"z"}}"#, "note": #""hello""#, "a name, maybe": "1",
        ]).replacing(#""data":"#, with: #""appId": 1, "data":"#)
        #expect(
            try read(text).get().dropped == [
                "appId", "data.*", "data.initiator.avatar", "data.initiator.name", "data.note", "data.receiver.name",
            ])
    }
}

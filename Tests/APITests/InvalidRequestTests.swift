import Broker
import HTTPServer
import Testing

@testable import API

/// What a client is told of a body that can't be used.
@Suite struct InvalidRequestTests {
    private func answer(_ errors: [BrokerError]) -> String {
        String(decoding: HTTPResponse(InvalidRequest(errors, summary: "Invalid request")).body, as: UTF8.self)
    }

    @Test func eachFieldIsToldWhatIsWrongWithIt() {
        let text = answer([.missingField("apnsToken"), .wrongType("printerPrefix", expected: "a string")])
        #expect(text.contains(#""code":"missing_field","field":"apnsToken","success":false,"error":"Invalid request""#))
        #expect(
            text.contains(
                #""details":{"apnsToken":["The field apnsToken is missing. Add it."],"#
                    + #""printerPrefix":["The field printerPrefix has the wrong type. Send a string."]}"#))
        #expect(answer([.malformedJSON]).contains(#""details":{}"#))
        let plain = String(decoding: HTTPResponse(InvalidRequest([.missingField("joinid")])).body, as: UTF8.self)
        #expect(plain.contains(#""error":"The field joinid is missing. Add it.","details":{"joinid":["#))
    }

    /// Two faults of one field are one name in the answer: names are unique in JSON.
    @Test func aFieldIsNamedOnce() {
        let text = answer([.invalidToken("token"), .outOfRange("token", allowed: "another")])
        #expect(text.ranges(of: #""token":["#).count == 1)
    }

    /// Who may not, or can't be served, is told that alone.
    @Test func aRefusalComesBeforeFaults() throws {
        let body = try RequestBody("{}")
        body.note(.missingField("client"))
        body.note(.noCapability)
        body.note(.notAMember)
        #expect(body.errors == [.noCapability])
        #expect(!String(decoding: HTTPResponse(InvalidRequest(body.errors)).body, as: UTF8.self).contains("details"))
    }

    @Test func whatIsWrongIsGathered() throws {
        let body = try RequestBody(#"{"apnsToken":5,"onStart":"x","ok":true}"#)
        #expect(body.choice("ok") == true)
        #expect(body.choice("nothing") == nil)
        #expect(body.errors.isEmpty)
        let token = body.token("apnsToken", required: true)
        let start = body.choice("onStart")
        let missing = body.text("oldStatus", required: true)
        #expect(token == nil && start == nil && missing == nil)
        #expect(
            body.errors == [
                .wrongType("apnsToken", expected: "a string"), .wrongType("onStart", expected: "true or false"),
                .missingField("oldStatus"),
            ])
    }
}

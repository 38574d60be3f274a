import Broker
import HTTPServer
import Testing

@testable import API

/// What a monitor's client is told of a body that can't be used.
@Suite struct InvalidRequestTests {
    private func answer(_ errors: [BrokerError]) -> String {
        String(decoding: HTTPResponse(InvalidRequest(errors)).body, as: UTF8.self)
    }

    @Test func eachFieldIsToldWhatIsWrongWithIt() {
        let text = answer([.missingField("apnsToken"), .wrongType("printerPrefix", expected: "a string")])
        #expect(text.contains(#""code":"missing_field","field":"apnsToken","success":false,"error":"Invalid request""#))
        #expect(
            text.contains(
                #""details":{"apnsToken":["The field apnsToken is missing. Add it."],"#
                    + #""printerPrefix":["The field printerPrefix has the wrong type. Send a string."]}"#))
        #expect(answer([.malformedJSON]).contains(#""details":{}"#))
    }

    @Test func whatIsWrongIsGathered() {
        let faulty = #"{"apnsToken":5,"onStart":"x","ok":true}"#
        var faults = FieldFaults()
        let bytes = Array(faulty.utf8)
        let span = bytes.span
        guard let body = faults.take({ () throws(BrokerError) in try RequestBody(span) }) else {
            Issue.record("no body")
            return
        }
        #expect(faults.take { () throws(BrokerError) in try body.choice("ok", span) } == true)
        #expect(faults.take { () throws(BrokerError) in try body.choice("nothing", span) } == nil)
        #expect(faults.errors.isEmpty)
        let token = faults.required("apnsToken") { () throws(BrokerError) in try body.token("apnsToken", span) }
        let start = faults.take { () throws(BrokerError) in try body.choice("onStart", span) }
        let missing = faults.required("oldStatus") { () throws(BrokerError) in try body.status("oldStatus", span) }
        #expect(token == nil && start == nil && missing == nil)
        #expect(
            faults.errors == [
                .wrongType("apnsToken", expected: "a string"), .wrongType("onStart", expected: "true or false"),
                .missingField("oldStatus"),
            ])
    }
}

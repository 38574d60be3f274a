import Broker
import HTTP1
import HTTPServer
import JSON
import Policy
import Testing

@testable import API
@testable import Sealing

extension RequestBody {
    convenience init(_ text: String) throws(InvalidRequest) {
        try self.init(of: HTTPRequest(method: .post, target: "/", body: Array(text.utf8)))
    }

    /// Reads a body. Returns its errors, or nil if it is valid.
    static func errors<Value>(of text: String, _ read: (RequestBody) -> Value?) -> InvalidRequest? {
        do throws(InvalidRequest) {
            _ = try RequestBody(text).fields(read)
            return nil
        } catch { return error }
    }
}

@Suite struct RequestBodyTests {
    private let limits: Limits

    init() throws { limits = try Policies([#require(try Policy.builtIn("rooms"))]).rooms }

    private func error(_ text: String, _ read: (RequestBody) -> Void) -> BrokerError? {
        do throws(InvalidRequest) {
            let body = try RequestBody(text)
            read(body)
            return body.errors.first
        } catch { return error.errors[0] }
    }

    // Promise: joinid-range
    @Test func joinidHasFourToSixtyFourVisibleCharacters() {
        func refusal(_ value: String) -> BrokerError? {
            error("{\"joinid\":\(value)}") { _ = $0.joinid(limits) }
        }
        for good in ["\"abcd\"", "\"\(String(repeating: "z", count: 64))\"", "\"!~\\u0041x\""] { #expect(refusal(good) == nil) }
        for bad in ["\"abc\"", "\"\(String(repeating: "z", count: 65))\"", "\"ab cd\"", "\"abcdé\"", "\"abc\\n\"", "\"\""] {
            #expect(refusal(bad)?.code == "out_of_range")
        }
        #expect(refusal("1234")?.code == "wrong_type")
        #expect(refusal("null")?.code == "missing_field")
        #expect(error("{}") { _ = $0.joinid(limits) }?.field == "joinid")
    }

    // Promise: client-range
    @Test func clientsHaveOneToAHundredAndTwentyEightBytes() {
        func refusal(_ value: String) -> BrokerError? {
            error("{\"client1\":\(value)}") { _ = $0.name("client1", required: true) }
        }
        #expect(refusal("\"x\"") == nil)
        #expect(refusal("\"\(String(repeating: "é", count: 64))\"") == nil)
        #expect(refusal("\"\(String(repeating: "é", count: 65))\"")?.code == "out_of_range")
        #expect(refusal("\"\"")?.code == "out_of_range")
        #expect(refusal("7")?.code == "wrong_type")
    }

    @Test func tokensAreEvenHexOfAtMostAHundredBytes() {
        func refusal(_ body: String) -> BrokerError? {
            error(body) { _ = $0.token("client1_token") }
        }
        for good in [
            "{}", "{\"client1_token\":null}", "{\"token\":\"00ff\"}", "{\"client1_token\":\"AB\"}",
            "{\"client1_token\":\"ab\",\"token\":\"AB\"}", "{\"token\":\"\(String(repeating: "a", count: 200))\"}",
        ] {
            #expect(refusal(good) == nil)
        }
        for bad in [
            "\"\"", "\"a\"", "\"abc\"", "\"zz\"", "\"0x00\"", "\"a b \"", "\"\\u0061b\"",
            "\"\(String(repeating: "a", count: 202))\"",
        ] {
            #expect(refusal("{\"client1_token\":\(bad)}") == .invalidToken("client1_token"))
            #expect(refusal("{\"token\":\(bad)}") == .invalidToken("token"))
        }
        #expect(refusal("{\"token\":17}")?.code == "wrong_type")
        #expect(refusal("{\"client1_token\":\"ab\",\"token\":\"cd\"}")?.field == "token")
    }

    // Promise: content-dropped
    @Test func contentIsDroppedAndListed() throws {
        let body = try RequestBody("{\"url\":\"https://x\",\"name\":{\"deep\":1},\"other\":2,\"message\":\"hi\"}")
        #expect(body.dropped == ["message", "name", "url"])
        #expect(try RequestBody(#"{"u\u0072l":1,"url":{},"url\ud800":3,"message":4,"message":5}"#).dropped == ["message", "url"])
    }

    @Test func progressIsRoundedDownToWholePercent() throws {
        func progress(_ value: String) throws -> Int? {
            let body = try RequestBody("{\"progress\":\(value)}")
            let progress = body.percentage("progress")
            if let error = body.errors.first { throw error }
            return progress
        }
        for (text, whole) in [
            ("0", 0), ("100", 100), ("42.5", 42), ("24.999", 24), ("75.0", 75), ("1e2", 100), ("2.5E+1", 25), ("-0", 0),
            ("-0.0", 0), ("1e-400", 0),
        ] { #expect(try progress(text) == whole, "\(text)") }
        #expect(try progress("null") == nil)
        for bad in ["-1", "-0.001", "101", "100.01", "1e400", "-1e400", String(repeating: "9", count: 5_000)] {
            #expect(throws: BrokerError.outOfRange("progress", allowed: "0 to 100")) { try progress(bad) }
        }
        for bad in ["\"50\"", "true", "[50]", "{}"] {
            #expect(throws: BrokerError.wrongType("progress", expected: "a number")) { try progress(bad) }
        }
        for bad in ["NaN", "Infinity", "0x32", "+50", ".5", "5.", "050", "1e"] {
            #expect(error("{\"progress\":\(bad)}") { _ = $0.percentage("progress") }?.code == "malformed_json")
        }
    }

    // Promise: no-secret-in-error-answers
    @Test func errorsNeverContainTheInput() {
        let canary = "c0ffee"
        let errors: [BrokerError?] = [
            error("{\"token\":\"\(canary)z\"}") { _ = $0.onlyToken("token") },
            error("{\"environment\":\"\(canary)\"}") { _ = $0.environment() },
            error("{\"joinid\":\"\(canary) \"}") { _ = $0.joinid(limits) },
            error("{\"member\":\"\(canary)\"}") { _ = $0.member() },
            error("{\"\(canary)\":\(canary)}") { _ in }, error("{\"\(canary)") { _ in }, error("\(canary)") { _ in },
            error("{\"token\":\"\(canary)\",\"token\":\"\(canary)\"}") { _ = $0.onlyToken("token") },
        ]
        for error in errors { #expect(error.map { !$0.detail.contains(canary) } == true) }
    }
}

/// Answers to invalid bodies.
@Suite struct InvalidRequestTests {
    private func answer(_ errors: [BrokerError]) -> String {
        String(decoding: HTTPResponse(InvalidRequest(errors, summary: "Invalid request")).body, as: UTF8.self)
    }

    @Test func detailsContainTheErrorOfEachField() {
        let text = answer([.missingField("apnsToken"), .wrongType("printerPrefix", expected: "a string")])
        #expect(text.contains(#""code":"missing_field","field":"apnsToken","success":false,"error":"Invalid request""#))
        #expect(
            text.contains(
                #""details":{"apnsToken":["The field apnsToken is missing. Add it."],"#
                    + #""printerPrefix":["The field printerPrefix has the wrong type. Send a string."]}"#))
        #expect(answer([.malformedJSON("line 1, column 1: a digit is expected here")]).contains(#""details":{}"#))
        let plain = String(decoding: HTTPResponse(InvalidRequest([.missingField("joinid")])).body, as: UTF8.self)
        #expect(plain.contains(#""error":"The field joinid is missing. Add it.","details":{"joinid":["#))
    }

    /// Names must be unique in JSON, so only the first error of a field is shown.
    @Test func detailsContainEachFieldOnce() {
        let text = answer([.invalidToken("token"), .outOfRange("token", allowed: "another")])
        #expect(text.ranges(of: #""token":["#).count == 1)
    }

    /// If the caller isn't allowed or can't be served, no other error is reported.
    @Test func refusalOutranksFieldErrors() throws {
        let body = try RequestBody("{}")
        body.note(.missingField("client"))
        body.note(.noCapability)
        body.note(.notAMember)
        #expect(body.errors == [.noCapability])
        #expect(!String(decoding: HTTPResponse(InvalidRequest(body.errors)).body, as: UTF8.self).contains("details"))
    }

    @Test func errorsAreCollected() throws {
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

/// Answers while the arena is full.
@Suite struct SlotShortageAnswerTests {
    /// Holds all free slots of the arena.
    private final class TakenSlots {
        private var secrets: [Secret] = []

        init() {
            while let secret = try? Secret(count: 1, fill: { _ in }) { secrets.append(secret) }
        }

        func release() { secrets = [] }
    }

    // Promise: retry-after
    @Test func shortageIs503WithRetryAfter() {
        let answer = HTTPResponse(.overloaded(.exhausted))
        #expect(answer.status == 503)
        #expect(answer.headers.contains { $0.name == "Retry-After" && Int($0.value) != nil })
        #expect(String(decoding: answer.body, as: UTF8.self).contains(#""code":"overloaded""#))
    }

    // Promise: out-of-something-is-not-invalid
    @Test func shortageIsNotReportedAsInvalidField() throws {
        let text = #"{"token":"00ff","member":"\#(Self.secret)","roomid":"\#(Self.secret)"}"#
        let taken = TakenSlots()
        defer { taken.release() }
        for read: (RequestBody) -> Bool in [{ $0.onlyToken("token") != nil }, { $0.member() != nil }, { $0.room() != nil }] {
            let body = try RequestBody(text)
            #expect(!read(body))
            #expect(body.errors == [.overloaded(.exhausted)])
        }
    }

    /// The room exists, so its creator must get its id.
    @Test func answersNeedNoSlot() throws {
        let text = Array(Self.secret.utf8)
        let room = try #require(try RoomID(base64url: text.span))
        let taken = TakenSlots()
        defer { taken.release() }
        var json = JSONWriter()
        json.add("roomid", room)
        json.add("after", true)
        #expect(String(decoding: json.finish(), as: UTF8.self) == #"{"roomid":"\#(Self.secret)","after":true}"#)
    }

    private static let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
}

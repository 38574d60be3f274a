import Broker
import HTTPServer
import JSON
import Testing

@testable import API
@testable import Sealing

/// What callers are told while the arena is full.
@Suite struct SlotShortageAnswerTests {
    private final class Taken {
        private var secrets: [Secret] = []

        init() {
            while let secret = try? Secret(count: 1, fill: { _ in }) { secrets.append(secret) }
        }

        func giveBackAll() { secrets = [] }
    }

    // Promise: retry-after
    @Test func aShortageIs503WithRetryAfter() {
        let answer = HTTPResponse(.overloaded(.exhausted))
        #expect(answer.status == 503)
        #expect(answer.headers.contains { $0.name == "Retry-After" && Int($0.value) != nil })
        #expect(String(decoding: answer.body, as: UTF8.self).contains(#""code":"overloaded""#))
    }

    // Promise: out-of-something-is-not-invalid
    @Test func aFieldThatCanNotBeReadIsNotInvalid() throws {
        let text = #"{"token":"00ff","member":"\#(Self.secret)","roomid":"\#(Self.secret)"}"#
        let taken = Taken()
        defer { taken.giveBackAll() }
        for read: (RequestBody) -> Bool in [{ $0.onlyToken("token") != nil }, { $0.member() != nil }, { $0.room() != nil }] {
            let body = try RequestBody(text)
            #expect(!read(body))
            #expect(body.errors == [.overloaded(.exhausted)])
        }
    }

    /// A room was made, so its maker must get its id.
    @Test func anAnswerIsWrittenWithoutASlot() throws {
        let text = Array(Self.secret.utf8)
        let room = try #require(try RoomID(base64url: text.span))
        let taken = Taken()
        defer { taken.giveBackAll() }
        var json = JSONWriter()
        json.add("roomid", room)
        json.add("after", true)
        #expect(String(decoding: json.finish(), as: UTF8.self) == #"{"roomid":"\#(Self.secret)","after":true}"#)
    }

    private static let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
}

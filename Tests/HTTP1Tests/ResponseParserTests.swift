import HTTP1
import Testing

@Suite struct ResponseParserTests {
    /// Parses one response, byte by byte if `slowly`, and ends the stream.
    func read(_ text: String, head: Bool = false, slowly: Bool = false, limits: MessageLimits = MessageLimits()) -> String {
        let parser = ResponseParser(limits: limits)
        parser.expectNoBody(head)
        let pieces = slowly ? text.utf8.map { [$0] } : [Array(text.utf8)]
        var outcome = ParseOutcome.incomplete
        for piece in pieces where outcome == .incomplete { outcome = parser.parse(piece.span) }
        var suffix = ""
        if outcome == .incomplete {
            outcome = parser.finish()
            suffix = " at end"
        }
        if case .failed(let failure) = outcome { return "\(failure)" }
        let message = parser.takeMessage()
        return "\(message.status) \(bytes(message).body)\(message.keepsAlive ? "" : " close")\(suffix)"
    }

    @Test(arguments: [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 hi"),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "200 "),
        ("HTTP/1.1 204 No Content\r\n\r\n", "204 "),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", "304 "),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", "201 x"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "200 hi"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiXX0\r\n\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: x\r\nExpect: y\r\nContent-Length: 1\r\n\r\nx", "200 x"),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "200 until the end close at end"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 hi close"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", "malformed"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "malformed"),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", "malformed"),
        ("HTTP/1.1 200 OK\r\n: 1\r\n\r\n", "malformed"),
        ("HTTP/1.1 200 OK\r\nA b: 1\r\nContent-Length: 0\r\n\r\n", "malformed"),
        ("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", "malformed"),
        ("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "malformed"),
        ("SSH-2.0-x\r\n", "malformed"),
        ("", "malformed"),
    ])
    func answers(_ text: String, _ expected: String) {
        #expect(read(text) == expected)
        #expect(read(text, slowly: true) == expected)
    }

    @Test func anAnswerToHeadHasNoBody() {
        #expect(read("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", head: true) == "200 ")
    }

    @Test func anAnswerOverTheLimitIsRefused() {
        let limits = MessageLimits(bodyBytes: 4)
        #expect(read("HTTP/1.1 200 OK\r\n\r\nhello", limits: limits) == "bodyTooLarge")
        #expect(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", limits: limits) == "bodyTooLarge")
    }

    /// `HTTP/1.1 000` is no answer, whatever follows.
    @Test(arguments: [("000", nil), ("099", nil), ("200", 200), ("503", 503)] as [(String, Int?)])
    func theStatusOfAFailedBodyIsAFinalOne(_ status: String, _ expected: Int?) {
        let parser = ResponseParser(limits: MessageLimits(bodyBytes: 4))
        let text = Array("HTTP/1.1 \(status) x\r\nContent-Length: 5\r\n\r\nHTTP/1.1 2".utf8)
        var outcome = parser.parse(text.span)
        if outcome == .incomplete { outcome = parser.finish() }
        #expect(outcome == .failed(expected == nil ? .malformed : .bodyTooLarge))
        #expect(parser.statusOfFailedBody == expected)
    }

    @Test func aRefusedResponseStaysRefusedAtTheEnd() {
        let parser = ResponseParser(limits: MessageLimits(targetBytes: 10, headerBytes: 10))
        let text = "HTTP/1.0 200 " + String(repeating: "x", count: 200) + "\r\n\r\nuntil the end"
        #expect(parser.parse(Array(text.utf8).span) == .failed(.headersTooLarge))
        #expect(parser.finish() == .failed(.headersTooLarge))
    }

    @Test func answersFollowEachOther() {
        let parser = ResponseParser()
        let first = Array("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na".utf8)
        let second = Array("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".utf8)
        let input = first + second + [1]
        #expect(parser.parse(input.span) == .complete(consumed: first.count))
        #expect(parser.takeMessage().status == 200)
        #expect(parser.parse(input.span.extracting(first.count..<input.count)) == .complete(consumed: second.count))
        #expect(parser.takeMessage().wantsUpgrade)
    }
}

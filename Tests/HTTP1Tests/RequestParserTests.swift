import Testing

@testable import HTTP1

/// The result of parsing a stream: messages, and the failure that ended it.
struct Reading: Equatable, CustomStringConvertible {
    var messages: [String] = []
    var failure: ParseFailure?
    var phase = ParsePhase.idle
    var description: String { "\(messages) \(failure.map { "\($0)" } ?? "-") \(phase)" }
}

func bytes(_ message: Message) -> (target: String, body: String) {
    func text(_ span: Span<UInt8>) -> String { String(decoding: span.indices.map { span[$0] }, as: UTF8.self) }
    return (message.withTarget(text), message.withBody(text))
}

/// Parses `text` in pieces cut at `cuts`.
func read(_ text: String, cuts: [Int] = [], limits: MessageLimits = MessageLimits()) -> Reading {
    read(bytes: Array(text.utf8), cuts: cuts, limits: limits)
}

func read(bytes input: [UInt8], cuts: [Int] = [], limits: MessageLimits) -> Reading {
    let parser = RequestParser(limits: limits)
    var reading = Reading()
    var start = 0
    for end in cuts + [input.count] {
        var piece = input[start..<end]
        start = end
        while !piece.isEmpty {
            switch parser.parse(Array(piece).span) {
            case .incomplete: piece = []
            case .complete(let consumed):
                piece = piece.dropFirst(consumed)
                let message = parser.takeMessage()
                let (target, body) = bytes(message)
                reading.messages.append("\(message.method) \(target) \(body)\(message.keepsAlive ? "" : " close")")
            case .failed(let failure):
                reading.failure = failure
                reading.phase = parser.phase
                return reading
            }
        }
    }
    reading.phase = parser.phase
    return reading
}

/// Parses the text as a whole, cut in two at every byte, and byte by byte.
func readInAllWays(_ text: String, limits: MessageLimits = MessageLimits()) -> Reading {
    let whole = read(text, limits: limits)
    let count = text.utf8.count
    for cut in 0..<count { #expect(read(text, cuts: [cut], limits: limits) == whole, "cut at \(cut)") }
    #expect(read(text, cuts: Array(1..<max(count, 1)), limits: limits) == whole, "byte by byte")
    return whole
}

@Suite struct RequestParserTests {
    @Test(
        arguments: [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ["get / "]),
            ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", ["get / "]),
            ("GET /a?b=c%20d HTTP/1.1\r\nhOST:a\r\nX: \t y \r\n\r\n", ["get /a?b=c%20d "]),
            ("HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", ["head /x  close"]),
            ("GET / HTTP/1.0\r\n\r\n", ["get /  close"]),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ["get / "]),
            ("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", ["post /p hello"]),
            ("PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", ["put /p "]),
            (
                "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nTrailer: t\r\n\r\n",
                ["post /c hello!"]
            ),
            (
                "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiDELETE /3 HTTP/1.1\r\nHost: a\r\n\r\n",
                ["get /1 ", "post /2 hi", "delete /3 "]
            ),
            ("QUERY /pot HTTP/1.1\r\nHost: a\r\n\r\n", ["other /pot "]),
            ("\r\nM-SEARCH /pot HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", ["other /pot hi"]),
            ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", nil),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil),
            ("QU(ERY /pot HTTP/1.1\r\nHost: a\r\n\r\n", nil),
            ("QUERY  /pot HTTP/1.1\r\nHost: a\r\n\r\n", nil),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\nHost: a\r\n\r\n", nil),
            ("LOCK /pot HTTP/1.1\r\nHost: a\r\n\r\n", ["other /pot "]),
            ("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\nhello", ["post /p hello"]),
            ("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked \r\n\r\n1\r\n!\r\n0\r\n\r\n", ["post /c !"]),
            (
                "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n000A;a=\"b c\"\r\n0123456789\r\n00000;a=b\r\n\r\n",
                ["post /c 0123456789"]
            ),
            (
                // Trailers have no effect, even if their names matter in a head.
                "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 500\r\nHost: b\r\n"
                    + "Connection: close\r\n\r\n",
                ["post /c "]
            ),
            ("GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n", ["get http://a/x "]),
            (
                "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /n HTTP/1.1\r\nHost: a\r\n\r\n",
                ["get /ws ", "get /n "]
            ),
        ] as [(String, [String]?)])
    func messages(_ text: String, _ expected: [String]?) {
        let reading = readInAllWays(text)
        guard let expected else {
            #expect(reading.failure == .malformed)
            return
        }
        #expect(reading == Reading(messages: expected, failure: nil, phase: .idle))
    }

    @Test(arguments: [
        "GET / HTTP/1.1\r\n\r\n",  // no Host
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",  // bare line feeds
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",  // bare carriage return
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rGET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",  // continued header lines
        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\tz\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA b: c\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA b: c\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n: c\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\u{0}b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\u{7f}b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: a\r\n\r\n",
        "GET /\r\n\r\n",  // HTTP/0.9
        "GET HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1\r\nHost: a\r\n\r\n",
        "GET / HTTP/3\r\nHost: a\r\n\r\n",
        "GET / HTTP/-1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / ICE/1.1\r\nHost: a\r\n\r\n",
        "SOURCE / ICE/1.0\r\nHost: a\r\n\r\n",
        "GET / RTSP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\u{c}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n",
        String(repeating: "\u{0}", count: 40),
        "GET /a /b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\u{0} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\t\r\nHost: a\r\n\r\n",
        "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#f HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nauthorization: Bearer a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nX: y\r\nAUTHORIZATION:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://a\r\nX: y\r\norigin: https://a\r\n\r\n",
        // A malformed request is refused before its expectations are checked.
        "GET / HTTP/1.1\r\nExpect: miracles\r\nContent-Encoding: gzip\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}",  // a TLS client
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\ny\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\nC: d\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\ry\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"\n\"\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\u{0}\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: \u{0}\r\n\r\n",
    ])
    func malformed(_ text: String) {
        let reading = readInAllWays(text)
        #expect(reading.failure == .malformed)
        #expect(reading.messages.isEmpty)
        #expect(reading.phase == .failed)
    }

    static let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    @Test(arguments: [
        "1\t0", "2;", "2.0", "1e1", "2 x", "\u{b}2", "2\u{0}", "\u{ff17}", "_1", "NaN", "2,2", "9999999999999999999",
        "18446744073709551615", "18446744073709551616", "18446744073709551618", "0000000000000000000",
    ])
    func lengthsAreDecimalDigits(_ length: String) {
        let reading = readInAllWays("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \(length)\r\n\r\nhi")
        #expect(reading.failure == .malformed)
        #expect(reading.messages.isEmpty)
    }

    @Test(arguments: [
        "gzip", "chunked, gzip", "chunked, chunked", "chunked,", ",chunked", "xchunked", "chunkedx", "chunked;q=1", "\"chunked\"",
        "chunked\u{b}", "\u{b}chunked", "chunked\u{0}", "chunked\t ", "chunk\u{e9}d", "cow", "chunked x", "chunked \u{0}",
        "\r\n chunked",
    ])
    func theOnlyCodingIsChunked(_ coding: String) {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \(coding)\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        let reading = readInAllWays(text)
        #expect(reading.failure == .malformed)
        #expect(reading.messages.isEmpty)
    }

    @Test(arguments: ["", "+5", "g", " 5", "\t5", "5\t", "5 x", "5,", "5\u{0}", "5\u{b}", "5h", "5_0", "10000000000000005"])
    func chunkSizesAreHexadecimalDigits(_ size: String) {
        let reading = readInAllWays(Self.chunked + "\(size)\r\nhello\r\n0\r\n\r\n")
        #expect(reading.failure == .malformed)
        #expect(reading.messages.isEmpty)
    }

    /// RFC 9110 section 5.6.2: the bytes of a field's name.
    @Test func namesHoldTokensOnly() {
        let allowed = Set("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz:".utf8)
        for byte in UInt8.min ... .max where !allowed.contains(byte) {
            #expect(readWithLine(Array("A".utf8) + [byte] + Array("b: c".utf8)).failure == .malformed, "byte \(byte)")
        }
        #expect(readWithLine(Array("A_b: c".utf8)).messages == ["get / "])
    }

    /// RFC 9110 section 5.5: no control bytes but the tab.
    @Test func valuesHoldNoControlBytes() {
        for byte in UInt8.min ... .max {
            let reading = readWithLine(Array("A: b".utf8) + [byte] + Array("c".utf8))
            let isControl = byte != 0x09 && (byte < 0x20 || byte == 0x7F)
            #expect(reading.failure == (isControl ? .malformed : nil), "byte \(byte)")
        }
    }

    func readWithLine(_ line: [UInt8]) -> Reading {
        let input = Array("GET / HTTP/1.1\r\nHost: a\r\n".utf8) + line + Array("\r\n\r\n".utf8)
        let whole = read(bytes: input, limits: MessageLimits())
        #expect(read(bytes: input, cuts: Array(1..<input.count), limits: MessageLimits()) == whole)
        return whole
    }

    /// Every wrong byte in every place of the framing where a CR or an LF belongs.
    @Test(arguments: ["2\r\n{}\r\n0\r\n\r\n", "1;a=b\r\n{\r\n01\r\n}\r\n0\r\n\r\n"])
    func aChunkEndsInCRLFOnly(_ body: String) {
        let good = Array(body.utf8)
        let head = Self.chunked.utf8.count
        #expect(readInAllWays(Self.chunked + body).messages == ["post / {}"])
        for place in good.indices where good[place] == 0x0D || good[place] == 0x0A {
            for byte in UInt8.min ... .max where byte != good[place] {
                var bad = good
                bad[place] = byte
                let input = Array(Self.chunked.utf8) + bad
                let whole = read(bytes: input, limits: MessageLimits())
                #expect(whole.messages.isEmpty, "byte \(byte) at \(place)")
                for cut in [head + place, head + place + 1] {
                    #expect(
                        read(bytes: input, cuts: [cut], limits: MessageLimits()) == whole,
                        "byte \(byte) at \(place), cut at \(cut)")
                }
            }
        }
    }

    @Test(arguments: ["XX", "\n\n", "\r\r", "\rX", "\r0", "0\r", "\n\r", "\n", "\r", "", "X\r\n", " \r\n", "\r\r\n"])
    func otherEndsOfAChunkAreRefused(_ end: String) {
        for text in [
            Self.chunked + "2\r\n{}\(end)0\r\n\r\n",
            Self.chunked + "1\r\n{\r\n1\r\n}\(end)0\r\n\r\n",
        ] {
            let reading = readInAllWays(text)
            #expect(reading.failure == .malformed)
            #expect(reading.messages.isEmpty)
            let second = readInAllWays(Self.chunked + "2\r\n{}\r\n0\r\n\r\n" + text)
            #expect(second.failure == .malformed)
            #expect(second.messages == ["post / {}"])
        }
    }

    @Test func lineEndsInsideAChunkAreItsData() {
        let whole = Self.chunked + "2\r\n\r\n\r\n0\r\n\r\n"
        #expect(
            readInAllWays(whole + whole + "GET / HTTP/1.1\r\nHost: a\r\n\r\n").messages == [
                "post / \r\n", "post / \r\n", "get / ",
            ])
    }

    @Test(
        arguments: [
            ("Expect: 100-continue", nil), ("Expect: 100-CONTINUE\r\nExpect: 100-continue", nil),
            ("Expect: 100-continue, 100-continue", nil), ("Expect: , 100-continue,", nil), ("Expect: ,", .expectationFailed),
            ("Content-Encoding: identity, identity", nil), ("Content-Encoding: identity\r\nContent-Encoding: identity,", nil),
            ("Expect: 200-ok", .expectationFailed),
            ("Expect:", .expectationFailed), ("Expect: 100-continue, x", .expectationFailed),
            ("Expect: x\r\nExpect: 100-continue", .expectationFailed), ("Content-Encoding: identity", nil),
            ("Content-Encoding: Identity", nil), ("Content-Encoding: gzip", .unsupportedEncoding),
            ("Content-Encoding: identity, br", .unsupportedEncoding), ("Content-Encoding:", .unsupportedEncoding),
            ("Content-Encoding: gzip\r\nContent-Encoding: identity", .unsupportedEncoding),
            ("Authorization: Bearer a", nil),
        ] as [(String, ParseFailure?)])
    func checksExpectationsAndEncodings(_ lines: String, _ failure: ParseFailure?) {
        let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\(lines)\r\n\r\n"
        #expect(readInAllWays(text).failure == failure)
        // The next request is checked separately.
        if failure == nil { #expect(readInAllWays(text + text).messages == ["post / ", "post / "]) }
    }

    @Test func contentEncodingsAreTheOwnersIfItDecodesThem() {
        var limits = MessageLimits()
        limits.allowsContentEncoding = true
        let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Encoding: aes128gcm\r\n\r\nx"
        #expect(read(text).failure == .unsupportedEncoding)
        #expect(read(text, limits: limits).messages == ["post / x"])
    }

    @Test func allHeaderLinesAreListedAsSent() {
        let message = Message(method: .post, target: "/", headers: [("Host", "a"), ("TTL", "60"), ("ttl", "0")], body: [1])
        var lines: [String] = []
        message.forEachHeader { name, value in
            let (name, value) = (name.indices.map { name[$0] }, value.indices.map { value[$0] })
            lines.append(String(decoding: name, as: UTF8.self) + "=" + String(decoding: value, as: UTF8.self))
        }
        #expect(lines == ["Host=a", "TTL=60", "ttl=0"])
    }

    @Test func version10GetsNoContinue() {
        let parser = RequestParser()
        let text = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        #expect(parser.parse(Array(text.utf8).span) == .incomplete)
        #expect(!parser.awaitsContinue)
    }

    @Test func chunkSizeOverflowIsRefused() {
        let reading = readInAllWays("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx")
        #expect(reading.failure != nil)
        let most = readInAllWays(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nffffffffffffffff\r\nx")
        #expect(most.failure == .bodyTooLarge)
    }

    static let small = MessageLimits(targetBytes: 10, headerBytes: 40, headerCount: 3, bodyBytes: 5)

    @Test(
        arguments: [
            ("GET /234567890 HTTP/1.1\r\nHost: a\r\n\r\n", nil),
            ("GET /2345678901 HTTP/1.1\r\nHost: a\r\n\r\n", .targetTooLong),
            ("GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nC: 2\r\n\r\n", nil),
            ("GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nC: 2\r\nD: 3\r\n\r\n", .headersTooLarge),
            ("GET / HTTP/1.1\r\nHost: a\r\nB: 78901234567890123456789012\r\n\r\n", nil),
            ("GET / HTTP/1.1\r\nHost: a\r\nB: 789012345678901234567890123\r\n\r\n", .headersTooLarge),
            ("GET / HTTP/1.1\r\nHost: a\r\nBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB", .headersTooLarge),
            ("GET / HTTP/1.1\r\nHost:" + String(repeating: " ", count: 200) + "a\r\n\r\n", .headersTooLarge),
            (String(repeating: "\r\n", count: 100), .headersTooLarge),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", nil),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n", .bodyTooLarge),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", nil),
        ] as [(String, ParseFailure?)])
    func limits(_ text: String, _ failure: ParseFailure?) {
        #expect(readInAllWays(text, limits: Self.small).failure == failure)
    }

    @Test(
        arguments: [
            ("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", nil),
            ("3\r\nhel\r\n3\r\n", .bodyTooLarge),
            ("1;" + String(repeating: "x", count: 200), .bodyTooLarge),
            ("0\r\nA: " + String(repeating: "x", count: 60), .headersTooLarge),
        ] as [(String, ParseFailure?)])
    func chunkedLimits(_ body: String, _ failure: ParseFailure?) {
        let limits = MessageLimits(targetBytes: 10, headerBytes: 60, headerCount: 3, bodyBytes: 5)
        let reading = readInAllWays("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body, limits: limits)
        #expect(reading.failure == failure)
    }

    @Test func bytesAfterAChunkedBodyDoNotCount() {
        let limits = MessageLimits(targetBytes: 10, headerBytes: 60, headerCount: 3, bodyBytes: 5)
        let text = Self.chunked + "2\r\nhi\r\n0\r\nA: b\r\n\r\n"
        let next = String(repeating: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", count: 10)
        let reading = readInAllWays(text + next + text, limits: limits)
        #expect(reading.messages == ["post / hi"] + Array(repeating: "get / ", count: 10) + ["post / hi"])
    }

    @Test func phasesFollowTheMessage() {
        let parser = RequestParser()
        #expect(parser.phase == .idle)
        #expect(parser.parse(Array("\r\n".utf8).span) == .incomplete)
        #expect(parser.phase == .idle)
        #expect(parser.parse(Array("POST / HTT".utf8).span) == .incomplete)
        #expect(parser.phase == .head)
        #expect(
            parser.parse(Array("P/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n".utf8).span) == .incomplete)
        #expect(parser.phase == .body)
        #expect(parser.awaitsContinue)
        #expect(parser.parse(Array("h".utf8).span) == .incomplete)
        #expect(!parser.awaitsContinue)
        #expect(parser.parse(Array("iGET".utf8).span) == .complete(consumed: 1))
        #expect(parser.phase == .complete)
        #expect(bytes(parser.takeMessage()).body == "hi")
        #expect(parser.phase == .idle)
    }

    @Test func headersAreFoundInAnyCaseAndTrailersAreNot() {
        let parser = RequestParser()
        let text =
            "POST / HTTP/1.1\r\nHOST: a\r\nX-One:  1 \r\nx-one: 2\r\nX-Empty:\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Late: 3\r\n\r\n"
        #expect(parser.parse(Array(text.utf8).span) == .complete(consumed: text.utf8.count))
        let message = parser.takeMessage()
        #expect(message.header("host") == "a")
        #expect(message.header("x-one") == "1")
        var all: [Int] = []
        message.forEachHeader("x-one") { all.append(Int($0[0]) - 48) }
        #expect(all == [1, 2])
        #expect(message.header("x-empty") == "")
        #expect(message.header("x-late") == nil)
        #expect(message.headerCount == 5)
    }

    @Test func wipingLeavesNoByte() {
        let message = Message(method: .post, target: "/secret", headers: [("Authorization", "Bearer x")], body: [1, 2, 3])
        message.wipe()
        #expect(bytes(message).target == String(repeating: "\0", count: 7))
        #expect(message.header("authorization") == nil)
        message.withBody { body in #expect(body.count == 3 && body[0] == 0 && body[2] == 0) }
    }

    /// The parser's stored bytes.
    private func held(_ parser: RequestParser) -> [UInt8] {
        let count = unsafe parser.handle.machine.pointee.store.count
        return unsafe parser.handle.machine.pointee.store.withSpan(0..<count) { held in held.indices.map { held[$0] } }
    }

    @Test(arguments: [
        "POST /secret HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer s\r\nContent-Length: 99999\r\n\r\n",
        "POST /secret HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret!!",
        "GET /secret HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n",
        "GET /secret HTTP/1.1\r\nHost: a\r\nX: " + String(repeating: "x", count: 20_000),
    ])
    func aRefusedRequestLeavesNoByte(_ text: String) {
        let parser = RequestParser()
        for byte in text.utf8.dropLast() { _ = parser.parse([byte].span) }
        _ = parser.parse([text.utf8.last!].span)
        #expect(parser.phase == .failed)
        #expect(held(parser).count >= 7)
        #expect(held(parser).allSatisfy { $0 == 0 })
    }

    @Test func anAbandonedRequestLeavesNoByteAndEndsParsing() {
        let parser = RequestParser()
        let text = "POST /secret HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nsecret"
        #expect(parser.parse(Array(text.utf8).span) == .incomplete)
        #expect(held(parser).suffix(6) == Array("secret".utf8)[...])
        parser.abandon()
        #expect(held(parser).count == 33)
        #expect(held(parser).allSatisfy { $0 == 0 })
        #expect(parser.parse([0x21].span) == .failed(.malformed))
        #expect(held(parser).count == 33)
    }

    @Test func findsTokensInLists() {
        func holds(_ text: String) -> Bool { Array(text.utf8).span.listContains("upgrade") }
        #expect(holds("Upgrade"))
        #expect(holds("keep-alive,  UPGRADE\t"))
        #expect(!holds("upgraded"))
        #expect(!holds("up grade"))
        #expect(!holds(""))
    }

    @Test(arguments: [
        "", "a.test", "a.test:", "A-b_c~1:65535", "a%41", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::ffff:127.0.0.1]:8787",
    ])
    func acceptsHost(_ host: String) {
        #expect(read("GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n").messages == ["get / "])
    }

    @Test(
        arguments: [
            "a b", "a,b", "a/b", "a?b", "a#b", "u@a", "a;b", "<a>", "\"a\"", "a\\b", "a%", "a%4", "a%4g", "a\u{e9}", "http://a",
            "a:b", "a:80:80", "::1",
            "[::1", "[]", "[", "[::1]x", "[a.test]", "]",
        ])
    func refusesHost(_ host: String) {
        #expect(readInAllWays("GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n").failure == .malformed)
    }
}

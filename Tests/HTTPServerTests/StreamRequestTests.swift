import HTTP1
import HTTP2
import Testing

@testable import HTTPServer

@Suite struct StreamRequestTests {
    private func isTaken(_ headers: HTTP2Headers) -> Bool {
        if case .taken = StreamRequest(headers, MessageLimits()) { true } else { false }
    }

    @Test(arguments: ["a.test", "a.test:8787", "127.0.0.1", "[::1]:80"])
    func acceptsAuthority(_ authority: String) {
        #expect(isTaken([":method": "GET", ":scheme": "https", ":authority": authority, ":path": "/"]))
        #expect(isTaken([":method": "GET", ":scheme": "https", ":path": "/", "host": authority]))
    }

    @Test(arguments: ["u@a.test", "a:b", "a,b", "a/b", "a b", "[::1", "a\u{e9}"])
    func refusesAuthority(_ authority: String) {
        #expect(!isTaken([":method": "GET", ":scheme": "https", ":authority": authority, ":path": "/"]))
        #expect(!isTaken([":method": "GET", ":scheme": "https", ":path": "/", "host": authority]))
    }

    @Test(arguments: [("0", true), ("16384", true), ("16385", false), ("000016384", true), ("99999999999999999999", false)])
    func contentLengthIsLimited(length: String, isTaken wanted: Bool) {
        #expect(
            isTaken([":method": "POST", ":scheme": "https", ":authority": "a", ":path": "/", "content-length": length]) == wanted)
    }

    /// RFC 9110 section 5.3: lines of one name are one list, in HTTP/2 too.
    @Test(arguments: [
        (["100-continue", "100-continue"], true), (["100-continue, 100-continue"], true), (["100-continue,"], true),
        (["100-continue", "x"], false), (["x", "100-continue"], false), (["100-continue, x"], false), ([""], false),
    ])
    func expectationsAreAList(values: [String], isTaken wanted: Bool) {
        var headers: HTTP2Headers = [":method": "POST", ":scheme": "https", ":authority": "a", ":path": "/"]
        for value in values { headers.append("expect", value) }
        #expect(isTaken(headers) == wanted)
        if case .taken(_, let expectsContinue) = StreamRequest(headers, MessageLimits()) { #expect(expectsContinue) }
    }
}

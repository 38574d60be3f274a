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
}

import HTTP1
import HTTPServer
import Testing

@testable import API

@Suite struct AllowedOriginsTests {
    private let origins = AllowedOrigins(["https://app.example", "http://localhost:3000"])!

    @Test(
        arguments: [
            "https://app.example", "https://app.example:8443", "https://xn--bcher-kva.example", "https://a-1.b",
            "https://192.0.2.1",
            "https://[2001:db8::1]", "https://[2001:db8::1]:8443", "http://localhost", "http://localhost:3000",
            "http://127.0.0.1:8000",
            "http://[::1]:5173",
        ])
    func originsOfBrowsersAreAccepted(_ text: String) { #expect(AllowedOrigins.isOrigin(text)) }

    @Test(
        arguments: [
            "", "*", "null", "https://", "https://*", "https://*.app.example", "app.example", "https://app.example/",
            "https://app.example/path",
            "https://App.example", "HTTPS://app.example", "https://app.example:443", "https://app.example:0",
            "https://app.example:08443",
            "https://app.example:70000", "https://app.example:", "https://user@app.example", "https://app.example?",
            "https://app..example",
            "https://.example", "https://bücher.example", "https://[::1", "https://[localhost]", "https://2001:db8::1",
            "http://app.example",
            "http://192.0.2.1", "http://[2001:db8::1]", "http://localhost:80", "http://localhost.example", "ws://localhost",
            "file://",
            "https://app.example https://b.example", "http://unix:3000", "https://[2001:DB8::1]", "https://[0:0:0:0:0:0:0:1]",
        ])
    func otherTextIsRefused(_ text: String) { #expect(!AllowedOrigins.isOrigin(text)) }

    private func request(_ method: HTTP1.Method = .get, _ headers: (String, String)...) -> HTTPRequest {
        HTTPRequest(method: method, target: "/", headers: headers.map { (name: $0.0, value: $0.1) })
    }

    private func names(_ response: HTTPResponse) -> [String: String] {
        Dictionary(response.headers.map { ($0.name, $0.value) }, uniquingKeysWith: { "\($0), \($1)" })
    }

    @Test func preflightsOfAllowedOriginsAreAnswered() throws {
        let question = request(.options, ("access-control-request-method", "PUT"))
        let answer = try #require(origins.preflight(question, from: "https://app.example"))
        #expect(answer.status == 204)
        #expect(
            names(answer) == [
                "Access-Control-Allow-Origin": "https://app.example",
                "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
                "Access-Control-Allow-Headers": "authorization, content-type", "Access-Control-Max-Age": "7200", "Vary": "Origin",
            ])
        #expect(origins.preflight(question, from: "https://other.example") == nil)
        #expect(origins.preflight(request(.options), from: "https://app.example") == nil)
        #expect(origins.preflight(request(.put, ("access-control-request-method", "PUT")), from: "https://app.example") == nil)
    }

    @Test func onlyAllowedOriginsReadAnswers() {
        func marks(_ origin: String) -> [String: String] {
            var response = HTTPResponse(status: 429, headers: [.init("Retry-After", "5")])
            origins.mark(&response, for: origin)
            return names(response)
        }
        #expect(
            marks("http://localhost:3000") == [
                "Retry-After": "5", "Vary": "Origin", "Access-Control-Allow-Origin": "http://localhost:3000",
                "Access-Control-Expose-Headers": "Retry-After",
            ])
        for origin in [
            "https://other.example", "https://app.example.org", "https://app.example:8443", "http://app.example", "null", "",
        ] {
            #expect(marks(origin) == ["Retry-After": "5", "Vary": "Origin"], "\(origin)")
        }
    }

    @Test func socketsOfForeignPagesAreRefused() {
        func allows(_ origin: String?, _ host: String? = "push.example") -> Bool {
            let headers = [origin.map { ("origin", $0) }, host.map { ("host", $0) }].compactMap { $0 }
            return origins.allowsSocket(
                HTTPRequest(method: .get, target: "/ws", headers: headers.map { (name: $0.0, value: $0.1) }))
        }
        // Programs send no origin. React Native sends that of the broker's own host.
        #expect(allows(nil))
        #expect(allows("https://app.example"))
        #expect(allows("https://push.example"))
        #expect(allows("http://push.example:8787", "push.example:8787"))
        for origin in [
            "https://other.example", "null", "", "https://push.example.org", "https://push.example:1", "ftp://push.example",
        ] {
            #expect(!allows(origin), "\(origin)")
        }
        #expect(!allows("https://", ""))
        #expect(!allows("https://push.example", nil))
    }

    @Test func anEmptyListAllowsNobody() { #expect(AllowedOrigins([]) == nil) }
}

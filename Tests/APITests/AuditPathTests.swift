import HTTP1
import HTTPServer
import Linux
import Testing

@testable import API

@Suite struct AuditPathTests {
    @Test(arguments: [
        "checkpoint", "tile/0/000", "tile/0/x001/x234/067", "tile/0/000.p/5", "tile/entries/000", "tile/entries/x001/067.p/255",
        "policies/\(String(repeating: "a0", count: 32)).json",
    ])
    func namesOfTheLog(_ path: String) { #expect(AuditFiles.isLogPath(path)) }

    // Promise: only-the-ledger-is-served
    @Test(arguments: [
        "", ".", "..", "../mayfly.sqlite", "checkpoint/", "/checkpoint", "tile", "tile/", "tile/0", "tile/../../x", "tile/0/..",
        "tile/0/000/../../../keys/ratchet.key", "tile/0/%2e%2e", "tile/entries/0000", "policies/x.json", "policies/../x.json",
        "policies/\(String(repeating: "A0", count: 32)).json", "ledger.vkey", "tile/0/000.new", "checkpoint.new",
    ])
    func nothingElse(_ path: String) { #expect(!AuditFiles.isLogPath(path)) }

    @Test func onlyNamedProxiesAreBelieved() {
        let proxies = TrustedProxies(hosts: ["127.0.0.1", "10.0.0.2"])
        func origin(_ remote: String, _ header: String?) -> String {
            let request = HTTPRequest(
                method: .get, target: "/", headers: header.map { [("x-forwarded-for", $0)] } ?? [],
                remote: SocketAddress(parsing: remote)!)
            return proxies.origin(of: request).host
        }
        #expect(origin("127.0.0.1:5", "203.0.113.9") == "203.0.113.9")
        #expect(origin("127.0.0.1:5", "198.51.100.1, 203.0.113.9, 10.0.0.2") == "203.0.113.9")
        #expect(origin("192.0.2.1:5", "203.0.113.9") == "192.0.2.1")
        #expect(origin("127.0.0.1:5", "garbage") == "127.0.0.1")
        #expect(origin("127.0.0.1:5", nil) == "127.0.0.1")
        #expect(
            TrustedProxies(hosts: []).origin(
                of: HTTPRequest(method: .get, target: "/", headers: [("x-forwarded-for", "1.2.3.4")])
            ).host == "127.0.0.1")
    }
}

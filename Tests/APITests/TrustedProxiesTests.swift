import HTTP1
import HTTPServer
import Linux
import Testing

@testable import API

@Suite struct TrustedProxiesTests {
    private func trusted(_ text: String) throws -> TrustedProxies {
        try #require(TrustedProxies(text.split(separator: ",").map(String.init)))
    }

    /// Returns the caller of a request that 127.0.0.1 forwarded, as the table's form of its address.
    private func origin(
        _ lines: [(name: String, value: String)], from remote: String = "127.0.0.1:5",
        _ proxies: TrustedProxies? = nil
    ) throws -> String {
        let request = HTTPRequest(
            method: .get, target: "/", headers: lines, remote: try #require(SocketAddress(parsing: remote)))
        return try (proxies ?? trusted("127.0.0.1,10.0.0.2")).origin(of: request).host
    }

    private func origin(_ value: String, from remote: String = "127.0.0.1:5") throws -> String {
        try origin([("x-forwarded-for", value)], from: remote)
    }

    @Test func onlyNamedProxiesAreTrusted() throws {
        #expect(try origin("203.0.113.9") == "203.0.113.9")
        #expect(try origin("198.51.100.1, 203.0.113.9, 10.0.0.2") == "203.0.113.9")
        #expect(try origin("10.0.0.2") == "10.0.0.2")
        #expect(try origin("203.0.113.9", from: "192.0.2.1:5") == "192.0.2.1")
        #expect(try origin([("forwarded", "for=203.0.113.9")], from: "192.0.2.1:5") == "192.0.2.1")
        #expect(try origin([]) == "127.0.0.1")
        #expect(try origin([("x-forwarded-for", "1.2.3.4")], trusted("")) == "127.0.0.1")
    }

    @Test func theFaultOfAWordIsNamed() {
        let named = ["10.0.0.7", "unix"]
        for (word, fault) in [
            ("0.0.0.0/0", "has the prefix /0, which is everybody"), ("::/0", "has the prefix /0"),
            ("10.0.0.0/33", "it must be 1 to 32"),
            ("2001:db8::/129", "it must be 1 to 128"), ("10.0.0.0/", "it must be 1 to 32"), ("10.0.0.7:80", "Leave the port out"),
            ("[2001:db8::1]:80", "Leave the port out"), ("proxy.example", "is neither"), ("", "is neither"),
            ("10.0.0", "is neither"),
        ] {
            #expect(TrustedProxies(named + [word]) == nil)
            let text = TrustedProxies.fault(in: named + [word]) ?? ""
            #expect(text.hasPrefix("number 3 of 3 ") && text.contains(fault), "\(text)")
        }
        #expect(TrustedProxies.fault(in: named) == nil)
    }

    /// Load balancers of clouds and CDNs have changing addresses in known networks.
    @Test func networksMayBeTrusted() throws {
        let proxies = try trusted("127.0.0.1,10.1.0.0/16,2001:DB8:0::/48")
        #expect(try origin([("x-forwarded-for", "203.0.113.9, 10.1.2.3")], proxies) == "203.0.113.9")
        #expect(try origin([("x-forwarded-for", "203.0.113.9, 10.2.0.1")], proxies) == "10.2.0.1")
        #expect(try origin([("x-forwarded-for", "203.0.113.9, [2001:db8::7]:443, ::ffff:10.1.0.1")], proxies) == "203.0.113.9")
        #expect(try origin([("x-forwarded-for", "203.0.113.9")], from: "[2001:db8::1]:5", proxies) == "203.0.113.9")
        for word in ["10.0.0.0/33", "proxy.example", "10.0.0", "10.0.0.1:80", ""] {
            #expect(TrustedProxies([word]) == nil, "\(word)")
        }
    }

    @Test func aProxyMayHaveAUnixSocket() throws {
        let request = HTTPRequest(
            method: .get, target: "/", headers: [("x-forwarded-for", "203.0.113.9")], remote: .unix(""))
        #expect(try trusted("unix").origin(of: request).host == "203.0.113.9")
        #expect(try trusted("127.0.0.1").origin(of: request) == .unix(""))
    }

    /// So that the operator learns of it. What is left of a readable name is the caller's own and says nothing.
    @Test func unnamedCallersAreNoticed() throws {
        let proxies = try trusted("127.0.0.1")
        _ = try origin([("x-forwarded-for", "unknown, 203.0.113.9")], proxies)
        _ = try origin([], proxies)
        _ = try origin([("x-forwarded-for", "unknown")], from: "192.0.2.1:5", proxies)
        #expect(!proxies.hasUnnamedCallers)
        for header in [("x-forwarded-for", "203.0.113.9, unknown"), ("forwarded", "for=_hidden")] {
            let proxies = try trusted("127.0.0.1")
            _ = try origin([header], proxies)
            #expect(proxies.hasUnnamedCallers)
        }
    }

    /// RFC 7239 section 6, and what nginx, HAProxy, Envoy and Cloudflare (an address), Azure's gateway, IIS and AWS (with the port) write.
    @Test(arguments: [
        ("203.0.113.9", "203.0.113.9"), ("203.0.113.9:47011", "203.0.113.9"), ("203.0.113.9:_port", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::1"), ("[2001:db8::1]", "2001:db8::1"), ("[2001:DB8::1]:47011", "2001:db8::1"),
        ("[2001:db8::1]:_x.y-z", "2001:db8::1"), ("\"[2001:db8::1]:47011\"", "2001:db8::1"),
        ("\"203.0.113.9:80\"", "203.0.113.9"), ("2001:db8:1:2:3:4:5:6:47011", "2001:db8:1:2:3:4:5:6"),
        ("::ffff:203.0.113.9", "203.0.113.9"), ("[::ffff:203.0.113.9]:80", "203.0.113.9"), ("fe80::1%eth0", "fe80::1"),
        ("\t203.0.113.9:1 \t", "203.0.113.9"),
    ])
    func everyFormOfAnAddressIsRead(form: String, address: String) throws {
        #expect(try origin(form) == address)
        #expect(try origin("198.51.100.1, \(form)") == address)
        #expect(try origin("198.51.100.1,\(form),10.0.0.2:4711") == address)
        #expect(try origin([("x-forwarded-for", "unknown"), ("x-forwarded-for", form)]) == address)
        let quoted = form.contains("\"") ? form : "\"\(form.filter { $0 != " " && $0 != "\t" })\""
        #expect(try origin([("forwarded", "for=198.51.100.1, for=\(quoted);proto=https")]) == address)
    }

    /// What stands left of such a name was written by the caller, who must not choose whose limits it uses.
    @Test(arguments: [
        "unknown", "Unknown", "_hidden", "_SEVKISEK", "", "-", "unix:", "garbage", "203.0.113.256", "203.0.113.9:",
        "203.0.113.9:999999", "203.0.113.9:80:80", "203.0.113.9 198.51.100.1", "[203.0.113.9]", "[2001:db8::1", "2001:db8::1]",
        "[2001:db8::1]x", "\"203.0.113.9", "fe80::1%", "1:2:3:4:5:6:7:8:9:10", "for=203.0.113.9", "203.0.113.9\u{0}",
    ])
    func whatCannotBeReadCountsAsTheProxy(word: String) throws {
        #expect(try origin("198.51.100.1, \(word)") == "127.0.0.1")
        #expect(try origin("198.51.100.1, \(word), 10.0.0.2") == "10.0.0.2")
        #expect(try origin([("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", word)]) == "127.0.0.1")
        if !word.contains("\"") { #expect(try origin([("forwarded", "for=198.51.100.1, for=\"\(word)\"")]) == "127.0.0.1") }
    }

    @Test(arguments: [
        ("for=203.0.113.9", "203.0.113.9"), ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("proto=http;by=203.0.113.43; FOR = 192.0.2.60", "192.0.2.60"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("proto=http;by=203.0.113.43;for=192.0.2.60", "192.0.2.60"), ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        ("for=203.0.113.9, for=10.0.0.2", "203.0.113.9"), ("for=203.0.113.9,for=unknown", "127.0.0.1"),
        ("for=203.0.113.9, for=\"_gazonk\"", "127.0.0.1"), ("for=203.0.113.9, proto=https", "127.0.0.1"),
        ("for=203.0.113.9;for=198.51.100.1", "127.0.0.1"), ("for=203.0.113.9,", "127.0.0.1"),
        // A caller's open quotation mark hides nothing of what the proxy appends.
        ("for=\"198.51.100.1, for=203.0.113.9", "203.0.113.9"), ("for=\"a;b,c\", for=203.0.113.9", "203.0.113.9"),
        ("for=\"198.51.100.1, for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
        // Nor does a caller's `Host`, which a proxy quotes.
        ("for=203.0.113.9;host=\"a, for=198.51.100.1\"", "203.0.113.9"),
        ("for=203.0.113.9;host=\"a\\\", for=198.51.100.1;x=\\\"b\"", "203.0.113.9"),
        ("for=203.0.113.9;host=\"a\\\\\";by=_x, for=10.0.0.2", "203.0.113.9"), ("for=\"203.0.113.9", "127.0.0.1"),
    ])
    func forwardedIsRead(value: String, address: String) throws {
        #expect(try origin([("forwarded", value)]) == address)
    }

    /// A proxy that writes one of the two passes the caller's other one on.
    @Test func xForwardedForWins() throws {
        #expect(try origin([("forwarded", "for=198.51.100.1"), ("x-forwarded-for", "203.0.113.9")]) == "203.0.113.9")
        #expect(try origin([("x-forwarded-for", "unknown"), ("forwarded", "for=198.51.100.1")]) == "127.0.0.1")
    }

    @Test func linesAreOneList() throws {
        #expect(try origin([("x-forwarded-for", "1.2.3.4, 203.0.113.9"), ("x-forwarded-for", "10.0.0.2")]) == "203.0.113.9")
        #expect(try origin([("forwarded", "for=203.0.113.9"), ("forwarded", "for=10.0.0.2")]) == "203.0.113.9")
    }
}

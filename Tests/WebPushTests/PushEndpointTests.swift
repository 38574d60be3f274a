import Linux
import Sealing
import Sodium
import TLS
import Testing

@testable import WebPush

@Suite struct PushEndpointTests {
    private func read(_ text: String, _ hosts: PushHosts = .public) throws(PushEndpoint.Fault) -> PushEndpoint {
        try PushEndpoint(Array(text.utf8).span, hosts)
    }

    private func reread(_ text: String) -> PushEndpoint? { PushEndpoint(canonical: Array(text.utf8).span) }

    @Test(arguments: [
        ("https://updates.push.services.mozilla.com/wpush/v2/gAAA", "updates.push.services.mozilla.com/wpush/v2/gAAA"),
        ("HTTPS://FCM.googleapis.com:443/fcm/send/a:B", "fcm.googleapis.com/fcm/send/a:B"),
        ("https://ntfy.sh/upABC?up=1", "ntfy.sh/upABC?up=1"), ("https://a.example", "a.example/"),
        ("https://a.example?x", "a.example/?x"), ("https://a.example:/x", "a.example/x"),
        ("https://xn--bcher-kva.example/ü".replacingUmlaut, "xn--bcher-kva.example/%C3%BC"),
        ("https://1.2.3.4.in-addr.example/", "1.2.3.4.in-addr.example/"),
    ])
    func endpointsHaveOneForm(text: String, canonical: String) throws {
        let endpoint = try read(text)
        #expect(endpoint.canonical == canonical)
        #expect(reread(canonical) == endpoint)
        #expect(endpoint.port == 443 && endpoint.origin == "https://" + endpoint.host)
    }

    @Test(arguments: [
        ("", PushEndpoint.Fault.notHTTPS), ("http://a.example/", .notHTTPS), ("https:/a.example/", .notHTTPS),
        ("https://", .notHTTPS), ("ftp://a.example/", .notHTTPS), (" https://a.example/", .malformed), ("https:///x", .malformed),
        ("https://a.example/\u{7f}", .malformed), ("https://a.example/ x", .malformed), ("https://a.example/#x", .malformed),
        ("https://u@a.example/", .malformed), ("https://u:p@a.example/", .malformed),
        ("https://a.example\\@b.example/", .malformed),
        ("https://b\u{fc}cher.example/", .malformed), ("https://a.example:x/", .malformed), ("https://a.example:0/", .malformed),
        ("https://a.example:65536/", .malformed), ("https://[::1/", .malformed), ("https://a.example:8443/", .inward),
        ("https://localhost/", .inward), ("https://a.localhost/", .inward), ("https://printer/", .inward),
        ("https://printer.local/", .inward), ("https://db.internal/", .inward), ("https://nas.home.arpa/", .inward),
        ("https://abc.onion/", .inward), ("https://router.lan/", .inward), ("https://a.example./", .inward),
        ("https://localhost./", .inward), ("https://.example/", .inward), ("https://a..example/", .inward),
        ("https://-a.example/", .inward), ("https://a_b.example/", .inward), ("https://127.0.0.1/", .inward),
        ("https://127.1/", .inward), ("https://2130706433/", .inward), ("https://0x7f000001/", .inward),
        ("https://0x7f.1/", .inward), ("https://017700000001/", .inward), ("https://0177.0.0.1/", .inward),
        ("https://127.0.0.1./", .inward), ("https://[::1]/", .inward), ("https://[::ffff:127.0.0.1]/", .inward),
        ("https://10.0.0.1:443/", .inward), ("https://169.254.169.254/latest/", .inward), ("https://%31%32%37.0.0.1/", .inward),
        ("https://a.example%00.local/", .inward), ("https://0xa9fea9fe/", .inward), ("https://a.0x7f/", .inward),
    ])
    func everySpellingOfAnInwardAddressIsRefused(text: String, fault: PushEndpoint.Fault) {
        #expect(throws: fault) { try read(text) }
    }

    @Test func theLongestHas505Bytes() throws {
        let start = "https://a.example/"
        let longest = start + String(repeating: "x", count: 505 - start.utf8.count)
        #expect(try read(longest).canonical.utf8.count == 497)
        #expect(throws: PushEndpoint.Fault.tooLong) { try read(longest + "x") }
        // The slash that the canonical form adds counts, too.
        let query = "https://a.example?"
        #expect(throws: PushEndpoint.Fault.tooLong) { try read(query + String(repeating: "x", count: 505 - query.utf8.count)) }
    }

    @Test func aListExemptsNamesAndPorts() throws {
        let hosts = try PushHosts(
            """
            # a private ntfy
            ntfy:8443 private ca /etc/ca.pem
            *.push.example
            127.0.0.1:9999 private
            [::1]:9999 private
            """)
        #expect(!hosts.isClosed && hosts.rules.count == 4)
        let ntfy = try read("https://NTFY:8443/up?x", hosts)
        #expect(ntfy.authority == "ntfy:8443" && ntfy.canonical == "ntfy:8443/up?x")
        #expect(hosts.rule("ntfy", 8443)?.isPrivate == true && hosts.rule("ntfy", 8443)?.authority == "/etc/ca.pem")
        #expect(throws: PushEndpoint.Fault.inward) { try read("https://ntfy/up", hosts) }
        #expect(
            hosts.rule("a.push.example", 443) != nil && hosts.rule("push.example", 443) == nil
                && hosts.rule("xpush.example", 443) == nil)
        let v6 = try read("https://[::1]:9999/x", hosts)
        #expect(v6.host == "::1" && v6.canonical == "[::1]:9999/x" && reread(v6.canonical) == v6)
        #expect(try read("https://127.0.0.1:9999/", hosts).port == 9999)
        #expect(hosts.allows("any.example", 443))
        let only = try PushHosts("only\na.example\n")
        // Lines may end as on other systems.
        #expect(try PushHosts("only\r\na.example\r\n") == only)
        #expect(try PushHosts("only\ra.example\r") == only)
        #expect(
            only.isClosed && only.allows("a.example", 443) && !only.allows("b.example", 443) && !only.allows("a.example", 444))
    }

    @Test(arguments: [
        "a b", "a.example ca", "a.example ca x y", "a.example private private", "x\nonly", ":443", "a:0", "a:x", "a/b", "[::1",
        "only\nonly", "ONLY", "only.", "\u{FEFF}only\na.example", "only", "# closed\nonly\n", "only private", "a.example\nOnly",
        "*", "*.",
        "*.a.", ".a", "a..b", "a.*.b", "a_b", "ä.example", "[a.example]", "[::1]x", "https://a.example", "x@a.example",
    ])
    func otherLinesAreRefused(text: String) {
        #expect(throws: PushHosts.Fault.self) { try PushHosts(text) }
    }

    @Test(arguments: [
        "0.0.0.1", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1",
        "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:1ff::1", "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1", "3fff:fff::1", "fc00::1", "fd00::1", "fe80::1", "fec0::1", "ff02::1", "4000::1", "5f00::1",
    ])
    func addressesOfNetworksAreNotGlobal(text: String) throws {
        #expect(try !#require(SocketAddress(numeric: text, port: 443)).isGlobalUnicast)
    }

    @Test(arguments: [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255",
        "172.32.0.1", "192.0.1.1", "192.0.3.1", "192.167.1.1", "198.17.255.255", "198.20.0.0", "203.0.114.1", "223.255.255.255",
        "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2001:200::1", "2001:db9::1", "2003::1", "2606:4700::1", "3ffe::1", "3fff:1000::1",
        "2a00::1",
    ])
    func othersAre(text: String) throws { #expect(try #require(SocketAddress(numeric: text, port: 443)).isGlobalUnicast) }

    /// Else a machine's own address could be called in another spelling.
    @Test(arguments: ["1.2.3.4", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4"])
    func addressesAreComparedWithoutPortAndMapping(text: String) throws {
        let address = try #require(SocketAddress(numeric: text, port: 5))
        #expect(address.bare == SocketAddress(numeric: "1.2.3.4", port: 0))
    }
}

@Suite struct SubscriptionTests {
    private let key = try! ECDHKey()
    private let auth = Sodium.randomBytes(16)

    private func read(
        _ endpoint: String = "https://a.example/x", p256dh: String? = nil, auth: String? = nil
    ) throws -> Subscription {
        let own = key.point
        let point = p256dh ?? Base64.url.encode(own.span)
        let auth = auth ?? Base64.url.encode(self.auth.span)
        return try Subscription(
            endpoint: Array(endpoint.utf8).span, p256dh: Array(point.utf8).span, auth: Array(auth.utf8).span, .public)
    }

    @Test func aSubscriptionIsOneSecret() throws {
        let subscription = try read()
        #expect(subscription.secret.count == 81 + "a.example/x".utf8.count)
        #expect(subscription.endpoint?.canonical == "a.example/x")
        #expect(try read("HTTPS://A.example:443/x").secret == subscription.secret)
        #expect(try read("https://a.example/y").secret != subscription.secret)
        let message = try subscription.encrypt([1, 2, 3])
        let opened = try MessageEncryption.decrypt(message, with: key, auth: auth.span)
        #expect(opened == [1, 2, 3])
        #expect("\(subscription.secret)" == "<redacted>")
    }

    @Test func keysMayBePadded() throws {
        let own = key.point
        let (point, auth) = (Base64.url.encode(own.span), Base64.url.encode(self.auth.span))
        #expect(try read(p256dh: point + "=", auth: auth + "==").secret == read().secret)
        for bad in [point + "==", point + "A", String(point.dropLast()), "", "=", point.replacingFirst(with: "C")] {
            #expect(throws: Subscription.Fault.p256dh) { try read(p256dh: bad) }
        }
        for bad in [auth + "=", auth + "===", auth + "A", String(auth.dropLast()), "", "=="] {
            #expect(throws: Subscription.Fault.auth) { try read(auth: bad) }
        }
        #expect(throws: Subscription.Fault.endpoint(.notHTTPS)) { try read("http://a.example/") }
    }

    @Test func anotherSecretIsNone() throws {
        #expect(Subscription(try Secret.random(32)) == nil)
        let damaged = [UInt8](repeating: 7, count: 100)
        #expect(Subscription(try Secret(copying: damaged.span))?.endpoint == nil)
    }
}

@Suite struct VAPIDKeyTests {
    @Test func tokensVerifyAndShowNoTime() throws {
        let key = try VAPIDKey(ES256.PrivateKey())
        #expect(key.publicKey.utf8.count == 87)
        let token = try key.token(for: "https://a.example", contact: "mailto:ops@chat.example", expiresS: 1_800_000_000)
        let parts = token.split(separator: ".").map(String.init)
        let claims = try #require(Base64.url.decode(parts[1]))
        #expect(
            String(decoding: claims, as: UTF8.self)
                == #"{"aud":"https://a.example","exp":1800000000,"sub":"mailto:ops@chat.example"}"#)
        let point = try key.key.point()
        let other = try ES256.PublicKey(x: Array(point[1...32]), y: Array(point[33...]))
        let signature = try #require(Base64.url.decode(parts[2]))
        let isValid = other.isValid(signature.span, for: Array("\(parts[0]).\(parts[1])".utf8).span)
        #expect(isValid)
    }

    @Test(arguments: [(0, 43_200), (1, 64_800), (21_600, 64_800), (21_601, 86_400)] as [(UInt64, UInt64)])
    func theyEndOnABoundary(now: UInt64, end: UInt64) { #expect(VAPIDKey.expiryS(nowS: now) == end) }

    /// RFC 8292, section 2: no more than a day ahead of the service's clock, and not over.
    @Test func aClockThatIsHoursOffMakesTokensThatAreInForce() {
        for now in stride(from: UInt64(1_800_000_000), to: 1_800_050_000, by: 601) {
            for (behind, ahead) in [(43_199, 0), (0, 21_600)] as [(UInt64, UInt64)] {
                let end = VAPIDKey.expiryS(nowS: now - behind + ahead)
                #expect(end > now && end <= now + 86_400)
            }
        }
    }

    @Test(arguments: ["mailto:ops@chat.example", "https://chat.example", "https://chat.example/contact?x"])
    func contacts(text: String) { #expect(VAPIDKey.isContact(text)) }

    @Test(arguments: [
        "", "ops@chat.example", "mailto:", "mailto:ops", "mailto:@chat.example", "mailto:ops@localhost",
        "mailto:a@b@chat.example",
        "mailto:ops@chat.example\"", "mailto:ops @chat.example", "http://chat.example", "https://", "https://localhost",
        "https://127.0.0.1/",
    ])
    func others(text: String) { #expect(!VAPIDKey.isContact(text)) }
}

extension String {
    fileprivate var replacingUmlaut: String {
        split(separator: "ü", omittingEmptySubsequences: false).joined(separator: "%C3%BC")
    }
    fileprivate func replacingFirst(with character: Character) -> String { String(character) + dropFirst() }
}

extension PushEndpointTests {
    @Test(arguments: [
        ("fcm.googleapis.com", BrowserMaker.google), ("updates.push.services.mozilla.com", .mozilla),
        ("web.push.apple.com", .apple),
        ("wns2-am3p.notify.windows.com", .microsoft), ("a.b.notify.windows.com", nil), ("notify.windows.com", nil),
        ("x.push.apple.com", nil), ("x.push.services.mozilla.com", nil), ("xfcm.googleapis.com", nil),
        ("fcm.googleapis.com.example", nil),
    ])
    func onlyTheMakersOwnHostsAreTheirs(host: String, maker: BrowserMaker?) {
        #expect(BrowserMaker(host: host) == maker)
    }

    /// An address that was taken while a list allowed it is not served without that line.
    @Test func aRemovedLineEndsItsException() throws {
        let list = try PushHosts("10.0.0.5:8443 private\nntfy.lan:8443 private")
        for host in ["10.0.0.5", "ntfy.lan"] {
            #expect(list.stillAllows(host, 8443) && !PushHosts.public.stillAllows(host, 8443))
        }
        #expect(!PushHosts.public.stillAllows("10.0.0.5", 443) && !PushHosts.public.stillAllows("push.example", 8443))
        #expect(PushHosts.public.stillAllows("push.example", 443))
        let closed = try PushHosts("only\nntfy.lan")
        #expect(!closed.stillAllows("push.example", 443) && closed.stillAllows("ntfy.lan", 443))
    }

    @Test(arguments: [
        ("https://fcm.googleapis.com/fcm/send/a?1", "fcm.googleapis.com/fcm/send/a"), ("https://ntfy.sh/a?up=1", "ntfy.sh/a"),
        ("HTTPS://NTFY.sh/a", "ntfy.sh/a"), ("https://ntfy.sh:443/a", "ntfy.sh/a"), ("https://ntfy.sh:/a?", "ntfy.sh/a"),
        ("https://wns2.notify.windows.com/w?token=a", "wns2.notify.windows.com/w?token=a"),
        ("https://wns2.notify.windows.com//w/?token=/./%61", "wns2.notify.windows.com/w?token=/./%61"),
        ("https://ntfy.sh//a", "ntfy.sh/a"), ("https://ntfy.sh/./a/", "ntfy.sh/a"), ("https://ntfy.sh/x/%2E%2e/a", "ntfy.sh/a"),
        ("https://ntfy.sh/../../a", "ntfy.sh/a"), ("https://ntfy.sh/%61%7e", "ntfy.sh/a~"),
        ("https://ntfy.sh/%2fa%", "ntfy.sh/%2Fa%"),
        ("https://ntfy.sh/%2561", "ntfy.sh/%2561"), ("https://ntfy.sh/a%3f", "ntfy.sh/a%3F"), ("https://ntfy.sh", "ntfy.sh/"),
    ])
    func anotherSpellingBuysNoSecondBudget(text: String, name: String) throws {
        let (endpoint, point) = (Array(text.utf8), try ECDHKey().point)
        let key = Array(Base64.url.encode(point.span).utf8)
        let auth = Array(Base64.url.encode(Sodium.randomBytes(16).span).utf8)
        let subscription = try Subscription(endpoint: endpoint.span, p256dh: key.span, auth: auth.span, .public)
        #expect(String(decoding: subscription.budgetName, as: UTF8.self) == name)
    }
}

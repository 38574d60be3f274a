import Broker
import HTTP1
import HTTPServer
import Sealing
import TLS
import Vocabulary
import WebPush

@testable import API

/// A browser's subscription in a token field, and the URL in it. The input is read as either.
enum EndpointFuzz {
    static func run(_ input: [UInt8]) {
        for hosts in [PushHosts.public, listed] {
            if let endpoint = try? PushEndpoint(input.span, hosts) { check(endpoint, hosts) }
        }
        readField(input)
    }

    private static let listed: PushHosts = {
        guard let hosts = try? PushHosts("127.0.0.1:8443 private\n*.lan:9000 private\n[::1]\nlocalhost") else {
            fatalError("the list")
        }
        return hosts
    }()

    private static func check(_ endpoint: PushEndpoint, _ hosts: PushHosts) {
        let canonical = Array(endpoint.canonical.utf8)
        let url = Array("https://".utf8) + canonical
        require(PushEndpoint(canonical: canonical.span) == endpoint, "what is sealed is what was read")
        require((try? PushEndpoint(url.span, hosts)) == endpoint, "one form of an endpoint")
        require(url.count <= PushEndpoint.longest, "a length that fits its row")
        require(endpoint.target.hasPrefix("/") && url.allSatisfy { (0x21...0x7e).contains($0) }, "a line of a request")
        if hosts.rule(endpoint.host, endpoint.port) != nil { return }
        require(endpoint.port == 443, "no port of an inward service")
        require(!isNumeric(endpoint.host) && !endpoint.host.contains(":"), "no address in any spelling")
        require(endpoint.host.contains(".") && !endpoint.host.hasSuffix("."), "a name of two labels or more")
        require(endpoint.host == endpoint.host.lowercased(), "one spelling of a host")
    }

    /// True for what resolvers read as an IPv4 address (`inet_aton`): up to four numbers, each decimal, octal or hexadecimal.
    private static func isNumeric(_ host: String) -> Bool {
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        return parts.count <= 4
            && parts.allSatisfy { $0.hasPrefix("0x") ? UInt64($0.dropFirst(2), radix: 16) != nil : UInt64($0) != nil }
    }

    private static let settings: Broker.Settings = {
        guard let key = try? ES256.PrivateKey(), let vapid = try? VAPIDKey(key) else { fatalError("a key") }
        var settings = Broker.Settings(
            topic: "com.example.app", environment: .production, addressSize: .anyService, bundleID: { _ in nil },
            serves: { _, _, _ in true })
        settings.webPush = WebPushService(
            keys: [vapid], contact: "mailto:ops@chat.example", origin: "https://app.example", hosts: .public)
        settings.subscribable = settings.webPush
        return settings
    }()

    private static func readField(_ input: [UInt8]) {
        guard let body = try? RequestBody(of: HTTPRequest(method: .post, target: "/", body: input)),
            let address = body.address("client1_token", .alert, of: settings), case .webPush = address.destination
        else { return }
        require(body.errors.isEmpty, "no subscription beside an error")
        require(PushAddress.subscriptionCounts.contains(address.token.count), "an address that fits its row")
        guard let endpoint = Subscription(address.token)?.endpoint else { fatalError("an endpoint to send to") }
        check(endpoint, .public)
        require(body.device("client1_token") == address.device, "the name of its device")
    }
}

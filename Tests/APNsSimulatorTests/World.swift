import EventLoop
import HTTP2
import Linux
import TLS

@testable import APNsSimulator

let device = String(repeating: "ab", count: 32)
let payload = #"{"aps":{"alert":"x"}}"#

/// A simulator on a loop of its own, with credentials for its clients.
final class World: Sendable {
    let loop: EventLoop
    let simulator: APNsSimulator
    let address: SocketAddress
    let control: SocketAddress?
    let browsers: SocketAddress?
    let certificate: SelfSignedCertificate
    let bearer: String
    let provider: TestProvider

    init(isSandbox: Bool = true, _ change: (inout APNsSimulator.Configuration, TestProvider) throws -> Void = { _, _ in })
        async throws
    {
        loop = try EventLoop(name: "apns")
        try loop.start()
        certificate = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1)
        provider = try TestProvider()
        bearer = "bearer " + (try provider.token(iat: Clock.wallMs / 1000))
        var configuration = APNsSimulator.Configuration(
            listen: .v4(0x7f00_0001, port: 0), control: .v4(0x7f00_0001, port: 0), certificateChain: certificate.certificate,
            privateKey: certificate.privateKey, keys: [try provider.providerKey()], isSandbox: isSandbox)
        try change(&configuration, provider)
        simulator = try APNsSimulator(configuration, loop: loop)
        let addresses = try await simulator.start()
        (address, control, browsers) = (addresses.apns, addresses.control, addresses.browsers)
    }

    deinit {
        loop.stop()
        if !loop.isCurrent { loop.join() }
    }

    func client(alpn: [String] = ["h2"], identity: ClientCertificate? = nil) async throws -> TestClient {
        let client = try TestClient(
            to: address, certificate: certificate.certificate, alpn: alpn, identity: identity, loop: loop)
        try await client.open()
        return client
    }

    func headers(_ changes: [String: String] = [:], device: String = device) -> HTTP2Headers {
        var fields = [
            "authorization": bearer, "apns-topic": "org.example.app", "apns-push-type": "alert", "apns-priority": "10",
            "apns-expiration": "0",
        ]
        fields.merge(changes) { $1 }
        var headers = HTTP2Headers(capacity: 512)
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":path", "/3/device/" + device)
        headers.append(":authority", "127.0.0.1")
        for (name, value) in fields { headers.append(name, value) }
        return headers
    }
}

/// A provider with key KEY0000001 of team TEAM000001.
struct TestProvider {
    static let keyID = "KEY0000001"
    static let teamID = "TEAM000001"
    let key: ES256.PrivateKey

    init() throws { key = try ES256.PrivateKey() }

    func providerKey(
        _ keyID: String = keyID, team: String = teamID, _ bundleIDs: [String] = ["org.example.app"],
        environments: Set<APNsEnvironment> = Set(APNsEnvironment.allCases)
    ) throws -> ProviderKey {
        ProviderKey(
            keyID: keyID, teamID: team, publicKey: try publicKey(), bundleIDs: bundleIDs, environments: environments)
    }

    /// A JWT with another key id or team, signed with this key.
    func token(iat: UInt64, keyID: String, team: String = teamID) throws -> String {
        try token(
            iat: iat, header: #"{"alg":"ES256","kid":"\#(keyID)"}"#, claims: #"{"iss":"\#(team)","iat":\#(iat)}"#)
    }

    func publicKey() throws -> ES256.PublicKey {
        let pem = try key.publicKeyPEM()
        return try ES256.PublicKey(pem: pem.span)
    }

    /// A JWT issued at `iat` (unix seconds).
    func token(
        iat: UInt64, header: String = #"{"alg":"ES256","kid":"KEY0000001"}"#, claims: String? = nil
    ) throws -> String {
        let claims = claims ?? #"{"iss":"TEAM000001","iat":\#(iat)}"#
        let signed = Self.base64URL(Array(header.utf8)) + "." + Self.base64URL(Array(claims.utf8))
        let message = Array(signed.utf8)
        let signature = try key.sign(message.span)
        return signed + "." + Self.base64URL(signature)
    }

    static func base64URL(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var out: [UInt8] = []
        var bits: UInt32 = 0
        var held: UInt32 = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            held += 8
            while held >= 6 {
                held -= 6
                out.append(alphabet[Int(bits >> held & 63)])
            }
        }
        if held > 0 { out.append(alphabet[Int(bits << (6 - held) & 63)]) }
        return String(decoding: out, as: UTF8.self)
    }
}

/// A mutable request.
struct Draft {
    var method = "POST"
    var path = "/3/device/00"
    var fields: [(name: String, value: String)] = []
    var body = #"{"aps":{}}"#

    var request: PushRequest {
        var block: HTTP2Headers = [":method": method, ":scheme": "https", ":path": path]
        for (name, value) in fields { block.append(name, value) }
        return PushRequest(block, body: Array(body.utf8))
    }
}

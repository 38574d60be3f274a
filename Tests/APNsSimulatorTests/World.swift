import EventLoop
import HTTP2
import Linux
import TLS

@testable import APNsSimulator

let device = String(repeating: "ab", count: 32)
let payload = #"{"aps":{"alert":"x"}}"#

/// A simulator on a loop of its own, and what its clients need.
final class World: Sendable {
    let loop: EventLoop
    let simulator: APNsSimulator
    let address: SocketAddress
    let control: SocketAddress?
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
            privateKey: certificate.privateKey,
            keyID: TestProvider.keyID, teamID: TestProvider.teamID, publicKey: try provider.publicKey(),
            bundleID: "org.example.app", isSandbox: isSandbox)
        try change(&configuration, provider)
        simulator = try APNsSimulator(configuration, loop: loop)
        let addresses = try await simulator.start()
        (address, control) = (addresses.apns, addresses.control)
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

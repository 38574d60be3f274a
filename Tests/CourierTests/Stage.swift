import EventLoop
import Linux
import Sealing
import Synchronization
import TLS
import Vocabulary

@testable import Courier

/// A courier and a scripted server on one loop, with short time-outs.
struct Stage {
    let loop: EventLoop
    let server: ScriptedServer
    let courier: Courier
    let alarms = Alarms()
    let issued = IssuedTokens()

    /// Looks until `condition` holds, for two seconds at most.
    func comes(_ condition: () async -> Bool) async -> Bool {
        for _ in 0..<400 {
            if await condition() { return true }
            try? await loop.sleep(5)
        }
        return await condition()
    }

    final class Alarms: Sendable {
        private let list = Mutex<[Alarm]>([])
        func add(_ alarm: Alarm) { list.withLock { $0.append(alarm) } }
        var all: [Alarm] { list.withLock { $0 } }
    }

    final class IssuedTokens: Sendable {
        private let list = Mutex<[UInt64]>([])
        func add(_ token: UInt64) { list.withLock { $0.append(token) } }
        var all: [UInt64] { list.withLock { $0 } }
    }

    typealias Resolver = @Sendable (Endpoint) -> [SocketAddress]

    /// The bundle ids in these tests that no account lists.
    static let apps: Set = [
        "example.app", "com.one", "com.other", "com.two.7", "few", "good", "hangs", "many", "other.app", "wrong.app",
    ]

    static let identity = try! SelfSignedCertificate.make(names: ["localhost", "127.0.0.1"], days: 1)
    static let key = try! ES256.PrivateKey()

    static let timing = Timing(
        connectMs: 1000, nextAddressMs: 50, nextAddressConnectedMs: 150, requestMs: 150, lateMs: 50, pingMs: 400, tickMs: 5,
        retry: Backoff(firstMs: 20, longestMs: 200), reconnect: Backoff(firstMs: 10, longestMs: 100))

    /// Plays `body` against `script`.
    static func play(
        firstStreams: UInt32 = 1, onePiece: Bool = true, greeting: [ScriptedServer.Act] = [],
        manner: ScriptedServer.Manner = .http2, timing: Timing = timing, trust: [UInt8] = identity.certificate,
        host: String = "127.0.0.1", stored: UInt64? = nil,
        resolver: Resolver? = nil, accounts: [Account]? = nil,
        script: @escaping ScriptedServer.Script, wallMs: (@Sendable () -> UInt64)? = nil,
        proxy: Proxy? = nil, _ body: (Stage) async throws -> Void
    ) async throws {
        let stage = try Stage(
            firstStreams, onePiece, greeting, manner, timing, trust, host, stored, resolver, accounts,
            script, wallMs, proxy)
        try stage.loop.start()
        try await stage.server.start()
        try await body(stage)
        await stage.courier.stop(withinMs: 200)
        await stage.server.stop()
        stage.loop.stop()
    }

    private init(
        _ firstStreams: UInt32, _ onePiece: Bool, _ greeting: [ScriptedServer.Act], _ manner: ScriptedServer.Manner,
        _ timing: Timing, _ trust: [UInt8], _ host: String, _ stored: UInt64?,
        _ resolver: Resolver?, _ accounts: [Account]?, _ script: @escaping ScriptedServer.Script,
        _ wallMs: (@Sendable () -> UInt64)?, _ proxy: Proxy?
    ) throws {
        loop = try EventLoop(name: "stage")
        server = try ScriptedServer(
            on: loop, Self.identity, firstStreams: firstStreams, onePiece: onePiece, greeting: greeting, manner: manner,
            script: script)
        let (alarms, issued) = (alarms, issued)
        let token = try ProviderToken(keyID: "ABCDE12345", teamID: "TEAM123456", key: Self.key, issuedAtS: stored) {
            issued.add($0)
        }
        var configuration = Courier.Configuration(providerToken: token) { alarms.add($0) }
        configuration.apps = Self.apps
        configuration.production = Endpoint(host: host, port: server.port)
        configuration.sandbox = Endpoint(host: host, port: server.port)
        configuration.trust = .authorities(trust)
        configuration.timing = timing
        if let resolver { configuration.resolver = resolver }
        if let accounts { configuration.accounts = accounts }
        if let wallMs { configuration.wallMs = wallMs }
        configuration.proxy = proxy
        courier = try Courier(loop: loop, configuration)
    }

    /// Sends `pushes` all at once; their outcomes in the same order.
    func send(_ pushes: [Push]) async -> [Outcome] {
        await withTaskGroup(of: (Int, Outcome).self) { group in
            for (index, push) in pushes.enumerated() { group.addTask { (index, await courier.send(push)) } }
            var outcomes = [Outcome?](repeating: nil, count: pushes.count)
            for await (index, outcome) in group { outcomes[index] = outcome }
            return outcomes.compactMap { $0 }
        }
    }
}

extension Push {
    /// Number `number`: its own token and its own apns-id.
    static func sample(_ number: Int = 1, deadlineInMs: UInt64 = 3000, topic: String = "example.app") -> Push {
        let hex = "00000000" + String(number, radix: 16)
        let token = try! Secret(copying: sampleToken(number).span)
        return Push(
            apnsID: "00000000-0000-4000-8000-0000" + hex.suffix(8),
            address: PushAddress(.apns(AppID(bundleID: topic), .production), token: token), expirationS: 0, collapseID: "handle",
            payload: Array(#"{"aps":{"alert":"x"}}"#.utf8), sealedAtMs: 1_700_000_000_000,
            deadlineMs: Clock.wallMs + deadlineInMs)
    }

    var environment: PushEnvironment {
        get { if case .apns(_, let environment) = address.destination { environment } else { .production } }
        set {
            if case .apns(let app, _) = address.destination { address = PushAddress(.apns(app, newValue), token: address.token) }
        }
    }

    mutating func setApp(_ bundleID: String) {
        address = PushAddress(.apns(AppID(bundleID: bundleID), environment), token: address.token)
    }

    mutating func setToken(_ bytes: [UInt8]) {
        address = PushAddress(address.destination, token: try! Secret(copying: bytes.span))
    }

    static func sampleToken(_ number: Int) -> [UInt8] {
        [0xde, 0xad, 0xbe, 0xef] + (0..<28).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0) }
    }

    static func sampleHex(_ number: Int) -> String {
        sampleToken(number).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

final class Counter: Sendable {
    private let count = Mutex(0)
    func add() { count.withLock { $0 += 1 } }
    var value: Int { count.withLock { $0 } }
}

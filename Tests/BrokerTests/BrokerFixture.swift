import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import TLS
import Vocabulary

@testable import Broker

/// A clock that tests move.
final class TestClock: Sendable {
    private let time: Mutex<UInt64>

    init(_ start: UInt64) { time = Mutex(start) }

    var now: UInt64 { time.withLock { $0 } }
    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
}

/// A broker with a real store and real keys in a folder of its own; nothing listens where its pushes go.
struct BrokerFixture {
    let folder: String
    let clock: TestClock
    let store: SQLiteStore
    let keys: KeyRing
    let loop: EventLoop
    let broker: Broker
    let sweeper: Sweeper

    /// - Parameter courier: in place of one that never reaches anyone.
    init(courier: ((EventLoop) -> any PushSender)? = nil) async throws {
        folder = try SimulatedBroker.makeFolder()
        let clock = TestClock(1_800_000_000_000)
        self.clock = clock
        try KeyRing.create(path: folder + "/ratchet.key", nowMs: clock.now)
        keys = try KeyRing.load(path: folder + "/ratchet.key")
        let time = BrokerTime(persisted: 0, wall: { clock.now }, boot: { clock.now })
        store = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: .standard, now: { time.now })
        // Waits pass when the test moves its clock, and by themselves.
        loop = try EventLoop(name: "test") { Clock.monotonicMs + clock.now - 1_800_000_000_000 }
        try loop.start()
        let metrics = Metrics()
        sweeper = Sweeper(
            loop: loop, store: store, time: time, metrics: metrics, log: { _ in })
        let token = try ProviderToken(keyID: "ABC123DEFG", teamID: "DEF123GHIJ", key: try ES256.PrivateKey(), issuedAtS: nil)
        var configuration = Courier.Configuration(providerToken: token)
        configuration.production = Endpoint(host: "127.0.0.1", port: 9)
        configuration.sandbox = configuration.production
        let policies = try Policies([Policy.builtIn("rooms")!])
        broker = await Broker(
            loop: loop, store: StoreAccess(loop: loop, store: store, metrics: metrics, log: { _ in }), keys: keys, time: time,
            policies: policies, courier: try courier?(loop) ?? Courier(loop: loop, configuration),
            sweeper: sweeper,
            settings: Broker.Settings(topic: "com.example.app", environment: .production) { _, topic, _ in
                topic == "com.example.app"
            }, metrics: metrics, log: { _ in })
    }

    func end() async throws {
        await store.shutDown()
        loop.stop()
        loop.join()
        try File.removeTree(folder)
    }

    static let here = SocketAddress.v4(0xc633_6401, port: 9)

    func token(_ byte: UInt8 = 7) throws -> Secret { try Secret(copying: [UInt8](repeating: byte, count: 32).span) }

    func create(
        _ code: String = "123456", client: String = "creator", life: Int = 600, codeLife: Int = 300, token: Secret? = nil,
        environment: PushEnvironment? = nil
    ) async throws -> Membership {
        try await broker.rooms.create(
            CreateRoom(
                joinid: Array(code.utf8), lifeSeconds: life, codeLifeSeconds: codeLife, client: Array(client.utf8), token: token,
                environment: environment), from: Self.here)
    }

    func accept(_ code: String = "123456", client: String = "joiner", token: Secret? = nil) async throws -> Membership {
        let membership = try await broker.rooms.accept(
            AcceptRoom(joinid: Array(code.utf8), client: Array(client.utf8), token: token, environment: nil), from: Self.here)
        // Knocks just after an accept wait on a clock that stands still here.
        await broker.rooms.forgetAccepts()
        return membership
    }

    func caller(_ room: RoomID, _ client: String, _ member: MemberSecret? = nil) -> Caller {
        Caller(room: room, client: Array(client.utf8), member: member)
    }
}

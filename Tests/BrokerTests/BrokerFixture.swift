import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import TLS
import Vocabulary
import WebPush

@testable import Broker

/// A broker with a real store and real keys in a folder of its own. By default its pushes never reach anyone.
struct BrokerFixture {
    let folder: String
    let clock: TestClock
    let store: SQLiteStore
    let keys: KeyRing
    let loop: EventLoop
    let broker: Broker
    let sweeper: Sweeper
    let prints = LogLines()

    /// - Parameter courier: replaces the courier that never reaches anyone.
    init(
        courier: ((EventLoop) -> any PushSender)? = nil, addressSize: AddressSize = .apnsOnly, policy: Policy? = nil,
        webPush: WebPushService? = nil, sockets: any RoomSockets = NoSockets()
    ) async throws {
        folder = try SimulatedBroker.makeFolder()
        let clock = TestClock(1_800_000_000_000)
        self.clock = clock
        try KeyRing.create(path: folder + "/ratchet.key", nowMs: clock.now)
        keys = try KeyRing.load(path: folder + "/ratchet.key")
        let time = BrokerTime(persisted: 0, wall: { clock.now }, boot: { clock.now })
        store = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: .standard, now: { time.now })
        // Waits end when the test moves its clock, and also with real time.
        loop = try EventLoop(name: "test") { Clock.monotonicMs + clock.now - 1_800_000_000_000 }
        try loop.start()
        let metrics = Metrics()
        sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: Logger { _, _ in })
        let token = try ProviderToken(keyID: "ABC123DEFG", teamID: "DEF123GHIJ", key: try ES256.PrivateKey(), issuedAtS: nil)
        var configuration = Courier.Configuration(providerToken: token)
        configuration.apps = ["com.example.app"]
        configuration.production = Endpoint(host: "127.0.0.1", port: 9)
        configuration.sandbox = configuration.production
        let policies = try Policies([policy ?? Policy.builtIn("rooms")!])
        var settings = Broker.Settings.test(addressSize: addressSize)
        settings.webPush = webPush
        broker = Broker(
            loop: loop, store: StoreAccess(loop: loop, store: store, metrics: metrics, log: Logger { _, _ in }), keys: keys,
            time: time,
            policies: policies, courier: try courier?(loop) ?? Courier(loop: loop, configuration), sweeper: sweeper,
            settings: settings, metrics: metrics, sockets: sockets, log: Logger { [prints] _, line in prints.add(line) })
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
        environment: PushEnvironment = .production, from address: SocketAddress = Self.here,
        charging payer: RequestCharges? = nil
    ) async throws -> Membership {
        try await broker.rooms.create(
            CreateRoom(
                joinid: Array(code.utf8), lifeSeconds: life, codeLifeSeconds: codeLife, client: Array(client.utf8),
                address: token.map { .test($0, environment) }), from: address, charging: payer)
    }

    func accept(_ code: String = "123456", client: String = "joiner", token: Secret? = nil) async throws -> Membership {
        let membership = try await broker.rooms.accept(
            AcceptRoom(joinid: Array(code.utf8), client: Array(client.utf8), address: token.map { .test($0) }), from: Self.here)
        // Knocks just after an accept wait on a clock that does not move here.
        await broker.rooms.forgetAccepts()
        return membership
    }

    func caller(_ room: RoomID, _ client: String, _ member: MemberSecret? = nil) -> Caller {
        Caller(room: room, client: Array(client.utf8), member: member)
    }
}

extension SQLiteStore {
    /// Stores a room with one token.
    /// - Parameter token: its number, if it differs from the room's.
    func createRoom(
        _ id: Int, token number: Int? = nil, expires: UInt64, now: UInt64
    ) async throws(StoreError) -> CreateOutcome {
        func blob(_ kind: Int, _ count: Int, of id: Int) -> [UInt8] {
            [UInt8(kind), UInt8(id >> 8), UInt8(id & 0xff)] + [UInt8](repeating: 0, count: count - 3)
        }
        func digest(_ kind: Int) -> Digest { Digest(bytes: blob(kind, 32, of: id).span)! }
        let number = number ?? id
        let token = TokenRecord(
            TokenContext(
                generation: 1, kind: .alert, slot: 1, expiryMs: expires, purgeID: EntryID(bytes: blob(1, 16, of: number).span)!),
            ref: blob(9, 56, of: id), room: Digest(leading: expires, digest(2)), sealed: blob(3, 200, of: id))
        let creator = SideRecord(generation: 1, client: digest(4), member: digest(5), token: token.purgeID)
        let room = RoomRecord(room: token.room, expires: expires, creator: creator)
        let code = PendingCode(
            code: digest(6), expires: expires, room: room.room, roomExpires: expires, generation: 1,
            pending: blob(7, 72, of: id), creator: blob(8, 72, of: id), creatorUntil: expires, short: false)
        let new = NewToken(token, sealedID: EntryID(bytes: blob(10, 16, of: number).span)!)
        return try await write {
            try $0.create(room, code: code, otherIndexes: [], token: new, shortLimit: .max, now: now)
        }
    }
}

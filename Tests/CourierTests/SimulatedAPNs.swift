import APNsSimulator
import EventLoop
import Linux
import Synchronization
import TLS
import Testing

@testable import Courier

/// The simulator and a courier, each on a thread of its own as when they are processes, with short time-outs.
struct SimulatedAPNs {
    let simulator: APNsSimulator
    let courier: Courier
    let loop: EventLoop
    let alarms = Stage.Alarms()
    let issued = Stage.IssuedTokens()

    /// What a test may change before both start.
    struct Setting {
        var simulator: APNsSimulator.Configuration
        var timing = Stage.timing
        /// When the provider token was issued, unix seconds; nil: now.
        var issuedAtS: UInt64?
        /// How far the simulator's clock is ahead of the courier's, ms.
        var aheadMs: UInt64 = 0
        /// The courier's wall clock, which its provider tokens are dated by.
        var clock = SetClock()
        /// The clock of the courier's loop, monotonic ms.
        var loopClock: @Sendable () -> UInt64 = { Clock.monotonicMs }
        var accounts: [Account]?
        var faults = FaultPlan()
    }

    static let keyID = "ABCDE12345"
    static let teamID = "TEAM123456"
    static let topic = "example.app"

    static func key(
        _ keyID: String = keyID, team: String = teamID, _ topics: [String] = [topic],
        environments: Set<APNsEnvironment> = [.production, .sandbox]
    ) throws -> ProviderKey {
        let pem = try Stage.key.publicKeyPEM()
        return ProviderKey(
            keyID: keyID, teamID: team, publicKey: try ES256.PublicKey(pem: pem.span), bundleIDs: topics,
            environments: environments)
    }

    /// The setting that a test begins with, changed.
    static func setting(_ change: (inout Setting) throws -> Void = { _ in }) throws -> Setting {
        var setting = Setting(
            simulator: .init(
                listen: .v4(0x7f00_0001, port: 0), certificateChain: Stage.identity.certificate,
                privateKey: Stage.identity.privateKey, keys: [try key()]))
        setting.timing.requestMs = 400
        try change(&setting)
        return setting
    }

    static func play(_ setting: Setting? = nil, _ body: (SimulatedAPNs) async throws -> Void) async throws {
        let setting = try setting ?? Self.setting()
        let loops = try (EventLoop(name: "simulator"), EventLoop(name: "courier", clock: setting.loopClock))
        try loops.0.start()
        try loops.1.start()
        let world = try await SimulatedAPNs(loops.0, loops.1, setting)
        try await body(world)
        await world.courier.stop(withinMs: 100)
        await world.simulator.stop()
        loops.0.stop()
        loops.1.stop()
    }

    private init(_ theirs: EventLoop, _ ours: EventLoop, _ setting: Setting) async throws {
        loop = ours
        let aheadMs = setting.aheadMs
        simulator = try APNsSimulator(setting.simulator, loop: theirs, wallMs: { Clock.wallMs + aheadMs })
        await simulator.setFaults(setting.faults)
        let port = try await simulator.start().apns.port!
        let (alarms, issued) = (alarms, issued)
        let token = try ProviderToken(
            keyID: Self.keyID, teamID: Self.teamID, key: Stage.key, issuedAtS: setting.issuedAtS
        ) { issued.add($0) }
        var configuration = Courier.Configuration(providerToken: token) { alarms.add($0) }
        if let accounts = setting.accounts { configuration.accounts = accounts }
        configuration.apps = Stage.apps
        configuration.production = Endpoint(host: "127.0.0.1", port: port)
        configuration.sandbox = configuration.production
        configuration.trust = .authorities(Stage.identity.certificate)
        configuration.timing = setting.timing
        configuration.wallMs = { [clock = setting.clock] in clock.nowMs }
        courier = try Courier(loop: ours, configuration)
    }

    /// Sends one push, changed.
    func send(_ number: Int = 1, _ change: (inout Push) -> Void = { _ in }) async -> Outcome {
        var push = Push.sample(number)
        change(&push)
        return await courier.send(push)
    }

    /// Sends many at once; their outcomes in order.
    func send(_ numbers: ClosedRange<Int>, deadlineInMs: UInt64 = 20_000) async -> [Outcome] {
        await withTaskGroup(of: (Int, Outcome).self) { group in
            for number in numbers {
                group.addTask { (number, await courier.send(.sample(number, deadlineInMs: deadlineInMs))) }
            }
            return await group.reduce(into: [Int: Outcome]()) { $0[$1.0] = $1.1 }.sorted { $0.key < $1.key }.map(\.value)
        }
    }

    func plan(_ next: Fault..., always: [Fault] = []) async { await simulator.setFaults(FaultPlan(next: next, always: always)) }

    /// Waits for what must come.
    func until(_ what: () async -> Bool) async throws {
        for _ in 0..<1000 {
            if await what() { return }
            try await loop.sleep(5)
        }
        Issue.record("it never came")
    }

    var accepted: [AcceptedPush] { get async { await simulator.pushes } }
    var connections: Int { get async { await simulator.counts.connections } }
    var refusals: Int { get async { await simulator.counts.refused.values.reduce(0, +) } }
}

/// A wall clock that is ahead of the machine's, or behind it.
final class SetClock: Sendable {
    private let aheadMs: Mutex<Int64>

    init(aheadMs: Int64 = 0) { self.aheadMs = Mutex(aheadMs) }

    var nowMs: UInt64 { UInt64(Int64(Clock.wallMs) + aheadMs.withLock(\.self)) }

    func set(aheadMs: Int64) { self.aheadMs.withLock { $0 = aheadMs } }
}

extension Fault {
    /// One that is nothing but what `change` makes of it.
    static func with(_ change: (inout Fault) -> Void) -> Fault {
        var fault = Fault()
        change(&fault)
        return fault
    }
}

import Broker
import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Synchronization
import Testing

/// A simulated broker with one kind of app with accounts, and what Apple gets of it.
protocol AudienceStage: Sendable {
    /// Of app, by its policy's name.
    static var kind: String { get }
    var simulated: SimulatedBroker { get }
    /// What Apple got, in order.
    var record: SightingRecord { get }

    init(_ simulated: SimulatedBroker, _ record: SightingRecord)
    /// A new process.
    func start() async throws
}

/// One push, as Apple sees it.
struct Sighting: Sendable {
    /// The token's first byte.
    let token: UInt8
    /// Unix ms.
    let at: UInt64
    let payload: String
    let collapseID: String?
    /// Unix seconds.
    let expires: UInt64?

    init(_ push: Push, at time: UInt64) {
        token = push.token.withBytes { $0[0] }
        at = time
        payload = String(decoding: push.payload, as: UTF8.self)
        collapseID = push.collapseID
        expires = push.expirationS
    }

    func says(_ text: String) -> Bool { payload.contains(text) }

    /// The number behind a key.
    func number(_ key: String) -> UInt64? {
        guard let place = payload.firstRange(of: "\"\(key)\":") else { return nil }
        return UInt64(payload[place.upperBound...].prefix { $0.isNumber })
    }

    /// The time by which a phone tells an older state of a Live Activity from a newer one, unix seconds; 0 without one.
    var stamp: UInt64 { number("timestamp") ?? 0 }
}

final class SightingRecord: Sendable {
    private let list = Mutex<[Sighting]>([])

    func append(_ sighting: Sighting) { list.withLock { $0.append(sighting) } }
    var all: [Sighting] { list.withLock { $0 } }
}

extension AudienceStage {
    static var alice: Principal { Principal("alice") }
    static var bob: Principal { Principal("bob") }
    static var backEnd: Principal { Principal("back end", isBackEnd: true) }

    /// Runs `story` with a broker that has just started, and ends it.
    ///
    /// - Parameters:
    ///   - limits: text of the built-in policy and what is to stand in its place.
    ///   - fault: asked at each call of the store.
    ///   - outcome: how a push ends, and after how long.
    static func play(
        limits: [(old: String, new: String)] = [],
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        outcome: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (0, .delivered) },
        _ story: @escaping @Sendable (Self) async throws -> Void
    ) async throws {
        var text = String(decoding: try #require(Policy.builtInBytes(kind)), as: UTF8.self)
        for limit in limits {
            let place = try #require(text.firstRange(of: limit.old), "\(kind).json does not say \(limit.old)")
            text = String(text[..<place.lowerBound]) + limit.new + String(text[place.upperBound...])
        }
        let policy = try Policy(Array(text.utf8))
        let machine = MachineClock(wall: 1_800_000_010_000)
        let loop = try EventLoop(name: kind) { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        try await Task(executorPreference: loop) {
            let record = SightingRecord()
            let simulated = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 60, audiences: [policy], fault: fault,
                script: { push in
                    record.append(Sighting(push, at: machine.wall))
                    return outcome(push)
                })
            let stage = Self(simulated, record)
            try await stage.start()
            try await story(stage)
            await simulated.stop()
            _ = try await LogCheck(simulated, Facts()).run(isOver: false)
            await simulated.runOut()
            try simulated.remove()
        }.value
    }

    func start() async throws { try await simulated.start() }

    /// kill -9, and a new process on the same store.
    func restart() async throws {
        await simulated.kill()
        try await start()
    }

    var machine: MachineClock { simulated.machine }
    var now: UInt64 { machine.wall }
    func advance(_ ms: UInt64) async { await simulated.advance(ms) }
    func advance(to time: UInt64) async { await simulated.advance(time - min(time, machine.wall)) }

    /// So long passes, all but the last minute of it in the machine's sleep: in that minute the ratchet follows.
    func sleep(_ ms: UInt64) async {
        machine.sleep(ms - 60_000)
        await simulated.advance(60_000)
    }

    var counts: StoreCounts { get async throws { try await #require(await simulated.run).store.counts() } }
    func count(_ counter: Metrics.Counter) async -> Int? { await simulated.run?.metrics.value(counter) }
    func token(_ byte: UInt8) throws -> Secret { try Secret(copying: [UInt8](repeating: byte, count: 32).span) }
}

extension Principal {
    fileprivate init(_ name: String, isBackEnd: Bool = false) {
        self.init(user: Array(name.utf8), isBackEnd: isBackEnd, expiresMs: .max)
    }
}

import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Synchronization
import Testing

@testable import Broker

/// A simulated broker with a monitor, and what Apple gets of it.
struct MonitorStage: Sendable {
    typealias Sighting = CompanionStage.Sighting

    let simulated: SimulatedBroker
    let machine: MachineClock
    private let record: @Sendable () -> [Sighting]

    static let printer = Array("p1s_01".utf8)
    static let (alice, bob) = (CompanionStage.alice, CompanionStage.bob)
    static let backEnd = CompanionStage.backEnd

    /// Runs `story` with a broker that has just started, and ends it.
    ///
    /// - Parameters:
    ///   - limits: text of the built-in policy and what is to stand in its place.
    ///   - fault: asked at each call of the store.
    static func play(
        limits: [(old: String, new: String)] = [],
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        _ story: @escaping @Sendable (MonitorStage) async throws -> Void
    ) async throws {
        var text = String(decoding: try #require(Policy.builtInBytes("monitor")), as: UTF8.self)
        for limit in limits {
            let place = try #require(text.firstRange(of: limit.old), "monitor.json does not say \(limit.old)")
            text = String(text[..<place.lowerBound]) + limit.new + String(text[place.upperBound...])
        }
        let policy = try Policy(Array(text.utf8))
        let machine = MachineClock(wall: 1_800_000_010_000)
        let loop = try EventLoop(name: "monitor") { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        try await Task(executorPreference: loop) {
            let sightings = SharedList<Sighting>()
            let simulated = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 1, monitor: policy, fault: fault,
                script: { push in
                    sightings.append(
                        Sighting(
                            token: push.token.withBytes { $0[0] }, at: machine.wall,
                            payload: String(decoding: push.payload, as: UTF8.self), collapseID: push.collapseID))
                    return (0, .delivered)
                })
            let stage = MonitorStage(simulated: simulated, machine: machine, record: { sightings.all })
            try await simulated.start()
            try await story(stage)
            await simulated.stop()
            _ = try await LogCheck(simulated, Facts()).run(isOver: false)
            await simulated.runOut()
            try simulated.remove()
        }.value
    }

    /// kill -9, and a new process on the same store.
    func restart() async throws {
        await simulated.kill()
        try await simulated.start()
    }

    /// Of this run.
    var monitor: Monitor {
        get async throws { try #require(await simulated.run?.monitor) }
    }

    var now: UInt64 { machine.wall }
    func advance(_ ms: UInt64) async { await simulated.advance(ms) }

    /// So long passes, all but the last minute of it in the machine's sleep: in that minute the ratchet follows.
    func sleep(_ ms: UInt64) async {
        machine.sleep(ms - 60_000)
        await simulated.advance(60_000)
    }

    /// What Apple got, once all has left that may.
    func pushes() async -> [Sighting] {
        await advance(1_000)
        return record()
    }

    var counts: StoreCounts { get async throws { try await #require(await simulated.run).store.counts() } }

    // MARK: Calls

    func token(_ byte: UInt8) throws -> Secret { try Secret(copying: [UInt8](repeating: byte, count: 32).span) }

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice, at printer: [UInt8]? = printer) async throws -> Registered {
        try await monitor.register(principal, token: token(byte), printer: printer, environment: nil, topic: nil)
    }

    func set(
        _ device: Registered, of principal: Principal = alice, adding: DevicePreferences = [], removing: DevicePreferences = []
    ) async throws -> Bool {
        try await monitor.set(principal, device: device.id, adding: adding, removing: removing)
    }

    @discardableResult
    func take(
        _ event: PrinterEvent, of printer: [UInt8] = printer, eventID: String? = nil, from caller: Principal = backEnd
    ) async throws -> (news: PrinterNews?, receipt: EventReceipt) {
        try await monitor.take(event, of: printer, eventID: eventID.map { Array($0.utf8) }, from: caller)
    }

    /// A print begins, or goes on after a pause.
    @discardableResult
    func run(_ old: PrinterStatus = .idle, of printer: [UInt8] = printer) async throws -> PrinterNews? {
        try await take(.status(from: old, to: .running), of: printer).news
    }

    /// The milestone that is told of so many percent.
    func milestone(_ percent: Int, of printer: [UInt8] = printer) async throws -> Int? {
        guard case .milestone(let reached)? = try await take(.progress(percent), of: printer).news else { return nil }
        return reached
    }
}

/// What several threads add to.
private final class SharedList<Element: Sendable>: Sendable {
    private let list = Mutex<[Element]>([])

    func append(_ element: Element) { list.withLock { $0.append(element) } }
    var all: [Element] { list.withLock { $0 } }
}

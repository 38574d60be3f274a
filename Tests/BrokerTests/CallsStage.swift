import Broker
import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Synchronization
import Testing

/// A simulated broker for calls, and what Apple gets of it.
struct CallsStage: Sendable {
    typealias Sighting = CompanionStage.Sighting

    private final class Record: Sendable {
        private let sightings = Mutex<[Sighting]>([])

        func sent(_ push: Push, at time: UInt64) {
            let sighting = Sighting(
                token: push.token.withBytes { $0[0] }, at: time, payload: String(decoding: push.payload, as: UTF8.self),
                collapseID: push.collapseID, expires: push.expirationS)
            sightings.withLock { $0.append(sighting) }
        }
        var all: [Sighting] { sightings.withLock { $0 } }
    }

    let simulated: SimulatedBroker
    let machine: MachineClock
    private let record: Record

    static let (alice, bob) = (CompanionStage.alice, CompanionStage.bob)
    static let backEnd = CompanionStage.backEnd

    /// Runs `story` with a broker that has just started, and ends it.
    ///
    /// - Parameters:
    ///   - limits: text of the built-in policy and what is to stand in its place.
    ///   - fault: asked at each call of the store.
    ///   - outcome: how a push ends.
    static func play(
        limits: (old: String, new: String)? = nil,
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        outcome: @escaping @Sendable (Push) -> Outcome = { _ in .delivered },
        _ story: @escaping @Sendable (CallsStage) async throws -> Void
    ) async throws {
        var text = String(decoding: try #require(Policy.builtInBytes("calls")), as: UTF8.self)
        if let limits {
            let place = try #require(text.firstRange(of: limits.old), "calls.json does not say \(limits.old)")
            text = String(text[..<place.lowerBound]) + limits.new + String(text[place.upperBound...])
        }
        let policy = try Policy(Array(text.utf8))
        let machine = MachineClock(wall: 1_800_000_010_000)
        let loop = try EventLoop(name: "calls") { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        try await Task(executorPreference: loop) {
            let record = Record()
            let simulated = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 1, calls: policy, fault: fault,
                script: { push in
                    record.sent(push, at: machine.wall)
                    return (0, outcome(push))
                })
            let stage = CallsStage(simulated: simulated, machine: machine, record: record)
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
    var calls: Calls {
        get async throws { try #require(await simulated.run?.calls) }
    }

    var counts: StoreCounts { get async throws { try await #require(await simulated.run).store.counts() } }

    /// So long passes, all but the last minute of it in the machine's sleep: in that minute the ratchet follows.
    func sleep(_ ms: UInt64) async {
        machine.sleep(ms - 60_000)
        await simulated.advance(60_000)
    }

    /// What Apple got, once all has left that may.
    func pushes(to token: UInt8? = nil) async -> [Sighting] {
        await simulated.advance(1_000)
        return record.all.filter { token == nil || $0.token == token }
    }

    // MARK: Calls

    func token(_ byte: UInt8) throws -> Secret { try Secret(copying: [UInt8](repeating: byte, count: 32).span) }

    @discardableResult
    func register(_ byte: UInt8, of user: Principal = bob, by caller: Principal? = nil) async throws -> Registered {
        try await calls.register(caller ?? user, user: user.user, token: token(byte), environment: nil, topic: nil)
    }

    func delete(_ byte: UInt8? = nil, of user: Principal = bob, by caller: Principal? = nil) async throws -> Int {
        try await calls.delete(caller ?? user, user: user.user, token: byte.map { try token($0) })
    }

    @discardableResult
    func ring(
        _ session: String = "session", to receiver: Principal = bob, from caller: Principal = alice,
        media: CallInvitation.Media = .video
    ) async throws -> CallReceipt {
        try await calls.ring(
            CallInvitation(session: Array(session.utf8), caller: caller.user, receiver: receiver.user, media: media))
    }
}

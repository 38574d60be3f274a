import Broker
import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Testing

/// A simulated broker with a companion: what Apple gets of it, and what its sockets are told, each with its time.
struct CompanionStage: Sendable {
    /// One push, as Apple sees it.
    struct Sighting: Sendable {
        /// The token's first byte.
        let token: UInt8
        /// Unix ms.
        let at: UInt64
        let payload: String
        let collapseID: String?
        /// Unix seconds.
        var expires: UInt64?

        func says(_ text: String) -> Bool { payload.contains(text) }

        /// The number behind a key.
        func number(_ key: String) -> UInt64? {
            guard let place = payload.firstRange(of: "\"\(key)\":") else { return nil }
            return UInt64(payload[place.upperBound...].prefix { $0.isNumber })
        }

        /// The time by which a phone tells an older state of a Live Activity from a newer one, unix seconds; 0 without one.
        var stamp: UInt64 { number("timestamp") ?? 0 }
    }

    private final class Record: CompanionSockets {
        private let state = Mutex((sightings: [Sighting](), messages: [(to: [UInt8], CompanionMessage)]()))

        func sent(_ push: Push, at time: UInt64) {
            let sighting = Sighting(
                token: push.token.withBytes { $0[0] }, at: time, payload: String(decoding: push.payload, as: UTF8.self),
                collapseID: push.collapseID)
            state.withLock { $0.sightings.append(sighting) }
        }
        func tell(user: [UInt8], _ message: CompanionMessage) async { tell(user, message) }
        func tell(backEnd: [UInt8], _ message: CompanionMessage) async { tell(backEnd, message) }
        private func tell(_ name: [UInt8], _ message: CompanionMessage) { state.withLock { $0.messages.append((name, message)) } }

        var sightings: [Sighting] { state.withLock { $0.sightings } }
        func messages(to name: [UInt8]) -> [CompanionMessage] {
            state.withLock { $0.messages.compactMap { $0.to == name ? $0.1 : nil } }
        }
    }

    let simulated: SimulatedBroker
    let machine: MachineClock
    private let record: Record

    static let session = Array("session".utf8)
    static let (alice, bob) = (Principal("alice"), Principal("bob"))
    static let backEnd = Principal("back end", isBackEnd: true)

    /// Runs `story` with a broker that has just started, and ends it.
    ///
    /// - Parameters:
    ///   - limits: text of the built-in companion's policy and what is to stand in its place.
    ///   - fault: asked at each call of the store.
    ///   - outcome: how a push ends, and after how long.
    static func play(
        limits: [(old: String, new: String)] = [],
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        outcome: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (0, .delivered) },
        _ story: @escaping @Sendable (CompanionStage) async throws -> Void
    ) async throws {
        var text = String(decoding: try #require(Policy.builtInBytes("companion")), as: UTF8.self)
        for limit in limits {
            let place = try #require(text.firstRange(of: limit.old), "companion.json does not say \(limit.old)")
            text = String(text[..<place.lowerBound]) + limit.new + String(text[place.upperBound...])
        }
        let policy = try Policy(Array(text.utf8))
        let machine = MachineClock(wall: 1_800_000_010_000)
        let loop = try EventLoop(name: "companion") { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        try await Task(executorPreference: loop) {
            let record = Record()
            let simulated = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 1, companion: policy, fault: fault,
                script: { push in
                    record.sent(push, at: machine.wall)
                    return outcome(push)
                })
            let stage = CompanionStage(simulated: simulated, machine: machine, record: record)
            try await stage.start()
            try await story(stage)
            await simulated.stop()
            _ = try await LogCheck(simulated, Facts()).run(isOver: false)
            await simulated.runOut()
            try simulated.remove()
        }.value
    }

    func start() async throws {
        try await simulated.start()
        try await companion.setEdge(record)
    }

    /// kill -9, and a new process on the same store.
    func restart() async throws {
        await simulated.kill()
        try await start()
    }

    /// Of this run.
    var companion: Companion {
        get async throws { try #require(await simulated.run?.companion) }
    }

    var now: UInt64 { machine.wall }
    func advance(_ ms: UInt64) async { await simulated.advance(ms) }
    func advance(to time: UInt64) async { await simulated.advance(time - min(time, machine.wall)) }

    /// So long passes, all but the last minute of it in the machine's sleep: in that minute the ratchet follows.
    func sleep(_ ms: UInt64) async {
        machine.sleep(ms - 60_000)
        await simulated.advance(60_000)
    }

    // MARK: What came of it

    var sightings: [Sighting] { record.sightings }
    /// Pushes to the token that begins with this byte.
    func pushes(to token: UInt8) -> [Sighting] { record.sightings.filter { $0.token == token } }
    func told(_ principal: Principal) -> [CompanionMessage] { record.messages(to: principal.user) }
    func count(_ counter: Metrics.Counter) async -> Int? { await simulated.run?.metrics.value(counter) }
    var counts: StoreCounts { get async throws { try await #require(await simulated.run).store.counts() } }

    // MARK: Calls

    func token(_ byte: UInt8) throws -> Secret { try Secret(copying: [UInt8](repeating: byte, count: 32).span) }

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice) async throws -> Registered {
        try await companion.registerDevice(principal, token: token(byte), environment: nil, topic: nil)
    }

    @discardableResult
    func start(
        _ byte: UInt8, of principal: Principal = alice, activity: String = "activity", session: [UInt8] = session,
        previous: UInt8? = nil
    ) async throws -> Registered {
        try await companion.registerActivity(
            principal, token: token(byte), activity: Array(activity.utf8), session: session,
            previous: previous.map { try token($0) }, environment: nil, topic: nil)
    }

    @discardableResult
    func take(
        _ event: CompanionEvent, of principal: Principal = alice, session: [UInt8] = session, eventID: String? = nil,
        from caller: Principal = backEnd
    ) async throws -> EventReceipt {
        try await companion.take(
            event, of: principal.user, session: session, eventID: eventID.map { Array($0.utf8) }, from: caller)
    }

    /// Asks for an approval.
    func ask(of principal: Principal = alice) async throws -> (request: [UInt8], due: UInt64) {
        let receipt = try await take(.approvalRequest, of: principal)
        return (try #require(receipt.request), try #require(receipt.expires))
    }

    func respond(_ request: [UInt8], _ principal: Principal = alice, approved: Bool = true, from byte: UInt8? = nil) async throws
        -> Bool
    {
        try await companion.respond(principal, request: request, approved: approved, excluding: byte.map { try token($0) })
    }

    func state(_ request: [UInt8], _ principal: Principal = backEnd) async throws -> Approval.State? {
        try await companion.approval(principal, request: request)?.state
    }
}

extension Principal {
    fileprivate init(_ name: String, isBackEnd: Bool = false) {
        self.init(user: Array(name.utf8), isBackEnd: isBackEnd, expiresMs: .max)
    }
}

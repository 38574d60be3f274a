import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// A simulated broker with one kind of app with accounts, and the pushes that Apple gets.
protocol AudienceStage: Sendable {
    /// The name of the app's policy.
    static var kind: String { get }
    var simulated: SimulatedBroker { get }
    /// The pushes that Apple got, in order.
    var record: SightingRecord { get }

    init(simulated: SimulatedBroker, record: SightingRecord)
    /// Starts a new process.
    func start() async throws
}

/// A push as Apple sees it.
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
        token = push.address.token.withBytes { $0[0] }
        at = time
        payload = String(decoding: push.payload, as: UTF8.self)
        collapseID = push.collapseID
        expires = push.expirationS
    }

    func says(_ text: String) -> Bool { payload.contains(text) }

    /// Returns the number after a key.
    func number(_ key: String) -> UInt64? {
        guard let place = payload.firstRange(of: "\"\(key)\":") else { return nil }
        return UInt64(payload[place.upperBound...].prefix { $0.isNumber })
    }

    /// The time by which a phone orders the states of a Live Activity, unix seconds. 0 without one.
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
    ///   - limits: texts of the built-in policy, and the texts that replace them.
    ///   - fault: called at each call of the store.
    ///   - outcome: returns how a push ends, and after how long.
    static func play(
        limits: [(old: String, new: String)] = [],
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        outcome: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (0, .delivered) },
        _ story: @escaping @Sendable (Self) async throws -> Void
    ) async throws {
        let policy = try Policy.builtIn(kind, replacing: limits)
        try await MachineClock.play(kind) { loop, machine in
            let record = SightingRecord()
            let simulated = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 60, audiences: [policy], fault: fault,
                script: { push in
                    record.append(Sighting(push, at: machine.wall))
                    return outcome(push)
                })
            let stage = Self(simulated: simulated, record: record)
            try await stage.start()
            try await story(stage)
            await simulated.stop()
            _ = try await LogCheck(simulated, Facts()).run(isOver: false)
            await simulated.runOut()
            try simulated.remove()
        }
    }

    func start() async throws { try await simulated.start() }

    /// Kills the process and starts a new one on the same store.
    func restart() async throws {
        await simulated.kill()
        try await start()
    }

    var machine: MachineClock { simulated.machine }
    var now: UInt64 { machine.wall }
    func advance(_ ms: UInt64) async { await simulated.advance(ms) }
    func advance(to time: UInt64) async { await simulated.advance(time - min(time, machine.wall)) }

    /// Lets the machine sleep. In the last minute it is awake, so that the ratchet follows.
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

/// A simulated broker with a companion, its pushes, and the messages to its sockets.
struct CompanionStage: AudienceStage {
    private final class Sockets: CompanionSockets {
        private let messages = Mutex<[(to: [UInt8], CompanionMessage)]>([])

        func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
            messages.withLock { $0.append((receiver.name, message)) }
        }

        func messages(to name: [UInt8]) -> [CompanionMessage] {
            messages.withLock { $0.compactMap { $0.to == name ? $0.1 : nil } }
        }
    }

    static let kind = "companion"
    let simulated: SimulatedBroker
    let record: SightingRecord
    private let sockets = Sockets()

    init(simulated: SimulatedBroker, record: SightingRecord) {
        self.simulated = simulated
        self.record = record
    }

    static let session = Array("session".utf8)

    func start() async throws { try await simulated.start(sessionSockets: sockets) }

    var companion: Companion {
        get async throws { try #require(await simulated.run?.apps.companion) }
    }

    // MARK: Results

    var sightings: [Sighting] { record.all }
    /// Pushes to the token that begins with this byte.
    func pushes(to token: UInt8) -> [Sighting] { record.all.filter { $0.token == token } }
    func told(_ principal: Principal) -> [CompanionMessage] { sockets.messages(to: principal.user) }

    /// The messages about ends of approvals.
    func ends(_ principal: Principal) -> [CompanionMessage] {
        told(principal).filter { message in
            switch message {
            case .approvalRequest, .progress, .state: false
            default: true
            }
        }
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice) async throws -> Registered {
        try await companion.registerDevice(principal, address: .test(token(byte)))
    }

    @discardableResult
    func start(
        _ byte: UInt8, of principal: Principal = alice, activity: String = "activity", session: [UInt8] = session,
        previous: UInt8? = nil
    ) async throws -> Registered {
        try await companion.registerActivity(
            principal, address: .test(token(byte)), activity: Array(activity.utf8), session: session,
            previous: previous.map { try token($0) })
    }

    @discardableResult
    func take(
        _ event: CompanionEvent, of principal: Principal = alice, session: [UInt8] = session, eventID: String? = nil,
        ownID: String? = nil, from caller: Principal = backEnd, charging payer: RequestCharges? = nil
    ) async throws -> EventReceipt {
        try await companion.take(
            event, of: principal.user, session: session, eventID: eventID.map { Array($0.utf8) },
            ownID: ownID.map { Array($0.utf8) }, from: caller, charging: payer)
    }

    /// Requests an approval.
    func ask(of principal: Principal = alice) async throws -> (request: RequestID, due: UInt64) {
        let receipt = try await take(.approvalRequest, of: principal)
        return (try #require(receipt.request), try #require(receipt.expires))
    }

    func respond(
        _ request: RequestID, _ principal: Principal = alice, approved: Bool = true, from byte: UInt8? = nil
    ) async throws -> Bool {
        try await companion.respond(
            principal, request: RequestName(id: request), approved: approved, excluding: byte.map { try token($0) })
    }

    func state(_ request: RequestID, _ principal: Principal = backEnd) async throws -> Approval.State? {
        try await companion.approval(principal, request: RequestName(id: request))?.state
    }
}

/// A simulated broker with a monitor, and its pushes.
struct MonitorStage: AudienceStage {
    static let kind = "monitor"
    let simulated: SimulatedBroker
    let record: SightingRecord

    static let printer = Array("p1s_01".utf8)
    var monitor: Monitor {
        get async throws { try #require(await simulated.run?.apps.monitor) }
    }

    /// The pushes that Apple got, a second from now.
    func pushes() async -> [Sighting] {
        await advance(1_000)
        return record.all
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice, at printer: [UInt8]? = printer) async throws -> Registered {
        try await monitor.register(principal, address: .test(token(byte)), printer: printer)
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

    /// A print begins, or continues after a pause.
    @discardableResult
    func run(_ old: PrinterStatus = .idle, of printer: [UInt8] = printer) async throws -> PrinterNews? {
        try await take(.status(from: old, to: .running), of: printer).news
    }

    /// Returns the milestone that this progress reports.
    func milestone(_ percent: Int, of printer: [UInt8] = printer) async throws -> Int? {
        guard case .milestone(let reached)? = try await take(.progress(percent), of: printer).news else { return nil }
        return reached
    }
}

/// A simulated broker for calls, and its pushes.
struct CallsStage: AudienceStage {
    static let kind = "calls"
    let simulated: SimulatedBroker
    let record: SightingRecord

    var calls: Calls {
        get async throws { try #require(await simulated.run?.apps.calls) }
    }

    /// The pushes that Apple got, a second from now.
    func pushes(to token: UInt8? = nil) async -> [Sighting] {
        await simulated.advance(1_000)
        return record.all.filter { token == nil || $0.token == token }
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of user: Principal = bob, by caller: Principal? = nil) async throws -> Registered {
        try await calls.register(caller ?? user, user: user.user, address: .test(token(byte)))
    }

    func delete(_ byte: UInt8? = nil, of user: Principal = bob, by caller: Principal? = nil) async throws -> Int {
        try await calls.delete(caller ?? user, user: user.user, token: byte.map { DeviceName(token: try token($0)) })
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

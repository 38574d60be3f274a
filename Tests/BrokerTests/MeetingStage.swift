import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization

@testable import Broker

/// One room of a simulated broker, and the sockets of its two sides, which record messages and may answer pings.
actor MeetingStage: LoopActor {
    nonisolated let loop: EventLoop
    nonisolated let machine: MachineClock
    nonisolated let simulated: SimulatedBroker
    nonisolated let sockets = Sockets()
    private nonisolated let apple: Apple
    private var rooms: [RoomID] = []

    /// Pushes, by room and slot, with their times.
    private final class Apple: Sendable {
        private let sent = Mutex<[(name: [UInt8], at: UInt64)]>([])

        func add(_ push: Push, _ now: UInt64) {
            let name = push.address.token.withBytes { [$0[0], $0[1], $0[2]] }
            sent.withLock { $0.append((name, now)) }
        }
        func pushes(_ name: [UInt8]) -> [UInt64] { sent.withLock { $0.filter { $0.name == name }.map(\.at) } }
        var count: Int { sent.withLock { $0.count } }
    }

    private init(
        loop: EventLoop, machine: MachineClock, policy: Policy?,
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault
    ) throws {
        self.loop = loop
        self.machine = machine
        let apple = Apple()
        self.apple = apple
        simulated = try SimulatedBroker(
            loop: loop, machine: machine, resolution: 60, policy: policy, fault: fault,
            script: { push in
                apple.add(push, machine.monotonic)
                return (0, .delivered)
            })
    }

    /// Runs `story` with a broker that has been up for a minute and one room that was accepted a minute ago, and ends it.
    static func play(
        _ policy: Policy? = nil, fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        _ story: @escaping @Sendable (MeetingStage) async throws -> Void
    ) async throws {
        try await MachineClock.play("meeting") { loop, machine in
            let stage = try MeetingStage(loop: loop, machine: machine, policy: policy, fault: fault)
            try await stage.start()
            await stage.pass(60_000)
            try await stage.makeRoom()
            await stage.pass(60_000)
            try await story(stage)
            await stage.simulated.kill()
            await stage.simulated.runOut()
            try stage.simulated.remove()
        }
    }

    func start() async throws {
        try await simulated.start(roomSockets: sockets)
        sockets.serve(try await broker)
    }

    func restart() async throws {
        await simulated.kill()
        sockets.forget()
        try await start()
    }

    var broker: Broker {
        get async throws {
            guard let broker = await simulated.run?.broker else { throw StoreError.closed }
            return broker
        }
    }

    func pass(_ ms: UInt64) async { await simulated.advance(ms) }

    // MARK: Calls, in the latest room or another

    /// Creates a room that was accepted just now, with tokens for both sides.
    func makeRoom() async throws {
        let broker = try await broker
        let number = rooms.count
        func token(_ slot: UInt8) throws -> Secret {
            try Secret(copying: ([slot, UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 7, count: 29)).span)
        }
        let code = Array("code-\(number)".utf8)
        let address = SocketAddress.v4(0xc633_6401, port: 9)
        let made = try await broker.rooms.create(
            CreateRoom(
                joinid: code, lifeSeconds: 7_200, codeLifeSeconds: 7_200, client: Facts.creator, address: try .test(token(1))),
            from: address)
        let accept = AcceptRoom(joinid: code, client: Facts.joiner, address: try .test(token(2)))
        _ = try await broker.rooms.accept(accept, from: address)
        rooms.append(made.room)
    }

    func caller(_ slot: UInt8, room: Int? = nil) throws -> Caller {
        let secret = rooms[room ?? rooms.count - 1].secret
        // Each request has its own copy.
        let copy = try secret.withBytes { bytes throws(SealingError) in RoomID(try Secret(copying: bytes)) }
        return Caller(room: copy, client: slot == 1 ? Facts.creator : Facts.joiner, member: nil)
    }

    /// - Parameter answers: true if the socket answers pings.
    func join(_ slot: UInt8, _ socket: UInt64, answers: Bool = true, room: Int? = nil) async throws -> Delivery? {
        sockets.open(socket, answers: answers)
        return try await broker.rooms.join(try caller(slot, room: room), socket: socket, isOpen: { true })?.delivery
    }

    func end(_ socket: UInt64, isDeliberate: Bool) async throws {
        try await broker.presence.leave(socket: socket, isDeliberate: isDeliberate)
    }

    func report(_ slot: UInt8, leaving: Bool = false) async throws -> Delivery {
        try await broker.rooms.report(try caller(slot), leaving: leaving)
    }

    /// A report that may have to wait while time passes.
    func reporting(_ slot: UInt8) throws -> Task<Delivery, any Error> {
        let caller = try caller(slot)
        return Task(executorPreference: loop) { try await self.broker.rooms.report(caller, leaving: false) }
    }

    /// The times at which pushes to this side reached Apple.
    func pushes(_ slot: UInt8, room: Int? = nil) -> [UInt64] {
        let number = room ?? rooms.count - 1
        return apple.pushes([slot, UInt8(number >> 8), UInt8(number & 255)])
    }

    nonisolated var pushCount: Int { apple.count }
}

/// Sockets of tests.
final class Sockets: RoomSockets {
    private struct State {
        var broker: Broker?
        var heard: [UInt64: [RoomEvent]] = [:]
        var answering: Set<UInt64> = []
        var pings: [UInt64: [UInt64]] = [:]
        var closed: [UInt64] = []
    }

    private let state = Mutex(State())

    func serve(_ broker: Broker) { state.withLock { $0.broker = broker } }
    func forget() { state.withLock { $0 = State() } }

    func open(_ socket: UInt64, answers: Bool) {
        state.withLock { if answers { $0.answering.insert(socket) } else { $0.answering.remove(socket) } }
    }

    func heard(_ socket: UInt64) -> [RoomEvent] { state.withLock { $0.heard[socket, default: []] } }
    func pings(_ socket: UInt64) -> [UInt64] { state.withLock { $0.pings[socket, default: []] } }
    var closed: [UInt64] { state.withLock { $0.closed } }

    func send(_ socket: UInt64, _ event: RoomEvent) async { state.withLock { $0.heard[socket, default: []].append(event) } }

    func ping(_ socket: UInt64, _ number: UInt64) async {
        let broker: Broker? = state.withLock { state in
            state.pings[socket, default: []].append(number)
            return state.answering.contains(socket) ? state.broker : nil
        }
        await broker?.presence.pong(socket: socket, number: number)
    }

    func close(_ socket: UInt64) async { state.withLock { $0.closed.append(socket) } }
}

/// Stands for sockets in tests that have none.
struct NoSockets: RoomSockets, CompanionSockets {
    func send(_ socket: UInt64, _ event: RoomEvent) async {}
    func ping(_ socket: UInt64, _ number: UInt64) async {}
    func close(_ socket: UInt64) async {}
    func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {}
}

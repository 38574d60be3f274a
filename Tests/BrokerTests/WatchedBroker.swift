import Broker
import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Vocabulary

/// A simulated broker whose pushes are watched like Apple would, by a test that knows the time of each knock.
actor WatchedBroker: LoopActor {
    /// One push, with the parts that Apple sees and those that are hidden.
    struct Sighting: Sendable {
        /// Hidden from Apple: the room, and the time of the knock.
        let room: Int
        let knock: UInt64
        /// The push's arrival, unix ms, and the number of pushes before it.
        let at: UInt64
        let place: Int
        let expiration: UInt64
        let apnsID: String
    }

    nonisolated let loop: EventLoop
    nonisolated let machine: MachineClock
    nonisolated let simulated: SimulatedBroker
    private nonisolated let record: Record
    private var rooms: [RoomID] = []

    private final class Record: Sendable {
        private let state = Mutex<(sightings: [Sighting], knocks: [Int: UInt64])>(([], [:]))

        func knocked(_ room: Int, at time: UInt64) { state.withLock { $0.knocks[room] = time } }
        func sent(_ push: Push, at time: UInt64) {
            let room = push.address.token.withBytes { Int($0[0]) << 16 | Int($0[1]) << 8 | Int($0[2]) }
            state.withLock { state in
                state.sightings.append(
                    Sighting(
                        room: room, knock: state.knocks[room] ?? 0, at: time, place: state.sightings.count,
                        expiration: push.expirationS ?? 0, apnsID: push.apnsID))
            }
        }
        var sightings: [Sighting] { state.withLock { $0.sightings } }
    }

    private init(
        loop: EventLoop, machine: MachineClock, policy: Policy, outcome: @escaping @Sendable () -> Outcome,
        fault: @escaping @Sendable (FaultyStore.Call, MachineClock) -> FaultyStore.Fault
    ) throws {
        self.loop = loop
        self.machine = machine
        let record = Record()
        self.record = record
        simulated = try SimulatedBroker(
            loop: loop, machine: machine, resolution: 60, policy: policy,
            fault: { call in fault(call, machine) },
            script: { push in
                record.sent(push, at: machine.wall)
                return (0, outcome())
            })
    }

    /// Runs `story` with a broker that has been up for a minute, and ends it.
    /// - Parameters:
    ///   - whenStoreIsAsked: called at each call of the store.
    ///   - fails: returns true for a call for which the disk is too full.
    ///   - outcome: returns how the next push ends.
    static func play<Found: Sendable>(
        _ policy: Policy, whenStoreIsAsked: @escaping @Sendable (FaultyStore.Call, MachineClock) -> Void = { _, _ in },
        fails: @escaping @Sendable (FaultyStore.Call) -> Bool = { _ in false },
        outcome: @escaping @Sendable () -> Outcome = { .delivered },
        _ story: @escaping @Sendable (WatchedBroker) async throws -> Found
    ) async throws -> Found {
        try await MachineClock.play("timing") { loop, machine in
            let broker = try WatchedBroker(loop: loop, machine: machine, policy: policy, outcome: outcome) { call, machine in
                whenStoreIsAsked(call, machine)
                return fails(call) ? .failed : .none
            }
            try await broker.simulated.start()
            await broker.simulated.advance(60_000)
            let found = try await story(broker)
            await broker.simulated.kill()
            await broker.simulated.runOut()
            try broker.simulated.remove()
            return found
        }
    }

    nonisolated var sightings: [Sighting] { record.sightings }

    /// Creates rooms with both sides and a token for the first, numbered from 0.
    func makeRooms(_ count: Int, lifeSeconds: Int = 7_200) async throws {
        guard let broker = await simulated.run?.broker else { return }
        var made: [Task<RoomID, any Error>] = []
        let last = rooms.count + count - 1
        for number in rooms.count...last {
            made.append(Task(executorPreference: loop) { try await Self.makeRoom(number, broker, lifeSeconds) })
            // Many share one transaction.
            if made.count == 200 || number == last {
                for room in made { rooms.append(try await room.value) }
                made = []
            }
        }
    }

    private static func makeRoom(_ number: Int, _ broker: Broker, _ lifeSeconds: Int) async throws -> RoomID {
        var token = [UInt8](repeating: 7, count: 32)
        for index in 0..<3 { token[index] = UInt8(truncatingIfNeeded: number >> (16 - 8 * index)) }
        let code = Array("code-\(number)".utf8)
        let made = try await broker.rooms.create(
            CreateRoom(
                joinid: code, lifeSeconds: lifeSeconds, codeLifeSeconds: lifeSeconds, client: Facts.creator,
                address: try .test(Secret(copying: token.span))), from: .v4(0xc633_6401, port: 9))
        _ = try await broker.rooms.accept(
            AcceptRoom(joinid: code, client: Facts.joiner, address: nil), from: .v4(0xc633_6401, port: 9))
        return made.room
    }

    private func caller(_ room: Int, _ client: [UInt8]) -> Caller { Caller(room: rooms[room], client: client, member: nil) }

    func close(_ room: Int) async throws { _ = try await simulated.run?.broker.rooms.close(rooms[room]) }

    func withdraw(_ room: Int) async throws {
        _ = try await simulated.run?.broker.rooms.withdrawToken(caller(room, Facts.creator))
    }

    /// The first side reports that it is present.
    func come(_ room: Int) async throws {
        _ = try await simulated.run?.broker.rooms.report(caller(room, Facts.creator), leaving: false)
    }

    var jobs: [JobRecord] { get async throws { try await simulated.run?.store.read { try $0.jobs() } ?? [] } }

    /// The second side reports that it is present, so that the first is knocked at.
    func knock(_ room: Int) async throws -> Delivery? {
        let now = machine.wall
        let delivery = try await simulated.run?.broker.rooms.report(caller(room, Facts.joiner), leaving: false)
        if delivery == .queued { record.knocked(room, at: now) }
        return delivery
    }

    /// Knocks in all these rooms at one moment.
    /// - Returns: true if all knocks were queued.
    func knock(_ rooms: [Int]) async throws -> Bool {
        let knocks = rooms.map { room in Task(executorPreference: loop) { try await self.knock(room) } }
        var queued = true
        for knock in knocks where try await knock.value != .queued { queued = false }
        return queued
    }

    /// Reads a room's status at `time`. Returns the number of pushes that were sent before the answer.
    func ask(_ room: Int, at time: UInt64) -> Task<Int, any Error> {
        let wait = time - machine.wall
        let id = rooms[room]
        return Task(executorPreference: loop) {
            try await self.loop.sleep(wait)
            _ = try await self.simulated.run?.broker.rooms.status(id)
            return self.sightings.count
        }
    }

    /// Lets time pass until `time`, unix ms.
    func advance(to time: UInt64) async { await simulated.advance(time - min(time, machine.wall)) }
}

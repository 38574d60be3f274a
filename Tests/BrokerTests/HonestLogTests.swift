import Broker
import Courier
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Testing
import Vocabulary

/// Random stories of an honest broker, see `HonestLog`. Its log must always verify.
///
/// `MAYFLY_TEST_LOGS` is the number of stories; `make check` plays 1,000. `MAYFLY_TEST_SEED` plays the story of one seed again.
@Suite struct HonestLogTests {
    // Promise: honest-logs-verify
    @Test func honestLogsVerify() async throws {
        let again = Self.number("MAYFLY_TEST_SEED")
        let count = again == nil ? Self.number("MAYFLY_TEST_LOGS") ?? 30 : 1
        let first = again ?? UInt64.random(in: 0..<1 << 40)
        print("honest logs: seeds \(first)..<\(first + count)")
        let seeds = Seeds(first..<first + count)
        await withTaskGroup { group in
            for _ in 0..<2 {
                group.addTask {
                    while let seed = seeds.next() {
                        do {
                            let (report, messages) = try await Self.play(seed)
                            seeds.add(report, messages: messages)
                        } catch { Issue.record("MAYFLY_TEST_SEED=\(seed): \(error)") }
                    }
                }
            }
        }
        print("honest logs, together: \(seeds.total), \(seeds.messages) messages to Web Push services")
        // Otherwise no story had a subscription.
        if again == nil { #expect(seeds.messages > 0) }
    }

    /// Stories that have found faults.
    @Test(
        arguments: [
            // A clock that was ahead was set right between the opening of the database and the start. Entries and rooms kept the time ahead.
            (150_266_350_275, hasWebPush: false),
            // The clock stepped by hours while pushes were open. With windows of a minute, the gap seemed shorter than it was by up to two.
            (221_501_389_860, hasWebPush: true),
        ] as [(UInt64, hasWebPush: Bool)]) func storiesThatFoundFaultsVerify(seed: UInt64, hasWebPush: Bool) async throws
    { _ = try await Self.play(seed, hasWebPush: hasWebPush) }

    /// The stories that are left, and the totals of the others.
    private final class Seeds: Sendable {
        private let state: Mutex<(left: Range<UInt64>, total: Report, messages: Int)>

        init(_ seeds: Range<UInt64>) { state = Mutex((seeds, Report(), 0)) }

        func next() -> UInt64? { state.withLock { $0.left.popFirst() } }
        func add(_ report: Report, messages: Int) {
            state.withLock { state in
                state.total.add(report)
                state.messages += messages
            }
        }
        var total: Report { state.withLock { $0.total } }
        var messages: Int { state.withLock { $0.messages } }
    }

    private static func number(_ name: String) -> UInt64? {
        Environment.all.first { $0.name == name }.flatMap { UInt64($0.value) }
    }

    private static func play(_ seed: UInt64, hasWebPush: Bool = true) async throws -> (Report, messages: Int) {
        try await MachineClock.play("honest", wall: 1_800_000_000_000 + seed % 1_000 * 86_400) { loop, machine in
            try await HonestLog(seed: seed, hasWebPush: hasWebPush, loop: loop, machine: machine).play()
        }
    }
}

extension Report {
    fileprivate mutating func add(_ other: Report) {
        size += other.size
        sealed += other.sealed
        purged += other.purged
        opened += other.opened
        delivered += other.delivered
        failed += other.failed
        compared += other.compared
    }
}

/// A random story of an honest broker with its callers and the faults of its machine. A seed determines the story.
///
/// Rooms are created, accepted, knocked at, get other tokens and are closed, several calls at a time, while pushes are under way. The broker is
/// stopped, or killed at any call of its store, for seconds to hours. Its disk is full, its clocks step in the middle of calls, its machine
/// sleeps. At the end everything expires.
actor HonestLog: LoopActor {
    nonisolated let loop: EventLoop
    private nonisolated let machine: MachineClock
    private nonisolated let chance: Chance
    private nonisolated let trouble = Trouble()
    private nonisolated let facts = Facts()
    private nonisolated let broker: SimulatedBroker
    private nonisolated let webPush: SimulatedWebPush
    /// Draws all that concerns Web Push.
    private nonisolated let webPushChance: Chance
    private let hasWebPush: Bool
    /// How long the broker runs in the story.
    private let running: UInt64
    private let timing: LedgerTiming
    private var happened: [String] = []

    init(seed: UInt64, hasWebPush: Bool, loop: EventLoop, machine: MachineClock) throws {
        self.loop = loop
        self.machine = machine
        let chance = Chance(seed: seed)
        self.chance = chance
        let resolution = chance.pick([1, 1, 1, 60, 60, 60, 60, 5, 30] as [UInt64])
        timing = chance.timing(resolution)
        running = (resolution < 60 ? 80_000 : 240_000) + chance.upTo(resolution < 60 ? 220_000 : 660_000)
        let webPushChance = Chance(seed: seed &+ 1)
        let webPush = try SimulatedWebPush { [facts] _ in
            facts.sentMessage()
            return Self.answer(webPushChance)
        }
        (self.webPush, self.webPushChance, self.hasWebPush) = (webPush, webPushChance, hasWebPush)
        broker = try SimulatedBroker(
            loop: loop, machine: machine, resolution: resolution, policy: try Policy.rooms(timing),
            fault: { [trouble] call in trouble.fault(at: call, chance, machine) },
            whenStoreAsksTheTime: { [trouble] in trouble.stepNow(machine) }, meetsDeadlines: true,
            webPush: webPush, webPushSeed: seed &+ 2, script: { _ in Self.end(chance, machine) })
        happened.append("windows of \(resolution) s, \(timing)")
    }

    /// Plays the story and verifies its log.
    /// - Returns: also how many messages came to Web Push services.
    /// - Throws: `Unverified`, with the story so far.
    func play() async throws -> (Report, messages: Int) {
        do {
            try await story()
            let result = try await LogCheck(broker, facts).run()
            try broker.remove()
            await broker.runOut()
            return (result, facts.messages)
        } catch {
            await broker.kill()
            await broker.runOut()
            throw Unverified(error: "\(error)", folder: broker.folder, story: happened, prints: broker.prints.all)
        }
    }

    struct Unverified: Error, CustomStringConvertible {
        let error: String
        let folder: String
        let story: [String]
        let prints: [String]

        var description: String {
            "\(error)\n  its folder: \(folder)\n  what happened:\n    \(story.joined(separator: "\n    "))\n  what it printed:\n    "
                + prints.joined(separator: "\n    ")
        }
    }

    // MARK: The story

    private func story() async throws {
        // Otherwise at a later start.
        if hasWebPush, webPushChance.upTo(2) == 0 { await broker.enablePush() }
        try await start()
        let begin = machine.monotonic
        // Some stories have few events, so that each takes its full effect.
        let events = chance.pick([100, 100, 85, 82] as [UInt64])
        while machine.monotonic - begin < running {
            switch chance.upTo(events) {
            case ..<80: await someCalls()
            case ..<83: setTheClock()
            case ..<85: try await beAway(afterStop: chance.upTo(2) == 0)
            case ..<87: note("the machine sleeps") { machine.sleep($0) }
            case ..<89:
                note("the disk is full") {  // The log can't excuse what a broker does late while it runs.
                    trouble.fillDisk(until: machine.monotonic + min($0 / 20, 20_000))
                }
            case ..<94:
                let calls = chance.upTo(12)
                tell("to be killed at call \(calls)")
                trouble.kill(after: calls)
            default: break
            }
            await broker.advance(chance.pause())
            if await broker.isDead { try await beAway(afterStop: false) }
        }
        try await end()
    }

    /// Everything expires while no broker runs, and the next run purges it.
    private func end() async throws {
        trouble.end()
        let now = await broker.run?.time.now ?? 0
        if chance.upTo(3) > 0 {
            await broker.stop()
            tell("stopped for the last time")
        } else {
            await broker.kill()
            tell("killed for the last time")
        }
        machine.pass(chance.upTo(600_000))
        // Broker time can be far ahead of the wall clock.
        machine.step(max(Int64(now) - Int64(machine.wall), 0) + 9_000_000)
        try await start()
        // Jobs are purged half a minute after their deadline, and long tokens are published when a day ends.
        await broker.advance(timing.daySeconds * 1_000 + 200_000)
        await broker.stop()
    }

    private func start() async throws {
        for _ in 0..<5 {
            do {
                let resolution =
                    chance.upTo(12) == 0 ? chance.pick([1, 5, 60].filter { timing.hourSeconds.isMultiple(of: $0) }) : nil
                if let resolution { tell("windows of \(resolution) s from now on") }
                try await broker.start(resolution: resolution)
                return tell("started")
            } catch {
                guard trouble.hasStruck() else { throw error }
                tell("the start failed: \(error)")
                machine.pass(chance.upTo(chance.upTo(2) == 0 ? 5_000 : 900_000))
            }
        }
        trouble.end()
        try await broker.start()
    }

    private func beAway(afterStop: Bool) async throws {
        if afterStop { await broker.stop() } else { await broker.kill() }
        let away = chance.absence()
        tell("\(afterStop ? "stopped" : "killed"), and away for \(away / 1_000) s")
        trouble.endKilling()
        if hasWebPush, webPushChance.upTo(2) == 0 { await broker.enablePush() }
        machine.pass(away)
        if chance.upTo(3) == 0 { machine.reboot() }
        if chance.upTo(4) == 0 { setTheClock() }
        if chance.upTo(5) == 0 { trouble.kill(after: chance.upTo(8)) }
        try await start()
    }

    private func setTheClock() {
        let step = chance.step()
        // Also in the middle of a transaction.
        if chance.upTo(3) == 0 { trouble.stepInStore(after: chance.upTo(4), by: step) } else { machine.step(step) }
        tell("the clock is set by \(step / 1_000) s")
        // Often the clock steps again soon, back or elsewhere.
        switch chance.upTo(4) {
        case 0: trouble.stepLater(at: machine.monotonic + chance.upTo(300_000), by: -step)
        case 1: trouble.stepLater(at: machine.monotonic + chance.upTo(300_000), by: chance.step())
        default: break
        }
    }

    private func note(_ what: String, _ act: (UInt64) -> Void) {
        let length = chance.absence()
        tell("\(what) (\(length / 1_000) s)")
        act(length)
    }

    private func tell(_ what: String) {
        happened.append("\(machine.monotonic / 1_000) s, wall clock \(machine.wall / 1_000) s: \(what)")
    }

    // MARK: Calls

    /// One to three calls at once.
    private func someCalls() async {
        guard let broker = await broker.run?.broker else { return }
        for _ in 0...chance.upTo(4) {
            let call = chance.upTo(100)
            let room = facts.room(chance)
            Task(executorPreference: loop) {
                do {
                    try await self.perform(call, room, broker)
                } catch {
                    // The call was refused. The log counts such refusals like those of the API.
                    guard let refusal = BrokerError(thrown: error) else { return }
                    broker.recordRefusal(call < 50 ? .memberRequired : refusal)
                }
            }
        }
    }

    private func perform(_ call: UInt64, _ room: Facts.Room?, _ broker: Broker) async throws {
        guard let room, call >= 22 else { return try await create(broker) }
        let side = room.accepted ? chance.pick([Facts.creator, Facts.joiner]) : Facts.creator
        let caller = Caller(room: room.id, client: side, member: nil)
        switch call {
        case ..<50 where !room.accepted:
            let accept = AcceptRoom(joinid: room.code, client: Facts.joiner, address: try addressOrNone(broker))
            let membership = try await broker.rooms.accept(accept, from: Self.address)
            facts.sealed(membership.ref)
            facts.accepted(room)
        case ..<75:
            if try await broker.rooms.report(caller, leaving: false) == .queued { facts.queued() }
            // A present side would not be knocked at.
            if chance.upTo(4) > 0 { _ = try await broker.rooms.report(caller, leaving: true) }
        case ..<83:
            facts.sealed(try await broker.rooms.replaceToken(caller, with: address(broker)).ref)
        case ..<88: _ = try await broker.rooms.withdrawToken(caller)
        case ..<96:
            _ = try await broker.rooms.close(room.id)
            facts.closed(room)
        default: broker.recordRefusal(.notAMember)
        }
    }

    private func create(_ broker: Broker) async throws {
        let code = Array("code-\(facts.nextNumber())".utf8)
        let life = chance.life(from: machine.wall)
        let request = CreateRoom(
            joinid: code, lifeSeconds: life, codeLifeSeconds: Int(chance.upTo(2) == 0 ? UInt64(life) : 10 + chance.upTo(600)),
            client: Facts.creator, address: try addressOrNone(broker))
        let membership = try await broker.rooms.create(request, from: Self.address)
        facts.made(Facts.Room(id: membership.room, code: code), membership.ref)
    }

    /// Half of all rooms have the same token, so that its budget is exceeded.
    private func token() throws -> Secret {
        chance.upTo(2) == 0 ? try Secret.random(32) : try Secret(copying: [UInt8](repeating: 7, count: 32).span)
    }

    /// A third of all addresses are subscriptions, half of them the same.
    private func address(_ broker: Broker) throws -> PushAddress {
        let token = try token()
        guard broker.settings.subscribable != nil, webPushChance.upTo(3) == 0 else { return .test(token) }
        return try webPush.address(token.withBytes { token in token.indices.map { token[$0] } }, at: broker.settings)
    }

    private func addressOrNone(_ broker: Broker) throws -> PushAddress? { chance.upTo(8) == 0 ? nil : try address(broker) }

    private static let address = SocketAddress.v4(0xc633_6401, port: 9)

    /// Returns a Web Push service's answer.
    private static func answer(_ chance: Chance) -> (afterMs: UInt64, SimulatedWebPush.Reply) {
        let reply: SimulatedWebPush.Reply =
            switch chance.upTo(10) {
            case 0: .status(410)
            case 1: .status(404)
            case 2: .status(429, fields: "retry-after: \(chance.upTo(60))\r\n")
            case 3: .status(chance.pick([302, 403, 413]))
            case 4: .status(503)
            case 5: .lost
            default: .status(201)
            }
        return (chance.upTo(3_000), reply)
    }

    /// Returns how a push to Apple ends, and when.
    private static func end(_ chance: Chance, _ machine: MachineClock) -> (afterMs: UInt64, Outcome) {
        let wait = chance.upTo(3) == 0 ? chance.upTo(120_000) : chance.upTo(3_000)
        let outcome: Outcome =
            switch chance.upTo(10) {
            case ..<5: .delivered
            case 5: .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: machine.wall))
            case 6: .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: 1))
            case 7: .failed(status: 400, reason: .badDeviceToken, verdict: .purge(ifSealedBefore: nil))
            case 8: .failed(status: 0, reason: .late, verdict: .keep)
            default: .failed(status: 403, reason: .invalidProviderToken, verdict: .configuration)
            }
        return (wait, outcome)
    }
}

import Broker
import Ledger
import Linux
import Policy
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// The clocks of nodes and database step forwards and backwards, by up to eight hours. The log verifies after each step, and no node takes another for
/// dead.
@Suite struct ClockStepTests {
    // Promise: clock-steps-keep-the-log
    @Test(arguments: [(1, 1), (3, 3)] as [(Int, UInt64)])
    func theLogVerifiesAfterEachStep(nodes: Int, seed: UInt64) async throws {
        var deployment = try await Stepping(nodes: nodes, seed: seed)
        for _ in 0..<200 { try await deployment.step() }
        try await deployment.end()
        #expect(deployment.opened > 100 && deployment.refused > 20, "\(deployment.opened) \(deployment.refused)")
    }

    /// An NTP step, or a failover to a server whose clock is right.
    @Test func anOutcomeIsNeverBeforeItsOpening() async throws {
        var deployment = try await Stepping(nodes: 1, seed: 1)
        for back: Int64 in [3_000, 30_000, 59_000, 240_000] {
            try await deployment.open()
            deployment.stepAll(by: -back)
            try await deployment.finishAll()
            try await deployment.publish()
        }
        try await deployment.end()
    }

    /// While the clock is behind the log, the log's time must go on with the keys, even if nobody calls.
    @Test(arguments: [true, false]) func aQuietLogVerifiesAfterAStepBack(hasEntry: Bool) async throws {
        var deployment = try await Stepping(nodes: 2, seed: 1)
        deployment.stepAll(by: 7_200_000)
        try await deployment.renew()
        if hasEntry { try await deployment.open() }
        deployment.stepAll(by: -7_200_000)
        try await deployment.beQuiet(seconds: 7_200)
        try await deployment.end()
    }

    /// The sweep comes first, and is a sign of life. It must not hide that the time before was passed over.
    @Test func aStepUnderAnOpenPushIsAGap() async throws {
        for step: Int64 in [600_000, 90_000_000] {
            var deployment = try await Stepping(nodes: 1, seed: 1)
            try await deployment.open()
            deployment.stepAll(by: step)
            try await deployment.sweep()
            try await deployment.finishAll()
            try await deployment.beQuiet(seconds: 600)
            try await deployment.end()
        }
    }

    /// A sweep that met the first step must not count the second one as known.
    @Test func aSecondStepUnderAnOpenPushIsAGap() async throws {
        var deployment = try await Stepping(nodes: 1, seed: 1)
        try await deployment.renew()
        deployment.nodes[0].store.journal.noteAlive(at: deployment.database.now + 600_000, isResuming: false)
        try await deployment.open()
        deployment.stepAll(by: 600_000)
        try await deployment.sweep()
        try await deployment.finishAll()
        try await deployment.beQuiet(seconds: 60)
        try await deployment.end()
    }

    // Promise: wrong-clock-stores-nothing
    @Test func aDatabaseClockThatDiffersIsRefused() async throws {
        var deployment = try await Stepping(nodes: 1, seed: 1)
        for step: Int64 in [61_000, -61_000] {
            deployment.database.step(step)
            await #expect(throws: StoreError.wrongClock) { try await deployment.open() }
            #expect(deployment.nodes[0].store.fault == .wrongClock)
            deployment.database.step(-step)
            try await deployment.renew()
            try await deployment.open()
            #expect(deployment.nodes[0].store.fault == nil)
        }
        try await deployment.end()
    }
}

private struct Stepping {
    struct Node {
        let name: String
        let wall: TestClock
        let time: BrokerTime
        let store: PostgresStore
    }

    let fixture: Fixture
    let database: TestClock
    private let steady = TestClock(1_000_000)
    let nodes: [Node]
    private(set) var opened = 0
    private(set) var refused = 0
    private var chance: Chance
    private var log: [[UInt8]] = []
    private var jobs: [(job: JobRecord, node: Int, opened: UInt64)] = []
    private var current: [RegistrationRecord] = []
    private var number = 0
    private var ratcheted: UInt64 = 0
    private var published: UInt64 = 0
    private let resolution: UInt64 = 10
    private let timing = LedgerTiming(hourSeconds: 600, daySeconds: 1_800, batchSeals: 9)
    private static let policy = Array(
        """
        {"ledger":{"batchSeals":9,"daySeconds":1800,"hourSeconds":600},"limits":{"roomLifeSeconds":{"max":20000}},
        "templates":{"task_complete":{}}}
        """.utf8)
    private let key: SigningKey
    private let folder: LedgerFolder

    init(nodes count: Int, seed: UInt64) async throws {
        chance = Chance(state: seed)
        let begin: UInt64 = 1_700_000_000_000
        let (database, steady) = (TestClock(begin), steady)
        self.database = database
        fixture = try Fixture(.postgres, resolution: 10, timing: timing)
        await fixture.store.shutDown()
        let digest = Digest.sha256(Self.policy.span)
        let start = Entry.Op.brokerStarted(
            node: EntryText("n")!, version: EntryText("1")!, policy: digest, resolutionSeconds: 10,
            binary: digest)
        let uri = try TestPostgres.schema(named: fixture.folder)
        let nodes = try (0..<count).map { number in
            let wall = TestClock(begin)
            let agreed = AgreedClock(wall: { wall.now }, boot: { steady.now })
            let time = BrokerTime(persisted: begin, wall: { agreed.nowMs }, boot: { steady.now })
            let journal = PostgresJournal(
                uri: uri, resolution: 10, resumption: [start], now: { time.now },
                isBehind: { time.raise(to: $0) },
                clocks: PostgresClocks(agreed: agreed, monotonic: { steady.now }, database: { database.now }))
            let timing = LedgerTiming(hourSeconds: 600, daySeconds: 1_800, batchSeals: 9)
            let store = try PostgresStore(journal, timing: timing, connections: 2)
            return Node(name: "node-\(number)", wall: wall, time: time, store: store)
        }
        self.nodes = nodes
        key = try SigningKey(origin: "log.example/0", seed: [UInt8](repeating: 1, count: 32).span)
        folder = LedgerFolder("\(fixture.folder)/ledger")
        _ = try folder.writePolicy(Self.policy)
        _ = try await nodes[0].store.takeLease(nodes[0].name, address: "", after: 0)
        for node in nodes.dropFirst() { _ = try await node.store.join(node.name) }
        for node in nodes { try await node.store.start([start], marks: []) }
        try await ratchet()
    }

    // MARK: Time

    private func pass(_ ms: UInt64) {
        for clock in [steady, database] + nodes.map(\.wall) { clock.advance(ms) }
    }

    func stepAll(by ms: Int64) { for clock in [database] + nodes.map(\.wall) { clock.step(ms) } }

    private mutating func stepSome() {
        let size = [1_000, 20_000, 50_000, 90_000, 4_000_000, 30_000_000][Int(chance.next() % 6)] as UInt64
        let step = Int64(chance.next() % size) * (chance.next() % 2 == 0 ? 1 : -1)
        switch chance.next() % 8 {
        case 0: database.step(step)
        case 1: nodes[Int(chance.next() % UInt64(nodes.count))].wall.step(step)
        case 2, 3: stepAll(by: step)
        // Somebody sets all of them right.
        default: for node in nodes { node.wall.step(Int64(database.now) - Int64(node.wall.now)) }
        }
    }

    // MARK: Steps

    mutating func step() async throws {
        for _ in 0..<2 {
            pass(chance.next() % 8_000)
            try await call()
            try await ratchet()
            try await finishSome()
            try await publish()
        }
        for _ in 0...chance.next() % 2 { stepSome() }
        for _ in 0..<2 { try await renew() }
        try await verify()
    }

    /// Nodes renew and look after each other, as they do every second or two. Nobody is dead.
    func renew() async throws {
        for node in nodes {
            #expect(try await node.store.renew(NodeReport(name: node.name, steps: 1, ledgerSize: UInt64(log.count))))
        }
        for node in nodes {
            #expect(try await node.store.takeJobsOfGoneNodes().isEmpty)
            #expect(try await !node.store.lease().isFree)
        }
    }

    private mutating func call() async throws {
        do throws(StoreError) {
            try await register()
            for _ in 0..<2 { try await open() }
            if chance.next() % 4 == 0, let record = current.popLast() {
                _ = try await any().store.write { try $0.unregister([record.row], cause: .ended) }
            }
            if chance.next() % 3 == 0 {
                let node = any()
                while try await node.store.sweep(now: node.time.now, limit: 20, jobSlack: 30_000).more {}
            }
        } catch {
            guard error == .wrongClock else { throw error }
            refused += 1
        }
    }

    private mutating func any() -> Node { nodes[Int(chance.next() % UInt64(nodes.count))] }

    private mutating func register() async throws(StoreError) {
        number += 1
        let node = any()
        let life = 60_000 + chance.next() % 4_000_000
        var record = fixture.registration(number, owner: number, life: life, from: node.time.now)
        record.isLong = life > 3_600_000
        _ = try await node.store.write { [record] in
            try $0.register(NewRegistration(record), replacing: [], owners: [record.owner], limit: 1)
        }
        current.append(record)
    }

    /// Opens a token at some node.
    mutating func open() async throws(StoreError) {
        if current.isEmpty { try await register() }
        let index = Int(chance.next() % UInt64(nodes.count))
        let node = nodes[index]
        guard let record = current.last, record.expires > node.time.now + 130_000 else {
            _ = current.popLast()
            return
        }
        number += 1
        var job = fixture.job(number, record)
        job.context.deadlineMs = node.time.now + 120_000
        let outcome = try await node.store.write { [job] in
            try $0.apply(AudienceChange(jobs: [AudienceJob(job)]), now: job.deadline)
        }
        guard outcome == .done else { return }
        opened += 1
        jobs.append((job, index, steady.now))
    }

    /// Each at its node, up to two minutes later.
    private mutating func finishSome() async throws {
        for _ in 0..<2 where !jobs.isEmpty {
            let isLate = steady.now - jobs[0].opened > 50_000
            let index = isLate ? 0 : Int(chance.next() % UInt64(jobs.count))
            let (job, node, _) = jobs.remove(at: index)
            try await nodes[node].store.write { try $0.finish(job, JobOutcome(status: 200, reason: nil)) }
        }
    }

    mutating func finishAll() async throws { while !jobs.isEmpty { try await finishSome() } }

    /// Only what runs by itself.
    mutating func beQuiet(seconds: UInt64) async throws {
        for _ in 0..<seconds / 10 {
            pass(10_000)
            try await sweep()
            try await ratchet()
            try await publish()
        }
    }

    func sweep() async throws {
        for node in nodes { while try await node.store.sweep(now: node.time.now, limit: 20, jobSlack: 30_000).more {} }
    }

    // MARK: The node that leads

    private mutating func ratchet() async throws {
        let epoch = nodes[0].time.ratchet / 300_000 - 2
        guard epoch > ratcheted else { return }
        let node = nodes[0]
        while try await node.store.sweep(now: node.time.now, limit: 20, jobSlack: 30_000).more {}
        try await node.store.record([.keysRatcheted(epoch: epoch, swept: 0)])
        ratcheted = epoch
    }

    mutating func publish() async throws {
        let (store, now) = (nodes[0].store, nodes[0].time.now / 1_000 / resolution * resolution)
        guard now > published else { return }
        published = now
        while true {
            let entries = try await store.closedEntries(before: now, limit: 50)
            guard let last = entries.last else { return }
            let size = UInt64(log.count + entries.count)
            let head = LogHead(size: size, checkpoint: "signed", window: last.window)
            #expect(try await store.commit(head, after: UInt64(log.count), entries: entries))
            log += entries.map(\.bytes)
            try await store.published(upTo: size)
        }
    }

    private func verify() async throws {
        let plan = TileLog().append(log)
        // The log only grows, so every earlier head is a prefix of this one.
        try folder.publish(plan, checkpoint: key.sign(size: plan.newSize, root: plan.root))
        if log.isEmpty { return }
        do {
            _ = try await Verifier(folder.source(after: plan), key: key.verifierKey, allowsGaps: true, unique: true).verify()
        } catch {
            let index = Int(error.index ?? 0)
            let around = log[max(0, index - 12)..<min(index + 4, log.count)]
            Issue.record("\(error)\n\(around.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "\n"))")
            throw error
        }
    }

    /// All clocks are right again, and everything expires.
    mutating func end() async throws {
        for node in nodes { node.wall.step(Int64(database.now) - Int64(node.wall.now)) }
        try await finishAll()
        for _ in 0..<6 {
            pass(5_000)
            try await renew()
            try await ratchet()
            try await publish()
        }
        try await verify()
        for node in nodes { await node.store.shutDown() }
        try fixture.remove()
    }
}

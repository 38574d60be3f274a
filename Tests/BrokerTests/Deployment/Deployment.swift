import Broker
import EventLoop
import Ledger
import Linux
import Synchronization
import TestPostgres
import Vocabulary

@testable import Sealing
@testable import Storage

/// One to five nodes of the real code in one process, on a real PostgreSQL: their broker, outbox, presence, keeper, sequencer, sweeper, terms, lease, joins,
/// takeovers and key transfers. Machines, clocks, network, Apple and callers are simulated, and so are the faults of the database.
///
/// All random draws come from one seed. `SimulatedTime` says which order they don't decide.
actor Deployment {
    /// Work for the thread that moves the time.
    private enum Step: Sendable {
        case start(SimulatedNode)
        case started(NodeRun)
        case ended(NodeRun)
        case fault
        /// No node is harmed any more.
        case unharmed
    }

    private final class Inbox: Sendable {
        private let steps = Mutex<[Step]>([])
        func add(_ step: Step) { steps.withLock { $0.append(step) } }
        func next() -> Step? { steps.withLock { $0.isEmpty ? nil : $0.removeFirst() } }
        var isEmpty: Bool { steps.withLock(\.isEmpty) }
    }

    /// The faults that last.
    private final class Open: Sendable {
        private let count = Mutex(0)
        func add(_ change: Int) { count.withLock { $0 += change } }
        var isEmpty: Bool { count.withLock { $0 == 0 } }
    }

    nonisolated let world: DeploymentWorld
    nonisolated let nodes: [SimulatedNode]
    nonisolated let life: DeploymentLife
    private nonisolated let phones: DeploymentPhones
    private nonisolated let inbox = Inbox()
    private nonisolated let schema: String
    /// A server that only this deployment uses. Nil: it shares that of `make test`, which never crashes.
    nonisolated let server: PostgresServer?
    private nonisolated var serverURI: String { server?.uri ?? TestPostgres.uri }
    /// When the server was copied for a failover.
    private var copiedAt: UInt64?
    /// The troubles of nodes that don't serve, by node.
    private var absences: [Int: Int] = [:]
    /// A node that is harmed, so that no other is until it serves again.
    private var harmed: Int?
    private nonisolated let open = Open()
    /// The newest generation of any seal, since when, and how many seals have each.
    private nonisolated let sealed = Mutex<(newest: UInt32, since: UInt64, counts: [UInt32: Int])>((0, 0, [:]))
    private var isEnding = false
    private var restarts = true
    private var hasFaults = false
    private var faults: [String: Int] = [:]
    private nonisolated let kinds: [Fault]
    /// How many times longer than usual the times between two faults are.
    private nonisolated let rarity: UInt64

    private nonisolated var time: SimulatedTime { world.time }
    private nonisolated var chance: Chance { world.chance }
    private nonisolated var story: Story { world.story }

    /// How long after a start or the end of a fault things may still be unusual: grace after a start, terms that run out.
    private static let recoveryMs: UInt64 = 18_000
    /// In which time all nodes are ready once there are no faults: a restart, the end of a term, and the keys.
    private static let readyMs: UInt64 = 60_000
    /// How long people live on after that.
    private static let calmMs: UInt64 = 300_000

    init(seed: UInt64, nodes count: Int, pace: Pace, server: PostgresServer? = nil) throws {
        self.server = server
        let folder = try SimulatedBroker.makeFolder()
        try File.removeTree(folder)
        schema = folder
        let uri = try TestPostgres.schema(named: folder, at: server?.uri ?? TestPostgres.uri)
        try PostgresStore.makeSchema(uri: uri)
        let world = try DeploymentWorld(seed: seed, uri: uri, pace: pace)
        self.world = world
        // Alone, a node without a key file forgets everything at each restart.
        let made = try (0..<count).map { number in
            try SimulatedNode(number, world, keepsKeys: count == 1 || number == 0 && world.chance.upTo(4) > 0)
        }
        nodes = made
        let life = DeploymentLife(world) { made.compactMap(\.run).filter(\.isReady) }
        let phones = DeploymentPhones(world, life)
        world.services.whenSeen { [weak life, weak phones] sighting, mayPurge in
            if phones?.saw(sighting, mayPurge: mayPurge) == false { life?.saw(sighting, mayPurge: mayPurge) }
        }
        // A failover may lose what the log had.
        if server == nil {
            world.services.whenAnswered { [weak life] apnsID, run in life?.delivered(apnsID, by: run) }
        }
        (kinds, rarity) = (Self.kinds(world.chance, hasServer: server != nil), world.chance.pick([1, 1, 2]))
        (self.life, self.phones) = (life, phones)
        if let first = made.first, let wrapping = first.wrapping {
            // The keys are almost a day old, so the next generation is born in one of the next three epochs.
            let age = 86_400_000 - 300_000 * (1 + world.chance.upTo(3))
            try KeyRing.create(path: first.keyFile, wrapping: wrapping, nowMs: world.time.now - age)
        }
    }

    // MARK: The play

    struct Failure: Error, CustomStringConvertible {
        let what: String
        let story: [String]

        var description: String { "\(what)\n  what happened last:\n    \(story.joined(separator: "\n    "))" }
    }

    /// Plays a life with faults, then one without, and checks what is left.
    func play(_ ms: UInt64) async throws {
        // Otherwise in the middle, at each node's next start.
        if chance.upTo(2) == 0 { world.takesSubscriptions.set(true) }
        try await begin()
        keepLiving()
        hasFaults = true
        inbox.add(.fault)
        let start = time.now
        time.after(ms / 2) { [world] in world.takesSubscriptions.set(true) }
        while time.now < start + ms {
            try await pass(min(start + ms - time.now, 86_400_000))
            if world.pace == .days { print("deployment: \((time.now - start) / 86_400_000) days; \(summary)") }
        }
        try await end()
    }

    /// Starts all nodes, and waits until they serve.
    /// - Parameter restarts: false if a node that has ended stays away until `start`.
    func begin(restarts: Bool = true) async throws {
        self.restarts = restarts
        try start(nodes[0])
        // The first may have a key file, which must not come too late.
        try await pass(5_000)
        for node in nodes.dropFirst() { try start(node) }
        try await pass(Self.readyMs)
        try checkReady()
    }

    /// The number of calls, pushes and faults so far, by kind.
    var summary: String {
        let faults = faults.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
        return "\(life.summary); faults: \(faults.joined(separator: ", "))"
    }

    /// Seals take the newest generation. A node that has no contact for ten minutes ends.
    /// - Parameter pause: the time since the last look, ms.
    private nonisolated func checkGenerations(_ pause: UInt64) {
        let counts: [(generation: UInt32, count: Int)]
        do {
            let sealed = "SELECT generation FROM token UNION ALL SELECT generation FROM registration"
            counts = try TestPostgres.texts(
                "SELECT generation || ' ' || count(*) FROM (\(sealed)) AS s GROUP BY generation", at: world.uri
            )
            .map { $0.split(separator: " ") }.map { (UInt32($0[0]) ?? 0, Int($0[1]) ?? 0) }
        } catch { return world.story.fail("\(error)") }
        let (now, story) = (world.time.now, world.story)
        let more = sealed.withLock { sealed in
            defer { sealed.counts = Dictionary(uniqueKeysWithValues: counts.map { ($0.generation, $0.count) }) }
            let newest = counts.map(\.generation).max() ?? 0
            if newest > sealed.newest { (sealed.newest, sealed.since) = (newest, now) }
            if now < sealed.since + world.pace.generationSpreadMs
                || world.pace == .minutes && !story.isCalm(from: now - pause, to: now)
            {
                return false
            }
            return counts.contains { $0.generation < sealed.newest && $0.count > sealed.counts[$0.generation] ?? 0 }
        }
        if more { world.story.fail("a new seal has an old generation") }
    }

    func keepLiving() {
        let (time, chance, life, phones, pace) = (time, chance, life, phones, world.pace)
        @Sendable func live() {
            if chance.upTo(6) == 0 { phones.act() } else { life.act() }
            time.after(chance.upTo(pace.longestPause(at: time.now))) { live() }
        }
        @Sendable func forget() {
            life.forgetEnded()
            time.after(3_600_000) { forget() }
        }
        let pause: UInt64 = pace == .days ? 600_000 : 30_000
        @Sendable func look() {
            checkGenerations(pause)
            time.after(pause) { look() }
        }
        live()
        forget()
        look()
    }

    private func end() async throws {
        hasFaults = false
        story.tell("no more faults")
        while !open.isEmpty { try await pass(1_000) }
        try await pass(Self.readyMs)
        try checkReady()
        life.checkAll()
        // Faults come so often that most rules for calm times hold only here.
        if world.pace == .minutes {
            try await pass(Self.calmMs)
            if nodes.count > 1 {
                try await upgrade()
                try await pass(Self.calmMs)
            }
        }
        life.checkAll()
        try checkSecrets(rows: TestPostgres.rows(inSchemaNamed: schema, at: serverURI))
        try await conclude(life.facts)
    }

    /// Ends all rooms and nodes, checks what is left, and deletes it.
    /// - Parameters:
    ///   - facts: what the log must have.
    ///   - isBrief: true if rows and partitions may still be left.
    func conclude(_ facts: Facts, isBrief: Bool = false) async throws {
        try await closeAll()
        // Rooms whose creation got no answer end by themselves, and then their tokens are published.
        try await pass(isBrief ? 30_000 : world.pace.longestLifeSeconds * 1_000 + world.pace.afterlife)
        if !isBrief {
            try checkRows()
            try checkPartitions()
        }
        try await finish(facts)
    }

    /// From now on nothing new begins. Closes all rooms, and deletes all phones.
    func closeAll() async throws {
        life.beQuiet()
        try await pass(20_000)
        phones.deleteAll()
        life.closeAll()
    }

    /// Stops all nodes, and checks what they leave.
    /// - Parameters:
    ///   - facts: what the log must have.
    ///   - isOver: false if seals and purges may still wait for their batch.
    func finish(_ facts: Facts, isOver: Bool = true) async throws {
        isEnding = true
        for node in nodes {
            guard let run = node.run else { continue }
            stop(run)
            try await pass(20_000)
        }
        try checkSecrets(rows: [])
        try await check(facts, isOver: isOver)
        try await remove()
    }

    /// No row and no file of a node has the bytes of an address.
    private func checkSecrets(rows: [String]) throws {
        var search = ByteSearch()
        for end in DeploymentLife.endsOfTokens {
            search.add(end, "a token", until: .max)
            search.add(Array(Hex.encode(end.span).utf8), "an endpoint", until: .max)
        }
        search.add(Array(world.webPush.point.dropFirst()), "a p256dh", until: .max)
        var found = rows.lazy.compactMap { search.find(in: Array($0.utf8)) }.first
        for node in nodes { found = try found ?? search.find(inFolder: node.folder, isDeep: true) }
        if let found { throw Failure(what: found, story: story.last(40)) }
    }

    /// Restarts one node after the other, as an upgrade does.
    private func upgrade() async throws {
        for node in nodes {
            guard let run = node.run else { continue }
            end(run)
            // It stays away for up to 65 s.
            try await pass(65_000 + Self.readyMs)
            try checkReady()
        }
    }

    /// Lets time pass, and does what it brings.
    func pass(_ ms: UInt64) async throws {
        let end = time.now + ms
        while true {
            await time.pass(end - time.now) { [inbox, story] in !inbox.isEmpty || story.failure != nil }
            if let failure = story.failure { throw Failure(what: failure, story: story.last(40)) }
            guard let step = inbox.next() else { return }
            switch step {
            case .start(let node): try start(node)
            case .started(let run): started(run)
            case .ended(let run): await ended(run)
            case .fault: fault()
            case .unharmed: harmed = nil
            }
        }
    }

    // MARK: Nodes

    func start(_ node: SimulatedNode) throws {
        guard node.run == nil else { return }
        if absences[node.machine.number] == nil { absences[node.machine.number] = story.beginTrouble(isAbsence: true) }
        if nodes.contains(where: { $0.run?.isReady == true }) { try node.meddle() }
        let loop = try node.machine.begin(node.name.description)
        let run = NodeRun(node, loop)
        let (inbox, time) = (inbox, time)
        run.gate.whenDead { time.after(0) { inbox.add(.ended(run)) } }
        node.run = run
        story.tell("\(node.name) starts")
        Task(executorPreference: loop) {
            do {
                try await run.start()
                time.after(0) { inbox.add(.started(run)) }
            } catch {
                node.log.error("start: \(error)")
                run.gate.die()
            }
        }
    }

    private func started(_ run: NodeRun) {
        guard run.node.run === run, !run.gate.isDead else { return }
        let number = run.machine.number
        story.tell("\(run.node.name) serves")
        if harmed == number { harmed = nil }
        if let absence = absences.removeValue(forKey: number) {
            time.after(Self.recoveryMs) { [story] in story.end(trouble: absence) }
        }
        if run.parts?.isLoss == true { story.fail("\(run.node.name) found the keys lost, although a node had them all the time") }
    }

    /// A process has ended. What is left of it ends without effect.
    private func ended(_ run: NodeRun) async {
        let (node, machine) = (run.node, run.machine)
        guard node.run === run else { return }
        story.tell("\(node.name) has ended")
        if absences[machine.number] == nil {
            if !isEnding, story.isCalm(from: time.now - Self.recoveryMs, to: time.now) {
                story.fail("\(node.name) ended by itself, although nothing was wrong")
            }
            absences[machine.number] = story.beginTrouble(isAbsence: true)
        }
        world.network.close(run)
        if machine.isStopped { machine.resume() }
        Task(executorPreference: run.loop) { await run.abandon() }
        await time.rest()
        // Its tasks end at their next timers. Some timers never end, e.g. those of sides that are believed while no message can arrive.
        for _ in 0..<200 where machine.skipToTimer() { await time.rest() }
        await run.closeStore()
        run.loop.stop()
        run.loop.join()
        machine.end()
        node.run = nil
        life.ended(run)
        if isEnding || !restarts { return }
        let (inbox, wait) = (inbox, world.pace.absence(chance))
        open.add(1)
        time.after(wait) { [open] in
            open.add(-1)
            inbox.add(.start(node))
        }
    }

    /// Stops or kills a process. Its absence is no fault of the others.
    func end(_ run: NodeRun, isKilled: Bool = false) {
        absences[run.machine.number] = story.beginTrouble(isAbsence: true)
        if isKilled { run.gate.die() } else { stop(run) }
    }

    private func stop(_ run: NodeRun) {
        story.tell("\(run.node.name) is stopped")
        run.machine.deliver { _ = Task(executorPreference: run.loop) { await run.stop() } }
        life.reconnect(from: run)
    }

    // MARK: Faults

    private enum Fault: CaseIterable {
        case kill, killAtCall, stop, hang, sleep, cut, weather, deafness, database, clock, databaseClock, apple, crash, failover

        /// How often it comes, compared with the others.
        var weight: Int {
            switch self {
            // A failover and its preparation each take one. Stories without a server of their own have none.
            case .failover: 8
            case .kill, .killAtCall, .hang, .database, .apple, .crash: 2
            case .stop, .sleep, .cut, .weather, .deafness, .clock, .databaseClock: 1
            }
        }
    }

    /// Draws the kinds of faults of a story. Half of all stories have few: a fault often hides what another one shows (swarm testing, Groce et al., 2012).
    private static func kinds(_ chance: Chance, hasServer: Bool) -> [Fault] {
        let all = Fault.allCases.filter { hasServer || $0 != .crash && $0 != .failover }
        var some = all
        if chance.upTo(2) == 0 { some = all.filter { $0 == .failover || chance.upTo(3) == 0 } }
        if some.isEmpty { some = [.kill] }
        return some.flatMap { Array(repeating: $0, count: $0.weight) }
    }

    private func fault() {
        guard hasFaults else { return }
        let inbox = inbox
        time.after(world.pace.nextFault(chance) * rarity) { inbox.add(.fault) }
        switch chance.pick(kinds) {
        case .kill: harm("killed") { $0.gate.die() }
        case .killAtCall:
            let (calls, isDone) = (Int(chance.upTo(40)), chance.upTo(2) == 0)
            harm("to be killed \(isDone ? "after" : "before") its call \(calls)") { $0.gate.end(after: calls, isDone: isDone) }
        case .stop: harm("to be stopped") { self.stop($0) }
        case .hang: hang(sleeps: false)
        case .sleep: hang(sleeps: true)
        case .cut: cut()
        case .weather: weather()
        case .deafness: deafen(chance.pick(nodes).machine.number, for: someTime())
        case .database: troubleDatabase()
        case .clock: stepClock()
        case .databaseClock: stepDatabaseClock()
        case .apple: troubleApple()
        case .crash: crashServer()
        case .failover: failOver()
        }
    }

    /// A node that may be harmed, since another one is ready. Often the one that leads.
    private func victim() -> NodeRun? {
        let ready = nodes.compactMap(\.run).filter(\.isReady)
        guard harmed == nil, ready.count > 1 || nodes.count == 1, !ready.isEmpty else { return nil }
        return chance.upTo(3) == 0 ? ready.first { $0.parts?.node.leads == true } ?? chance.pick(ready) : chance.pick(ready)
    }

    /// Does something to a node, if another one is ready.
    private func harm(_ what: String, _ act: (NodeRun) -> Void) {
        guard let run = victim() else { return }
        harmed = run.machine.number
        count(what.hasPrefix("to be ") ? String(what.dropFirst(6)) : what)
        harm(run, what, act)
    }

    func harm(_ run: NodeRun, _ what: String, _ act: (NodeRun) -> Void) {
        story.tell("\(run.node.name) is \(what)")
        if absences[run.machine.number] == nil { absences[run.machine.number] = story.beginTrouble(isAbsence: true) }
        act(run)
    }

    private func count(_ fault: String) { faults[String(fault.prefix { $0 != " " }), default: 0] += 1 }

    /// Something is wrong for some time.
    private func trouble(_ what: String, for ms: UInt64, _ end: @escaping @Sendable () -> Void) {
        story.tell("\(what), for \(ms) ms")
        let (number, story) = (story.beginTrouble(), story)
        open.add(1)
        time.after(ms) { [open] in
            end()
            story.tell("the end of: \(what)")
            open.add(-1)
        }
        time.after(ms + Self.recoveryMs) { story.end(trouble: number) }
    }

    private func someTime() -> UInt64 { world.pace.fault(chance) }

    /// Less than the ten minutes after which nodes without the database forget their keys.
    private func shortTime() -> UInt64 { min(someTime(), 500_000) }

    /// A process hangs, or its machine sleeps.
    private func hang(sleeps: Bool) {
        guard let run = victim() else { return }
        count(sleeps ? "sleeps" : "hangs")
        hang(run, sleeps: sleeps, for: someTime())
    }

    func hang(_ run: NodeRun, sleeps: Bool, for ms: UInt64) {
        let (machine, life, time) = (run.machine, life, time)
        machine.stop()
        time.after(15_000) { if !run.gate.isDead, machine.isStopped { life.reconnect(from: run) } }
        trouble("\(run.node.name) \(sleeps ? "sleeps" : "hangs")", for: ms) {
            if run.gate.isDead { return }
            machine.resume(slept: sleeps ? ms : 0)
            self.checkForgets(run, ms)
        }
    }

    /// A process that had no contact with the database for ten minutes ends. The other nodes may have given its keys up as lost.
    private nonisolated func checkForgets(_ run: NodeRun, _ ms: UInt64) {
        if ms < 610_000 { return }
        let (machine, story, stops) = (run.machine, story, run.machine.stops)
        // Longer than a renewal under way takes if nothing is answered.
        time.after(30_000) {
            if run.serves, machine.stops == stops {
                story.fail("\(run.node.name) has kept its keys through \(ms) ms without contact")
            }
        }
    }

    private func cut() {
        guard nodes.count > 1 else { return }
        let from = chance.pick(nodes).machine.number
        let to = chance.pick(nodes.filter { $0.machine.number != from }).machine.number
        let bothWays = chance.upTo(2) == 0
        count("cut")
        let network = world.network
        network.cut(from: from, to: to)
        if bothWays { network.cut(from: to, to: from) }
        trouble("the link from node-\(from + 1) to node-\(to + 1) is cut\(bothWays ? " both ways" : "")", for: someTime()) {
            network.join(from: from, to: to)
            network.join(from: to, to: from)
        }
    }

    private func weather() {
        var weather = SimulatedNetwork.Weather()
        weather.lost = chance.upTo(3) == 0 ? chance.upTo(100) : chance.upTo(30)
        weather.repeated = chance.upTo(30)
        weather.delayMs = 1 + (chance.upTo(2) == 0 ? 0 : chance.upTo(1_500))
        count("weather")
        let network = world.network
        network.set(weather)
        trouble("of 100 messages \(weather.lost) are lost, \(weather.repeated) repeated", for: someTime()) {
            network.set(SimulatedNetwork.Weather())
        }
    }

    /// The session that listens gets nothing, as after a connection was lost without notice.
    func deafen(_ machine: Int, for ms: UInt64) {
        let network = world.network
        count("deaf")
        network.set(deaf: true, at: machine)
        trouble("node-\(machine + 1) gets no messages", for: ms) { network.set(deaf: false, at: machine) }
    }

    private func troubleDatabase() {
        let condition: SimulatedDatabase.Condition = chance.upTo(2) == 0 ? .refuses : .hangs
        let some = chance.upTo(2) == 0 ? nodes : [chance.pick(nodes)]
        count("database \(condition)")
        troubleDatabase(condition, at: some, for: shortTime())
    }

    func troubleDatabase(_ condition: SimulatedDatabase.Condition, at some: [SimulatedNode], for ms: UInt64) {
        let database = world.database
        for node in some { database.set(condition, at: node.machine.number) }
        trouble("the database \(condition) at \(some.map(\.name.description).joined(separator: ", "))", for: ms) {
            for node in some {
                database.set(.well, at: node.machine.number)
                node.run?.neighbors?.greet()
            }
        }
    }

    private func crashServer() {
        guard let server else { return }
        count("crash")
        trouble("the server has crashed and is started again", for: 1) {}
        do { try server.crash() } catch { story.fail("\(error)") }
    }

    /// Exchanges the server for its copy, and later again. What the copy lacks is not lost then, and the copy's own commits are.
    private func failOver() {
        guard let server, harmed == nil, nodes.allSatisfy({ $0.run?.isReady == true }) else { return }
        do {
            guard let copiedAt else {
                copiedAt = time.now
                story.tell("the server is copied")
                return try server.keep()
            }
            // A loss is noticed only if a published head is lost (docs/postgresql.md), which takes some windows.
            if time.now < copiedAt + 4_000 * world.pace.resolution { return }
            count("failover")
            try server.swap()
        } catch { return story.fail("\(error)") }
        // A node that starts now with an old folder could not know that the log is older than another one's.
        (harmed, copiedAt) = (-1, nil)
        let (story, inbox) = (story, inbox)
        trouble("a failover has lost commits", for: 5_000 + someTime()) {
            do { try server.swap() } catch { story.fail("\(error)") }
            inbox.add(.unharmed)
        }
    }

    private func someStep() -> Int64 {
        let size = [chance.upTo(6_000), chance.upTo(60_000), 60_000 + chance.upTo(600_000), chance.upTo(36_000_000)][
            Int(chance.upTo(4))]
        return chance.upTo(2) == 0 ? Int64(size) : -Int64(size)
    }

    private func stepClock() {
        let (machine, step) = (chance.pick(nodes).machine, someStep())
        count("clock")
        stepClock(of: machine, by: step, for: someTime())
    }

    func stepClock(of machine: SimulatedMachine, by step: Int64, for ms: UInt64) {
        machine.step(step)
        life.clockStepped(at: machine.number, by: step, for: ms)
        trouble("the clock of node-\(machine.number + 1) steps by \(step) ms", for: ms) { machine.setRight() }
    }

    private func stepDatabaseClock() {
        count("databaseclock")
        stepDatabaseClock(by: someStep(), for: shortTime())
    }

    func stepDatabaseClock(by step: Int64, for ms: UInt64) {
        let database = world.database
        database.step(step)
        life.clockStepped(at: -1, by: step, for: ms)
        trouble("the database's clock steps by \(step) ms", for: ms) { database.setRight() }
    }

    /// All clocks step together, for good.
    func stepAllClocks(by step: Int64) {
        world.database.step(step)
        for node in nodes { node.machine.step(step) }
        life.clockStepped(at: -1, by: step, for: 0)
        trouble("all clocks step by \(step) ms", for: 1) {}
    }

    private func troubleApple() {
        let services = world.services
        switch chance.upTo(3) {
        case 0:
            count("appleaway")
            services.set(isAway: true)
            trouble("the push services are away", for: someTime()) { services.set(isAway: false) }
        case 1:
            count("appleslow")
            services.set(slowness: 5...15_000)
            trouble("the push services are slow", for: someTime()) { services.set(slowness: 5...300) }
        default:
            count("gone")
            services.set(gone: 30)
            trouble("apps are deleted", for: someTime()) { services.set(gone: 0) }
        }
    }

    // MARK: Checks

    func checkReady() throws {
        let late = nodes.filter { $0.run?.isReady != true }
        if late.isEmpty { return try checkLeader() }
        let reasons = late.map { node in
            "\(node.name) (\(node.run?.parts?.lease.reasonNotReady ?? "it does not serve"))"
        }
        throw Failure(what: "not ready: \(reasons.joined(separator: ", "))", story: story.last(40))
    }

    /// Of all nodes that serve, one leads.
    func checkLeader() throws {
        let leaders = nodes.filter { $0.run?.isReady == true && $0.leads }.map(\.name)
        if leaders.count != 1 { throw Failure(what: "\(leaders.count) nodes lead: \(leaders)", story: story.last(40)) }
    }

    /// Nothing is left of what has ended.
    func checkRows() throws {
        let left = try TestPostgres.rows(inSchemaNamed: schema, at: serverURI).filter { row in
            ["room ", "code ", "token ", "job ", "timer ", "session ", "registration "].contains { row.hasPrefix($0) }
        }
        if !left.isEmpty {
            throw Failure(what: "\(left.count) rows are left, e.g. \(left[0].prefix(60))", story: story.last(40))
        }
    }

    /// The names of all partitions.
    func partitions() throws -> [String] {
        try TestPostgres.texts(
            """
            SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '_[0-9]+$'
            AND relnamespace = '\(TestPostgres.name(schema))'::regnamespace ORDER BY 1
            """, at: serverURI)
    }

    /// No table is left for rows that have all expired.
    /// - Parameter mayWait: true if entries may still wait for their batch.
    func checkPartitions(mayWait: Bool = false) throws {
        let hours: [Substring: UInt64] = ["token": 1, "registration": 24, "room": 24]
        let left = try partitions().filter { name in
            let parts = name.split(separator: "_")
            guard parts[0] != "waiting" else { return !mayWait }
            let width = parts[0] == "job" ? 600_000 : (hours[parts[0]] ?? 0) * 3_600_000
            // Two minutes for clocks that are wrong, and one for the next look.
            return (parts.last.flatMap { UInt64($0) } ?? 0) + width + 180_000 < time.now
        }
        if !left.isEmpty {
            throw Failure(what: "\(left.count) empty tables are left, e.g. \(left[0])", story: story.last(40))
        }
    }

    /// The number of entries in a node's log.
    func size(of node: SimulatedNode) throws -> UInt64 {
        let note = try node.ledger.checkpoint().flatMap { SignedNote($0) }
        return note?.checkpoint(signedBy: world.key.verifierKey)?.size ?? 0
    }

    /// Checks each node's log with all checkpoints that were ever published.
    private func check(_ facts: Facts, isOver: Bool) async throws {
        let kept = Set(nodes.flatMap(\.kept.all))
        var largest: UInt64 = 0
        for node in nodes { largest = try max(largest, size(of: node)) }
        for node in nodes {
            let isWhole = try size(of: node) == largest
            do {
                let (heads, facts) = isWhole ? (Array(kept), facts) : (node.kept.all, Facts())
                let report = try await LogCheck(node.ledger, world.key.verifierKey, kept: heads, facts).run(
                    isOver: isWhole && isOver)
                // Each push has an opening in the log.
                if isWhole, report.opened < world.services.accepted {
                    throw LogCheck.Fault.unverified("\(report.opened) openings of \(world.services.accepted) pushes")
                }
                // The services took no push twice. After a failover the log may say so.
                if server == nil, report.delivered > world.services.accepted {
                    throw LogCheck.Fault.unverified("\(report.delivered) deliveries of \(world.services.accepted)")
                }
            } catch { throw Failure(what: "the log of \(node.name): \(error)", story: story.last(40)) }
        }
    }

    /// Ends what still runs. The folders and the database stay.
    func abandon() async {
        isEnding = true
        for node in nodes {
            node.run?.gate.die()
            if let run = node.run { await ended(run) }
        }
    }

    /// Where the folders and the database are.
    nonisolated var places: String {
        nodes.map { "\($0.name): \($0.folder)" }.joined(separator: "\n")
            + "\nPostgreSQL: \(serverURI), schema \(TestPostgres.name(schema))"
            + (server.map { ". `scripts/postgres stop \($0.folder)` deletes it" } ?? "")
    }

    /// Ends what still runs, and deletes everything.
    func remove() async throws {
        await abandon()
        for node in nodes { try node.remove() }
        try TestPostgres.dropSchema(named: schema, at: serverURI)
    }
}

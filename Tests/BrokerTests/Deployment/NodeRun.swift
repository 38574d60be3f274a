import Courier
import EventLoop
import Ledger
import Policy
import Sealing
import Shares
import Synchronization
import Vocabulary

@testable import Broker
@testable import Storage

/// One process of a node, without listeners and courier. It starts and ends like `mayfly serve`.
actor NodeRun: LoopActor {
    /// The parts of a process that serves, or is about to.
    struct Parts: Sendable {
        let node: Node
        let lease: LeaseKeeper
        let keys: KeyRing
        let time: BrokerTime
        let broker: Broker
        let calls: Calls
        let sweeper: Sweeper
        let keeper: KeyKeeper
        let sequencer: Sequencer
        let neighbors: Neighbors
        let offers: KeyOffers
        let courier: SimulatedCourier
        let isLoss: Bool

        var receivers: Neighbors.Receivers { Neighbors.Receivers(broker, nil) }
    }

    nonisolated let loop: EventLoop
    nonisolated let node: SimulatedNode
    nonisolated let gate: StoreGate
    nonisolated let link: SimulatedLink
    nonisolated let sockets: NodeSockets
    private nonisolated let known = Mutex<(parts: Parts?, isReady: Bool)>((nil, false))
    private nonisolated let opened = Mutex<PostgresStore?>(nil)
    private var member: Node?
    private var tasks: [Task<Void, Never>] = []
    private var isAbandoned = false

    nonisolated var machine: SimulatedMachine { node.machine }
    nonisolated var ledger: LedgerFolder { node.ledger }
    nonisolated var offers: KeyOffers? { known.withLock(\.parts)?.offers }
    nonisolated var neighbors: Neighbors? { known.withLock(\.parts)?.neighbors }
    nonisolated var broker: Broker? { known.withLock(\.parts)?.broker }
    nonisolated var parts: Parts? { known.withLock(\.parts) }
    private nonisolated var world: DeploymentWorld { node.world }

    /// True if it serves and a balancer would send callers here.
    nonisolated var isReady: Bool {
        let (parts, isReady) = known.withLock(\.self)
        return isReady && !gate.isDead && !machine.isStopped && parts?.lease.reasonNotReady == nil
    }

    /// True from the end of its start until it is to stop.
    nonisolated var serves: Bool { known.withLock(\.isReady) && !gate.isDead }

    /// True if it takes subscriptions.
    nonisolated var takesSubscriptions: Bool { broker?.settings.subscribable != nil }

    /// True if it has the deployment's keys.
    nonisolated var hasKeys: Bool { !gate.isDead && parts != nil }

    init(_ node: SimulatedNode, _ loop: EventLoop) {
        (self.node, self.loop) = (node, loop)
        gate = StoreGate(node.machine, node.world.database)
        link = SimulatedLink(node.machine, node.world.network)
        sockets = NodeSockets(node.machine)
    }

    // MARK: Start

    /// Starts the process. Returns when it serves.
    func start() async throws {
        let (machine, database) = (node.machine, node.world.database)
        let clock = AgreedClock(wall: { machine.wall }, boot: { machine.boot })
        let time = BrokerTime(persisted: 0, wall: { clock.nowMs }, boot: { machine.boot })
        guard database.condition(at: machine.number) == .well else { throw StoreError.unavailable("the server can't be reached") }
        let starts = node.starts
        let journal = PostgresJournal(
            uri: world.uri, resolution: world.pace.resolution, keptForWaiting: world.pace.keptForWaiting, resumption: starts,
            now: { time.now },
            isBehind: { time.raise(to: $0) },
            clocks: PostgresClocks(
                agreed: clock, monotonic: { machine.monotonic }, database: { database.clock }),
            interceptor: gate.interceptor)
        let store = try PostgresStore(journal, timing: world.policies.ledger, connections: 2)
        opened.withLock { $0 = store }
        let own = Node.Settings(
            name: node.name, address: SimulatedLink.address(machine.number), resolution: world.pace.resolution,
            policies: world.policies, folder: ledger, key: world.key.verifierKey, keyFile: node.keyFile, wrapping: node.wrapping,
            storedKeys: { [node] in try node.storedKeys() })
        let (log, gate) = (node.log, gate)
        let process = NodeProcess(
            // The tasks of a killed process must end. Some wait for a current term, so its term never expires.
            wallMs: { machine.wall }, bootMs: { gate.isDead ? 0 : machine.boot }, log: log, end: { gate.die() })
        let member = try Node(own, store, link: link, process: process, loop: loop)
        self.member = member
        let admission = try await member.admit()
        do { try await serve(store, time, member, admission, starts) } catch {
            await admission.lease.release()
            throw error
        }
    }

    private func serve(
        _ store: PostgresStore, _ time: BrokerTime, _ member: Node, _ admission: Node.Admission, _ starts: [Entry.Op]
    ) async throws {
        let (keys, log, metrics) = (admission.keys, node.log, Metrics())
        let startup = Startup(store: store, keys: keys, time: time)
        try await startup.resumeTime()
        let sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: log)
        let offers = KeyOffers(loop: loop, keys: keys, log: log)
        let keeper = KeyKeeper(loop: loop, keys: keys, store: store, time: time, metrics: metrics, log: log) {
            await offers.waitForCallers()
        }
        let (world, number, gate) = (world, machine.number, gate)
        let process = SimulatedWebPush.Process(
            world.webPush, number: number, world.chance,
            .init(broker: { time.now }, wall: { [machine] in machine.wall }, monotonic: { [loop] in loop.now }))
        let courier = SimulatedCourier(
            loop, world.services, process, number, brokerTime: { time.now },
            delivered: { [weak self] apnsID in if let self { world.services.tell(apnsID, to: self) } })
        let shares = Shares(.standard(world.policies.rooms))
        let neighbors = Neighbors(loop: loop, keys: keys, time: time, shares: shares) { text in
            if !gate.isDead { world.network.notify(text, from: number) }
        }
        let broker = Broker(
            loop: loop, store: StoreAccess(loop: loop, store: store, metrics: metrics, log: log), keys: keys, time: time,
            policies: world.policies, courier: LeasedSender(courier, admission.lease), sweeper: sweeper,
            settings: .test(addressSize: world.takesSubscriptions.isSet ? .anyService : .apnsOnly, webPush: world.webPush),
            metrics: metrics, shares: shares, sockets: sockets, neighbors: neighbors, log: log)
        guard let calls = try await AudienceApps(broker, sockets: NoSockets()).calls else {
            preconditionFailure("calls have a policy")
        }
        sockets.attach(broker.presence)
        let sequencer = Sequencer(
            loop: loop, store: store, folder: ledger, key: world.key, resolution: world.pace.resolution, time: time,
            metrics: metrics,
            log: log, refusals: { broker.takeRefusals() }, erased: { await sweeper.scheduleScrub() },
            caughtUp: { broker.shares.clear(.ledgerBacklog) })
        let parts = Parts(
            node: member, lease: admission.lease, keys: keys, time: time, broker: broker, calls: calls,
            sweeper: sweeper, keeper: keeper,
            sequencer: sequencer, neighbors: neighbors, offers: offers, courier: courier, isLoss: admission.isLoss)
        known.withLock { $0.parts = parts }
        try await startup.catchUp(
            starts, policies: world.policies.all.map(\.bytes), folder: ledger, sequencer: member.leads ? sequencer : nil,
            keeper: keeper, sweeper: sweeper)
        world.network.open(self)
        try await connect(store, neighbors)
        await broker.outbox.resume(try await store.takeOwnJobs())
        run(parts, startup)
        known.withLock { $0.isReady = true }
    }

    private func others(_ store: PostgresStore) async throws -> Int {
        try await store.reports().count { $0.life != .over && $0.name != node.name.description }
    }

    /// Waits until all other nodes have answered, for two seconds at most.
    private func connect(_ store: PostgresStore, _ neighbors: Neighbors) async throws {
        neighbors.greet()
        let (others, deadline) = (try await others(store), loop.now + 2_000)
        while neighbors.count < others, loop.now < deadline { try await loop.sleep(10) }
    }

    private func run(_ parts: Parts, _ startup: Startup) {
        let loop = loop
        let lead: @Sendable () async -> Void = { [self] in
            await add([
                Task(executorPreference: loop) { await parts.keeper.run() },
                Task(executorPreference: loop) { await parts.sequencer.run() },
            ])
        }
        let duties = Node.Duties(
            lead: {
                try await startup.takeOver(sequencer: parts.sequencer)
                await lead()
            }, resume: { await parts.broker.outbox.resume($0) }, stepped: {}, refusals: { parts.broker.takeRefusals() })
        let leads = parts.node.leads
        add([
            Task(executorPreference: loop) { if leads { await lead() } },
            Task(executorPreference: loop) { await parts.node.run(duties) },
            Task(executorPreference: loop) { await parts.neighbors.run(parts.receivers) },
            Task(executorPreference: loop) { await parts.sweeper.run() },
        ])
    }

    /// Tasks that begin after the process was killed end at once.
    private func add(_ more: [Task<Void, Never>]) {
        tasks += more
        if isAbandoned { for task in more { task.cancel() } }
    }

    // MARK: End

    /// Stops like `mayfly serve` after SIGTERM.
    func stop() async {
        known.withLock { $0.isReady = false }
        guard let parts, let store = opened.withLock(\.self) else { return gate.die() }
        await parts.broker.outbox.drain(deadlineMs: 3_000)
        parts.courier.stop()
        for task in tasks { task.cancel() }
        await parts.sweeper.stop()
        for task in tasks { await task.value }
        do {
            let isLast = try await others(store) == 0 && parts.node.leads
            if isLast { try await parts.sequencer.flush() }
            try await store.record([.brokerStopped(node: node.name)])
            if isLast { try await parts.sequencer.flush() }
        } catch { node.log.warning("stop: \(error)") }
        world.network.close(self)
        await parts.node.stop()
        await parts.lease.release()
        gate.die()
    }

    /// Ends what the process does, after its store answers no more.
    func abandon() async {
        isAbandoned = true
        parts?.courier.stop()
        link.close()
        for task in tasks { task.cancel() }
        await member?.stop()
        await parts?.sweeper.stop()
    }

    /// Closes the store, on another thread than the loop's.
    nonisolated func closeStore() async { await opened.withLock { $0.take() }?.shutDown() }
}

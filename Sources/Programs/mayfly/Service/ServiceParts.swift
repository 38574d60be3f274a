import API
import Broker
import Courier
import EventLoop
import HTTPServer
import Ledger
import Linux
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

/// The parts of a service, without its listeners. `docs/architecture.md` lists the threads.
struct ServiceParts: Sendable {
    let state: OpenState
    let loops: [EventLoop]
    let keeper: KeyKeeper
    let sweeper: Sweeper
    let courier: RenewableCourier
    /// Nil if no Web Push is sent.
    let webPush: WebPushCourier?
    /// Nil if no credentials are configured.
    let renewal: APNsRenewal?
    let broker: Broker
    let apps: AudienceApps
    let roomSockets = RoomSocketTable()
    let sessionSockets = SessionSocketTable()
    let sequencer: Sequencer
    let loneKeys = LoneKeys()
    /// Gives the keys to other nodes. Nil if this node is alone.
    let keyOffers: KeyOffers?
    /// Reads the login's keys from a URL. Nil if they are in a file.
    let keyRefresh: JSONWebKeyRefresh?
    /// When the certificates in use expire.
    let expiries: Expiries
    /// Messages between nodes. Nil if this node is alone.
    let bus: PostgresBus?
    let neighbors: Neighbors?

    /// Creates and connects the parts.
    init(_ settings: ServiceSettings, _ state: OpenState) async throws {
        let (main, ledgerLoop) = (try EventLoop(name: "main"), try EventLoop(name: "ledger"))
        let (keysLoop, courierLoop) = (try EventLoop(name: "keys"), try EventLoop(name: "courier"))
        var loops = [main, ledgerLoop, keysLoop, courierLoop]
        for loop in loops { try loop.start() }

        self.state = state
        let (store, keys, time) = (state.store, state.keys, state.time)
        let metrics = Metrics()
        state.member?.lease.onFault { metrics.add(.alarms) }
        if state.hasLostKeys { metrics.add(.alarms) }
        let log = Logger { Terminal.log($0, $1) }
        if let users = settings.users, let authenticator = settings.authenticator {
            keyRefresh = try users.refresh(authenticator, metrics, log) {
                let loop = try EventLoop(name: "jwks")
                try loop.start()
                loops.append(loop)
                return loop
            }
        } else {
            keyRefresh = nil
        }
        let sweeper = Sweeper(loop: main, store: store, time: time, metrics: metrics, log: log)
        self.sweeper = sweeper
        let keyOffers = settings.nodes.map { _ in KeyOffers(loop: main, keys: keys, log: log) }
        self.keyOffers = keyOffers
        keeper = KeyKeeper(loop: keysLoop, keys: keys, store: store, time: time, metrics: metrics, log: log) {
            await keyOffers?.waitForCallers()
        }

        let (policies, marks) = (settings.policies, try await ProviderTokenMark(store))
        let makeCourier: @Sendable (APNsSettings) throws -> Courier = { apns in
            let accounts = try apns.accounts(marks)
            try ServiceSettings.checkTemplates(policies, Accounts(accounts))
            var sending = apns.courier(accounts) { alarm in
                metrics.add(.alarms)
                Terminal.log(.error, "courier: \(alarm)")
            }
            // Deadlines are in broker time, which a wall clock that was set back doesn't follow.
            sending.deadlineClock = { time.now }
            return try Courier(loop: courierLoop, sending)
        }
        courier = RenewableCourier(try makeCourier(settings.apns))
        let expiries = Expiries(metrics: metrics, log: log)
        expiries.replace("nodes", by: Certificates.expiries(settings.nodes))
        self.expiries = expiries
        renewal =
            settings.apns.apps.isEmpty
            ? nil : APNsRenewal(courier, metrics, expiries, inUse: settings.apns, make: makeCourier)

        var destinations = Self.destinations(settings.apns, courier, try await AddressSize.recorded(in: store))
        // In this order: `push enable` must not miss a node that reads what it records.
        if state.member != nil { try await WebPushSettings.report(settings.webPush, by: state.node.description, in: store) }
        let inForce = try await WebPushSettings.inForce(settings.webPush, store)
        destinations.webPush = settings.webPush?.service
        destinations.subscribable = inForce
        WebPushSettings.warn(settings.webPush, inForce, destinations.addressSize)
        webPush = try settings.webPush.map { webPush in
            let loop = try EventLoop(name: "web-push")
            try loop.start()
            loops.append(loop)
            var sending = webPush.courier { alarm in
                metrics.add(.alarms)
                Terminal.log(.error, "courier: \(alarm)")
            }
            sending.deadlineClock = { time.now }
            return WebPushCourier(loop: loop, sending)
        }
        self.loops = loops
        let router = PushRouter(apns: courier, webPush: webPush)
        let access = StoreAccess(loop: main, store: store, metrics: metrics, log: log)
        let sender: any PushSender = if let lease = state.member?.lease { LeasedSender(router, lease) } else { router }
        let bus = settings.nodes == nil ? nil : (store as? PostgresStore).map { PostgresBus($0) }
        let shares = Shares(Self.shareTable(settings))
        let neighbors = bus.map { bus in Neighbors(loop: main, keys: keys, time: time, shares: shares) { bus.post($0) } }
        (self.bus, self.neighbors) = (bus, neighbors)
        let broker = Broker(
            loop: main, store: access, keys: keys, time: time, policies: settings.policies,
            courier: sender, sweeper: sweeper,
            settings: destinations, metrics: metrics, shares: shares, sockets: roomSockets, neighbors: neighbors, log: log)
        self.broker = broker

        apps = try await AudienceApps(broker, sockets: sessionSockets)
        apps.prepare()

        sequencer = Sequencer(
            loop: ledgerLoop, store: store, folder: LedgerFolder(settings.state.ledger), key: state.ledgerKey,
            resolution: settings.resolution, time: time, metrics: metrics, log: log,
            witnesses: try settings.witnesses?.start(on: ledgerLoop, time, metrics, log),
            witnessFailure: settings.witnesses?.failureMode ?? .closed, kept: try settings.kept.checkpoints(on: ledgerLoop),
            refusals: { broker.takeRefusals() }, erased: { await sweeper.scheduleScrub() },
            caughtUp: { broker.shares.clear(.ledgerBacklog) })
    }

    /// The default topic and environment, and the check whether a push to another one is possible.
    private static func destinations(
        _ apns: APNsSettings, _ courier: RenewableCourier, _ size: AddressSize
    ) -> Broker.Settings {
        let defaultTopic = apns.topic
        return Broker.Settings(
            topic: defaultTopic, environment: apns.environment, addressSize: size,
            bundleID: { courier.accounts.bundleID(of: $0) },
            serves: { kind, topic, environment in
                let accounts = courier.accounts
                // Phones may register before credentials are configured, so they needn't register again later.
                if accounts.all.isEmpty { return topic == defaultTopic }
                let whole = topic + kind.push.topicSuffix
                return accounts.account(for: whole, environment, kind.push) != nil
            })
    }

    /// The standard table with the quotas of policy and operator. Connections are limited by the available descriptors.
    private static func shareTable(_ settings: ServiceSettings) -> ShareTable {
        var table = ShareTable.standard(settings.policies.rooms, backEndCreations: settings.backEndCreations)
        table[.connections].total = connections(atMost: table[.connections].total)
        return table
    }

    /// Raises the limit of descriptors. Returns how many connections of apps fit, and warns if these are few.
    static func connections(atMost total: Int) -> Int {
        let descriptors = (try? ProcessControl.raiseDescriptorLimit()) ?? 1024
        let connections = max(16, min(total, descriptors - Listeners.reservedDescriptors))
        if connections < 10_000 {
            Terminal.log(
                .warning,
                "the limit of \(descriptors) descriptors allows only \(connections) connections of apps. Raise it (LimitNOFILE, ulimit -n)"
            )
        }
        return connections
    }

    /// Starts the server from which other nodes get keys and log.
    func startNodeServer(_ settings: ServiceSettings) async throws -> HTTPServer? {
        guard let nodes = settings.nodes, let keyOffers else { return nil }
        return try await NodeServer.start(
            nodes, loop: broker.loop, offers: keyOffers, folder: LedgerFolder(settings.state.ledger),
            key: state.ledgerKey.verifierKey)
    }

    private var startup: Startup { Startup(store: state.store, keys: state.keys, time: state.time) }

    /// Records the start in the log. Does overdue purges, and overdue key steps if this node leads.
    func catchUp(_ settings: ServiceSettings) async throws {
        try await startup.catchUp(
            state.starts, marks: RotationMark.marks(of: state.starts), policies: settings.policies.all.map(\.bytes),
            folder: LedgerFolder(settings.state.ledger), sequencer: state.leads ? sequencer : nil, keeper: keeper,
            sweeper: sweeper)
    }

    /// Continues the log and the keys of the node that led before.
    func takeOver() async throws { try await startup.takeOver(sequencer: sequencer) }

    /// Queues the jobs that an earlier run has left.
    func resumeJobs() async throws {
        guard let store = state.store as? PostgresStore else { return try await broker.outbox.resumeJobs() }
        await broker.outbox.resume(try await store.takeOwnJobs())
    }

    /// The parts that act on messages of other nodes.
    var receivers: Neighbors.Receivers { Neighbors.Receivers(broker, apps.companion) }

    /// Begins to exchange messages with other nodes, and waits until all of them have answered, for two seconds at most.
    func connect() async throws {
        guard let bus, let neighbors else { return }
        try bus.start(connected: { neighbors.greet() }, received: { [receivers] in neighbors.receive($0, for: receivers) })
        let (others, deadline) = (try await state.otherNodes(), Clock.monotonicMs + 2_000)
        while neighbors.count < others, Clock.monotonicMs < deadline { try await broker.loop.sleep(10) }
    }
}

extension TokenKind {
    /// The push type for which Apple's accounts are checked.
    fileprivate var push: PushType {
        switch self {
        case .alert: .alert
        case .voip: .voip
        case .liveActivity: .liveactivity
        }
    }
}

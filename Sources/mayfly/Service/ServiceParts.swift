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

/// What a service is made of before anyone can connect.
///
/// Threads: `main` (requests, sockets, the rules, the sweeper), `store-writer`, `store-reader`, `store-background`, `courier`, `ledger`, `keys`.
struct ServiceParts: Sendable {
    let state: OpenState
    let loops: [EventLoop]
    let keeper: KeyKeeper
    let sweeper: Sweeper
    let courier: RenewableCourier
    /// Nil where there are no credentials.
    let renewal: APNsRenewal?
    let broker: Broker
    let companion: Companion?
    let monitor: Monitor?
    let calls: Calls?
    let sequencer: Sequencer

    /// Makes and connects the parts.
    init(_ settings: ServiceSettings, _ state: OpenState) async throws {
        let (main, ledgerLoop) = (try EventLoop(name: "main"), try EventLoop(name: "ledger"))
        let (keysLoop, courierLoop) = (try EventLoop(name: "keys"), try EventLoop(name: "courier"))
        loops = [main, ledgerLoop, keysLoop, courierLoop]
        for loop in loops { try loop.start() }

        self.state = state
        let (store, keys, time) = (state.store, state.keys, state.time)
        let metrics = Metrics()
        let log: @Sendable (String) -> Void = { Terminal.log($0) }
        let sweeper = Sweeper(loop: main, store: store, time: time, metrics: metrics, log: log)
        self.sweeper = sweeper
        keeper = KeyKeeper(loop: keysLoop, keys: keys, store: store, time: time, metrics: metrics, log: log)

        let (policies, marks) = (settings.policies, try await ProviderTokenMark(store))
        let makeCourier: @Sendable (APNsSettings) throws -> Courier = { apns in
            let accounts = try apns.accounts(marks)
            try ServiceSettings.checkTemplates(policies, Accounts(accounts))
            var sending = apns.courier(accounts) { alarm in
                metrics.add(.alarms)
                Terminal.log("courier: \(alarm)")
            }
            // Deadlines are in broker time, which is ahead of a wall clock that was set back.
            sending.deadlineClock = { time.now }
            return try Courier(loop: courierLoop, sending)
        }
        courier = RenewableCourier(try makeCourier(settings.apns))
        renewal = settings.apns.apps.isEmpty ? nil : APNsRenewal(courier, metrics, inUse: settings.apns, make: makeCourier)

        let destinations = Self.destinations(settings.apns, courier)
        let access = StoreAccess(loop: main, store: store, metrics: metrics, log: log)
        let broker = await Broker(
            loop: main, store: access, keys: keys, time: time, policies: settings.policies, courier: courier, sweeper: sweeper,
            settings: destinations, metrics: metrics, shares: Shares(Self.shareTable(settings)), log: log)
        self.broker = broker

        func audiences(_ kind: Policy.Kind) async throws -> Audiences? {
            guard let (policy, limits) = settings.policies.audience(kind) else { return nil }
            let audiences = Audiences(broker: broker, policy: policy, limits: limits)
            try await audiences.learnPlaces()
            // On a thread of its own: nobody waits for it.
            Task.detached { audiences.prepare() }
            return audiences
        }
        if let audiences = try await audiences(.companion) {
            companion = await Companion(audiences: audiences)
        } else {
            companion = nil
        }
        monitor = try await audiences(.monitor).map { Monitor(audiences: $0) }
        calls = try await audiences(.calls).map { Calls(audiences: $0) }

        sequencer = Sequencer(
            loop: ledgerLoop, store: store, folder: LedgerFolder(settings.state.ledger), key: state.ledgerKey,
            resolution: settings.resolution, time: time, metrics: metrics, log: log,
            witnesses: try settings.witnesses?.start(on: ledgerLoop, time, metrics, log),
            witnessFailure: settings.witnesses?.failureMode ?? .closed, kept: try settings.kept.checkpoints(on: ledgerLoop),
            refusals: { broker.takeRefusals() }, erased: { await sweeper.noteErasure() },
            caughtUp: { broker.shares.clear(.ledgerBacklog) })
    }

    /// Which pushes could leave.
    private static func destinations(_ apns: APNsSettings, _ courier: RenewableCourier) -> Broker.Settings {
        let meant = apns.topic
        return Broker.Settings(topic: meant, environment: apns.environment) { kind, topic, environment in
            let accounts = courier.accounts
            // Without credentials phones may register all the same: they need not do so again when there are some.
            if accounts.all.isEmpty { return topic == meant }
            // A bundle id that ends as the kind's topics do is another app's, and no push to it could leave.
            let whole = topic + kind.push.topicSuffix
            return accounts.account(for: whole, environment, kind.push) != nil
        }
    }

    /// The standard table with the policy's and the operator's numbers, and no more connections than there are descriptors.
    private static func shareTable(_ settings: ServiceSettings) -> ShareTable {
        var table = ShareTable.standard(
            settings.policies.rooms.creations, backEndCreations: settings.backEndCreations)
        // Apps must not take the descriptors that the log, the database and pushes need.
        let descriptors = (try? ProcessControl.raiseDescriptorLimit()) ?? 1024
        let connections = max(16, min(table[.connections].total, descriptors - Listeners.reservedDescriptors))
        table[.connections].total = connections
        if connections < 10_000 {
            Terminal.log(
                "warning: the limit of \(descriptors) descriptors allows only \(connections) connections of apps. Raise it (LimitNOFILE, ulimit -n)"
            )
        }
        return table
    }

    /// Purges and ratchets what is late, and tells the log of the start.
    func catchUp(_ settings: ServiceSettings) async throws {
        try await Startup(store: state.store, keys: state.keys, time: state.time).catchUp(
            state.starts, marks: RotationMark.marks(of: state.starts), policies: settings.policies.all.map(\.bytes),
            folder: LedgerFolder(settings.state.ledger), sequencer: sequencer, keeper: keeper, sweeper: sweeper)
    }
}

extension TokenKind {
    /// What is pushed to such a token, where Apple's accounts differ by it.
    fileprivate var push: PushType {
        switch self {
        case .alert: .alert
        case .voip: .voip
        case .liveActivity: .liveactivity
        }
    }
}

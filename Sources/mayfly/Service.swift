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

/// A running broker: every part, who starts it, and in which order it ends.
///
/// Threads: `main` (requests, sockets, the rules, the sweeper), `store-writer`, `store-reader`, `store-background`, `courier`, `ledger`, `keys`.
final class Service: Sendable {
    let loop: EventLoop
    let address: SocketAddress
    let operatorAddress: SocketAddress
    private let parts: Parts
    private let publicServer: HTTPServer
    private let operatorServer: HTTPServer
    private let operatorHandler: OperatorHandler
    private let sessions: SessionSocketEdge?
    private let tasks: [Task<Void, Never>]

    /// What exists before anyone can connect.
    private struct Parts: Sendable {
        let loops: [EventLoop]
        let lock: FolderLock
        let store: SQLiteStore
        let keeper: KeyKeeper
        let sweeper: Sweeper
        let sequencer: Sequencer
        let courier: RenewableCourier
        /// Nil where there are no credentials.
        let renewal: APNsRenewal?
        let broker: Broker
        let companion: Companion?
        let monitor: Monitor?
        let calls: Calls?
        let node: EntryText
        let verifierKey: VerifierKey
    }

    /// Starts everything; purges and ratchets what is late first, and listens last.
    /// - Throws: what stands in the way, for people; nothing is left running then.
    static func start(_ settings: ServiceSettings) async throws -> Service {
        try Arena.shared.prepare()
        let parts = try await prepare(settings)
        do {
            return try await listen(settings, parts)
        } catch {
            await end(parts, [])
            throw error
        }
    }

    // MARK: Preparing

    private static func prepare(_ settings: ServiceSettings) async throws -> Parts {
        let state = settings.state
        guard try File.status(state.path)?.kind == .folder else {
            throw CheckFailed(
                "mayfly: there is no state folder \(state.shown): make one with `mayfly keys init --state \(state.shown) --origin NAME`"
            )
        }
        try state.checkWritable()
        let lock = try FolderLock(state.path)
        let wrapping = try settings.wrapping?.get()
        let keys = try explain(state.ratchetKey) {
            try KeyRing.load(
                path: state.ratchetKey, wrapping: wrapping, longestLifeSeconds: UInt64(settings.policies.longestLifeSeconds))
        }
        let ledgerKey = try SigningKey.load(state.ledgerKey)
        if let origin = settings.origin, origin != ledgerKey.verifierKey.name {
            throw CheckFailed(
                "mayfly: the ledger key is for \(ledgerKey.verifierKey.name), not for what \(Key.origin.named) says")
        }
        try settings.witnesses?.check(ledgerKey.verifierKey)
        guard let node = EntryText(settings.node) else {
            throw UsageError("\(Key.node.named) takes 1 to 128 visible ASCII characters")
        }

        let starts = try startEntries(settings, node)
        let time = BrokerTime(persisted: keys.earliestNowMs)
        let store = try explain(state.database) {
            // SQLite gives its other files the mode of this one. The ledger's files keep the umask's: they are public.
            if !File.exists(state.database) { try File.write(state.database, [UInt8]().span, mode: 0o600) }
            return try SQLiteStore(
                path: state.database, resolution: settings.resolution, timing: settings.policies.ledger,
                resumption: starts, now: { time.now })
        }
        do {
            try await RotationMark.refuse(state, store)
            do {
                try await Startup(store: store, keys: keys, time: time).resumeTime()
            } catch let error as StaleKeys {
                throw CheckFailed("mayfly: \(state.shown(state.ratchetKey)): \(error)")
            }
            let earlier = try await RotationMark.carriedPolicies(store, LedgerFolder(state.ledger), besides: starts)
            return try await assemble(settings, lock, keys, ledgerKey, node, starts + earlier, time, store)
        } catch {
            await store.shutDown()
            throw error
        }
    }

    /// What the log is told of a start: that it happened, with which policy for rooms, and each policy in force.
    private static func startEntries(_ settings: ServiceSettings, _ node: EntryText) throws -> [Entry.Op] {
        let loaded = try settings.policies.all.map { policy in
            guard let name = EntryText(policy.name) else {
                throw CheckFailed("mayfly: the policy's name can't stand in the log")
            }
            return (name: name, digest: policy.digest)
        }
        guard let version = EntryText(Mayfly.version), let rooms = loaded.first?.digest else {
            throw CheckFailed("mayfly: this version's name can't stand in the log")
        }
        return [
            .brokerStarted(
                node: node, version: version, policy: rooms, resolutionSeconds: UInt32(settings.resolution),
                binary: try ProgramDigest.get())
        ] + loaded.map { .policyLoaded(name: $0.name, policy: $0.digest) }
    }

    private static func assemble(
        _ settings: ServiceSettings, _ lock: FolderLock, _ keys: KeyRing, _ ledgerKey: SigningKey, _ node: EntryText,
        _ starts: [Entry.Op], _ time: BrokerTime, _ store: SQLiteStore
    ) async throws -> Parts {
        let main = try EventLoop(name: "main")
        let ledgerLoop = try EventLoop(name: "ledger")
        let keysLoop = try EventLoop(name: "keys")
        let courierLoop = try EventLoop(name: "courier")
        let loops = [main, ledgerLoop, keysLoop, courierLoop]
        for loop in loops { try loop.start() }

        let metrics = Metrics()
        let log: @Sendable (String) -> Void = { Terminal.log($0) }
        let folder = LedgerFolder(settings.state.ledger)
        let sweeper = Sweeper(loop: main, store: store, time: time, metrics: metrics, log: log)
        let keeper = KeyKeeper(loop: keysLoop, keys: keys, store: store, time: time, metrics: metrics, log: log)
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
        let courier = RenewableCourier(try makeCourier(settings.apns))
        let renewal = settings.apns.apps.isEmpty ? nil : APNsRenewal(courier, metrics, inUse: settings.apns, make: makeCourier)
        let meant = settings.apns.topic
        let destinations = Broker.Settings(topic: meant, environment: settings.apns.environment) { kind, topic, environment in
            let accounts = courier.accounts
            // Without credentials phones may register all the same: they need not do so again when there are some.
            if accounts.all.isEmpty { return topic == meant }
            // A bundle id that ends as the kind's topics do is another app's, and no push to it could leave.
            let whole = topic + kind.push.topicSuffix
            return accounts.account(for: whole, environment, kind.push) != nil
        }
        let access = StoreAccess(loop: main, store: store, metrics: metrics, log: log)
        let broker = await Broker(
            loop: main, store: access, keys: keys, time: time, policies: settings.policies, courier: courier, sweeper: sweeper,
            settings: destinations, metrics: metrics,
            shares: Shares(shareTable(settings)), log: log)
        func audiences(_ kind: Policy.Kind) async throws -> Audiences? {
            guard let (policy, limits) = settings.policies.audience(kind) else { return nil }
            let audiences = Audiences(broker: broker, policy: policy, limits: limits)
            try await audiences.learnPlaces()
            // On a thread of its own: nobody waits for it.
            Task.detached { audiences.prepare() }
            return audiences
        }
        var companion: Companion?
        if let audiences = try await audiences(.companion) {
            companion = await Companion(audiences: audiences)
        }
        let sequencer = Sequencer(
            loop: ledgerLoop, store: store, folder: folder, key: ledgerKey, resolution: settings.resolution, time: time,
            metrics: metrics, log: log, witnesses: try settings.witnesses?.start(on: ledgerLoop, time, metrics, log),
            witnessFailure: settings.witnesses?.failureMode ?? .closed, kept: try settings.kept.checkpoints(on: ledgerLoop),
            refusals: { broker.takeRefusals() },
            erased: { await sweeper.noteErasure() }, caughtUp: { broker.shares.clear(.ledgerBacklog) })
        let parts = Parts(
            loops: loops, lock: lock, store: store, keeper: keeper, sweeper: sweeper, sequencer: sequencer, courier: courier,
            renewal: renewal, broker: broker, companion: companion,
            monitor: try await audiences(.monitor).map { Monitor(audiences: $0) },
            calls: try await audiences(.calls).map { Calls(audiences: $0) }, node: node, verifierKey: ledgerKey.verifierKey)
        try await Startup(store: store, keys: keys, time: time).catchUp(
            starts, marks: RotationMark.marks(of: starts), policies: settings.policies.all.map(\.bytes), folder: folder,
            sequencer: sequencer, keeper: keeper, sweeper: sweeper)
        return parts
    }

    // MARK: Listening

    private static let operatorConnections = 32
    /// Both listeners' connections that are told there are too many, the operator's, and some for files and pushes.
    private static let reservedDescriptors = 2 * HTTPServer.overflow + operatorConnections + 64

    /// The standard table with the policy's and the operator's numbers, and no more connections than there are descriptors.
    private static func shareTable(_ settings: ServiceSettings) -> ShareTable {
        var table = ShareTable.standard(
            settings.policies.rooms.creations, backEndCreations: settings.backEndCreations)
        // Apps must not take the descriptors that the log, the database and pushes need.
        let descriptors = (try? ProcessControl.raiseDescriptorLimit()) ?? 1024
        let connections = max(16, min(table[.connections].total, descriptors - Self.reservedDescriptors))
        table[.connections].total = connections
        if connections < 10_000 {
            Terminal.log(
                "warning: the limit on descriptors, \(descriptors), leaves \(connections) connections to apps: raise it (LimitNOFILE, ulimit -n)"
            )
        }
        return table
    }

    private static func listen(_ settings: ServiceSettings, _ parts: Parts) async throws -> Service {
        let broker = parts.broker
        let main = broker.loop
        var renew: (@Sendable () async -> APNsControl.Renewal)?
        if let renewal = parts.renewal { renew = { await renewal.renew() } }
        let apns = APNsControl(
            bundleID: settings.apns.topic, isProduction: settings.apns.environment == .production,
            whatToSet: APNsSettings.whatToSet, renew: renew)
        let operatorHandler = OperatorHandler(broker: broker, apns: apns, version: Mayfly.version)
        var operatorConfiguration = ServerConfiguration(address: settings.operatorListen)
        var operatorTable = ShareTable.standard
        operatorTable[.connections] = Quota(Self.operatorConnections)
        operatorConfiguration.shares = Shares(operatorTable)
        let operatorServer = HTTPServer(loop: main, configuration: operatorConfiguration, handler: operatorHandler)
        let edge = SocketEdge(loop: main, broker: broker)
        await broker.presence.setEdge(edge)
        let api = API(
            broker: broker, audit: AuditFiles(LedgerFolder(settings.state.ledger), key: parts.verifierKey),
            proxies: settings.proxies, authenticator: settings.authenticator, companion: parts.companion,
            monitor: parts.monitor, calls: parts.calls, webhookSecrets: settings.webhooks?.secrets)
        var sessions: SessionSocketEdge?
        if let companion = parts.companion, let authenticator = settings.authenticator {
            let edge = SessionSocketEdge(loop: main, companion: companion, authenticator: authenticator)
            await companion.setEdge(edge)
            sessions = edge
        }
        var configuration = ServerConfiguration(address: settings.listen)
        configuration.tls = try settings.certificate?.load()
        let (shares, proxies, backEnds) = (broker.shares, settings.proxies, settings.backEnds)
        configuration.shares = shares
        configuration.payer = { proxies.payer($0, shares) ?? backEnds.payer($0, shares) }
        configuration.origin = { proxies.origin(of: $0) }
        let publicServer = HTTPServer(
            loop: main, configuration: configuration, handler: PublicHandler(api: api, edge: edge, sessions: sessions))
        operatorHandler.watch(publicServer, shares)
        let operatorAddress = try await start(operatorServer, settings.operatorListen)
        let address: SocketAddress
        do {
            try await broker.outbox.resumeJobs()
            address = try await start(publicServer, settings.listen)
        } catch {
            await operatorServer.drain(deadlineMs: 0)
            throw error
        }
        let tasks = [
            Task { await parts.keeper.run() },
            Task { await parts.sequencer.run() },
            Task { await parts.sweeper.run() },
            Task { if let companion = parts.companion { await companion.audiences.run() } },
            Task {
                var watch = ShareWatch(shares, publicServer, broker.metrics)
                await watch.run()
            },
        ]
        operatorHandler.setReady(true)
        return Service(
            address: address, operatorAddress: operatorAddress, parts: parts, publicServer: publicServer,
            operatorServer: operatorServer, operatorHandler: operatorHandler, sessions: sessions, tasks: tasks)
    }

    private static func start(_ server: HTTPServer, _ address: SocketAddress) async throws -> SocketAddress {
        do {
            return try await server.start()
        } catch  where error.isAddressInUse {
            throw CheckFailed("mayfly: \(address.shown) is taken: another program listens there")
        } catch  where error.isNoSocket {
            throw CheckFailed("mayfly: \(address.shown): something that is no socket stands there; nothing was replaced")
        } catch {
            throw CheckFailed("mayfly: can't listen on \(address.shown): \(error)")
        }
    }

    private init(
        address: SocketAddress, operatorAddress: SocketAddress, parts: Parts, publicServer: HTTPServer,
        operatorServer: HTTPServer,
        operatorHandler: OperatorHandler, sessions: SessionSocketEdge?, tasks: [Task<Void, Never>]
    ) {
        loop = parts.broker.loop
        self.address = address
        self.operatorAddress = operatorAddress
        self.parts = parts
        self.publicServer = publicServer
        self.operatorServer = operatorServer
        self.operatorHandler = operatorHandler
        self.sessions = sessions
        self.tasks = tasks
    }

    /// New connections see what the files say now. Files that are no good change nothing.
    func renewCertificate(_ files: CertificateFiles) async {
        do {
            await publicServer.use(try files.load(isRenewal: true))
            Terminal.log("certificate: new connections use \(files.certificate) as it is now")
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("certificate: the one in use stays. \(CheckFailed.text(error))")
        }
    }

    /// From now on JWTs are verified by what the file says now. One that is no good changes nothing.
    func renewKeys(_ authenticator: Authenticator) async {
        do {
            let (gone, before) = try authenticator.reload()
            let end = gone == 0 ? "" : "; of the keys before, \(gone) of \(before) gone: every /ws/sessions is closed"
            Terminal.log("jwt: \(authenticator.keysText)\(end)")
            if gone > 0 { await sessions?.endAll() }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("jwt: the keys in use stay. \(error)")
        }
    }

    var hasAPNsCredentials: Bool { parts.renewal != nil }

    /// Has pushes go by keys and certificates as they are in their files now, if Apple takes them.
    func renewAPNs() async { _ = await parts.renewal?.renew() }

    /// From now on webhooks are taken by the secrets that the file holds now. One that is no good changes nothing.
    func renewSecrets(_ webhooks: WebhookSettings) {
        do {
            try webhooks.reload()
            Terminal.log("webhooks: \(webhooks.secrets.count) secret\(webhooks.secrets.count == 1 ? "" : "s")")
            if let warning = webhooks.warning { Terminal.log(warning) }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("webhooks: the secrets in use stay. \(CheckFailed.text(error))")
        }
    }

    // MARK: Ending

    /// Ends in order: no new requests, answers to old ones, pushes under way, the last ledger entries, the files.
    func stop() async {
        operatorHandler.setReady(false)
        await publicServer.drain(deadlineMs: 10_000)
        await parts.broker.outbox.drain(deadlineMs: 3_000)
        await Self.end(parts, tasks)
        await operatorServer.drain(deadlineMs: 1_000)
        for loop in parts.loops { loop.stop() }
    }

    private static func end(_ parts: Parts, _ tasks: [Task<Void, Never>]) async {
        await parts.courier.stop(withinMs: 1_000)
        for task in tasks { task.cancel() }
        await parts.sweeper.stop()
        await parts.companion?.audiences.stop()
        for task in tasks { await task.value }
        do {
            // Twice, since entries without a ref come first in their window, and this one is the last word.
            try await parts.sequencer.flush()
            try await parts.store.record([.brokerStopped(node: parts.node)])
            try await parts.sequencer.flush()
        } catch {
            Terminal.log("ledger: the last entries wait in the database for the next start (\(error))")
        }
        await parts.store.shutDown()
    }

    /// Names the file that an error is about.
    private static func explain<Value>(_ path: String, _ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch {
            throw CheckFailed("mayfly: \(ShownPath(path)): \(error)")
        }
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

import API
import Broker
import Courier
import EventLoop
import HTTPServer
import Ledger
import Linux
import Sealing
import Storage
import Synchronization
import Vocabulary

/// A running broker. Starts and stops its parts in order.
final class Service: Sendable {
    let settings: ServiceSettings
    let parts: ServiceParts
    let listeners: Listeners
    let address: SocketAddress
    let operatorAddress: SocketAddress
    /// For other nodes. Nil if this node is alone.
    private let nodeServer: HTTPServer?
    /// Run until the service stops.
    private let tasks: Tasks

    var loop: EventLoop { parts.broker.loop }

    /// Starts everything. Overdue purges and key steps come first, listening comes last.
    /// - Parameter handler: makes the handler of the public listener from the broker's own. Only `demo` adds something to it.
    /// - Throws: the reason, as text for the operator. Nothing is left running then.
    static func start(
        _ settings: ServiceSettings, _ report: WaitingReport = WaitingReport(),
        handler: (PublicHandler) -> any HTTPHandler = { $0 }
    ) async throws -> Service {
        try Arena.prepare(webPush: settings.webPush != nil)
        let state = try await OpenState(settings, report)
        let parts: ServiceParts
        do {
            parts = try await ServiceParts(settings, state)
            try await parts.catchUp(settings)
        } catch {
            await state.member?.lease.release()
            await state.store.shutDown()
            throw error
        }
        do {
            let nodeServer = try await parts.startNodeServer(settings)
            let listeners = try await Listeners(settings, parts, handler)
            await parts.keyRefresh?.start { [sessions = listeners.sessions] in await sessions?.endAll() }
            try await parts.connect()
            let addresses = try await listeners.start(settings, parts)
            try state.leaveKeyFile(settings)
            let service = Service(settings, parts, listeners, addresses, nodeServer)
            listeners.operatorHandler.setReady(true)
            return service
        } catch {
            await end(parts, Tasks())
            throw error
        }
    }

    private init(
        _ settings: ServiceSettings, _ parts: ServiceParts, _ listeners: Listeners,
        _ addresses: (apps: SocketAddress, operator: SocketAddress), _ nodeServer: HTTPServer?
    ) {
        self.nodeServer = nodeServer
        self.settings = settings
        self.parts = parts
        self.listeners = listeners
        (address, operatorAddress) = addresses
        let tasks = Tasks()
        self.tasks = tasks
        let lead: @Sendable () -> Void = {
            tasks.add([Task { await parts.keeper.run() }, Task { await parts.sequencer.run() }])
        }
        if parts.state.leads { lead() }
        if let node = parts.state.member?.node {
            let duties = Node.Duties(
                lead: {
                    try await parts.takeOver()
                    lead()
                }, resume: { await parts.broker.outbox.resume($0) }, stepped: { parts.broker.metrics.add(.ratchetSteps) },
                refusals: { parts.broker.takeRefusals() })
            tasks.add([Task { await node.run(duties) }])
        }
        if parts.state.member != nil, settings.wrapping == nil {
            tasks.add([Task { await parts.loneKeys.run(on: parts.broker.loop) { try await parts.state.otherNodes() } }])
        }
        if let neighbors = parts.neighbors { tasks.add([Task { await neighbors.run(parts.receivers) }]) }
        tasks.add([
            Task { await parts.sweeper.run() },
            Task { await parts.apps.run() },
            Task { [database = settings.state.database] in
                await parts.expiries.run(on: parts.broker.loop) {
                    parts.expiries.replace("database", by: Certificates.expiries(database))
                }
            },
            Task {
                var watch = ShareWatch(parts.broker.shares, settings.proxies, listeners.publicServer, parts.broker.metrics)
                await watch.run()
            },
        ])
    }

    /// Stops in order: new requests, open requests, pushes under way, the last ledger entries, the files.
    func stop() async {
        listeners.operatorHandler.setReady(false)
        await listeners.publicServer.drain(deadlineMs: 10_000)
        await parts.broker.outbox.drain(deadlineMs: 3_000)
        await Self.end(parts, tasks)
        await listeners.operatorServer.drain(deadlineMs: 1_000)
        await nodeServer?.drain(deadlineMs: 0)
        for loop in parts.loops { loop.stop() }
    }

    private static func end(_ parts: ServiceParts, _ tasks: Tasks) async {
        await parts.keyRefresh?.stop()
        await parts.courier.stop(withinMs: 1_000)
        await parts.webPush?.stop(withinMs: 1_000)
        let tasks = tasks.cancel()
        await parts.sweeper.stop()
        await parts.apps.stop()
        for task in tasks { await task.value }
        let store = parts.state.store
        do {
            // Other nodes go on with the open window.
            let others = try await parts.state.otherNodes()
            let isLast = parts.state.leads && others == 0
            // Flush twice: entries without a ref sort first in their window, but `broker.stopped` must be the last entry.
            if isLast { try await parts.sequencer.flush() }
            try await store.record([.brokerStopped(node: parts.state.node)])
            if isLast { try await parts.sequencer.flush() }
        } catch {
            Terminal.log(.warning, "ledger: the last entries wait in the database for the next start (\(error))")
        }
        parts.bus?.close()
        await parts.state.member?.node.stop()
        await parts.state.member?.lease.release()
        await store.shutDown()
    }

    /// Reloads all files that can change while the broker runs. An invalid file changes nothing.
    func reload() async {
        let (certificate, authenticator, webhooks) = (settings.certificate, settings.authenticator, settings.webhooks)
        if certificate == nil, authenticator == nil, webhooks == nil, parts.renewal == nil {
            Terminal.log("SIGHUP: nothing to read again: no certificate, no key for JWTs or APNs, no webhook secret")
        }
        _ = await parts.renewal?.renew()
        if let certificate { await reload(certificate) }
        if let authenticator { await reload(authenticator) }
        if let webhooks { reload(webhooks) }
    }

    private func reload(_ files: CertificateFiles) async {
        do {
            let context = try files.load(isRenewal: true)
            await listeners.publicServer.use(context)
            parts.expiries.replace("tls", by: Certificates.expiries(context))
            Terminal.log("certificate: new connections use \(files.certificate) as it is now")
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log(.error, "certificate: the present one stays in use. \(error)")
        }
    }

    private func reload(_ authenticator: Authenticator) async {
        // It logs the result itself.
        if let refresh = parts.keyRefresh { return await refresh.reload() }
        do {
            let (removed, before) = try authenticator.reload()
            Terminal.log(authenticator.reloadText(removed: removed, of: before))
            if let warning = authenticator.warning { Terminal.log(.warning, warning) }
            if removed > 0 { await listeners.sessions?.endAll() }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log(.error, "jwt: the present keys stay in use. \(error)")
        }
    }

    private func reload(_ webhooks: WebhookSettings) {
        do {
            try webhooks.reload()
            Terminal.log("webhooks: \(webhooks.secrets.count) secret\(webhooks.secrets.count == 1 ? "" : "s")")
            if let warning = webhooks.warning { Terminal.log(.warning, warning) }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log(.error, "webhooks: the present secrets stay in use. \(error)")
        }
    }
}

/// Tasks that are cancelled together. Some begin when this node leads.
private final class Tasks: Sendable {
    private let running = Mutex<[Task<Void, Never>]>([])

    func add(_ tasks: [Task<Void, Never>]) { running.withLock { $0 += tasks } }

    func cancel() -> [Task<Void, Never>] {
        let tasks = running.withLock(\.self)
        for task in tasks { task.cancel() }
        return tasks
    }
}

/// Reloads keys, certificates and the list of apps while the broker runs: at SIGHUP, or on a request to the operator's listener.
///
/// It runs on no event loop, because reading files blocks.
actor APNsRenewal {
    private let courier: RenewableCourier
    private let metrics: Metrics
    private let expiries: Expiries
    private let make: @Sendable (APNsSettings) throws -> Courier
    /// The settings of the courier in use.
    private var inUse: APNsSettings {
        didSet { expiries.replace("apns", by: Certificates.expiries(inUse)) }
    }
    /// The scheduled retry if Apple could not be reached.
    private var retry: Task<Void, Never>?

    private static let retryAfter = Duration.seconds(30)

    /// - Parameter inUse: the settings that `courier` was made from.
    init(
        _ courier: RenewableCourier, _ metrics: Metrics, _ expiries: Expiries, inUse: APNsSettings,
        make: @escaping @Sendable (APNsSettings) throws -> Courier
    ) {
        self.courier = courier
        self.metrics = metrics
        self.expiries = expiries
        self.inUse = inUse
        self.make = make
        expiries.replace("apns", by: Certificates.expiries(inUse))
    }

    /// Reloads the files and uses the new credentials if Apple accepts them. Otherwise the previous ones stay in use.
    func renew() async -> APNsControl.Renewal {
        retry?.cancel()
        retry = nil
        let settings: APNsSettings
        let candidate: Courier
        do {
            settings = try inUse.readAgain()
            if try settings.isSame(as: inUse) { return renewed("the files are unchanged") }
            candidate = try make(settings)
        } catch { return .refused(failed("\(error)")) }
        switch await courier.replace(by: candidate, after: settings.probes) {
        case .inUse:
            inUse = settings
            return renewed("new pushes use the new credentials")
        case .refused(let topic, let environment, let reason):
            return .refused(
                failed(
                    "APNs (\(environment)) refuses the new credentials for \(topic): \(reason.rawValue). The previous keys and certificates stay in use. "
                        + "\(reason.explanation.remedy)"))
        case .unknown(let topic, let environment, let reason):
            retry = Task {
                do { try await Task.sleep(for: Self.retryAfter) } catch { return }
                _ = await renew()
            }
            return .unknown(
                failed(
                    "APNs (\(environment)) could not check the new credentials for \(topic): \(reason.rawValue). The previous keys and "
                        + "certificates stay in use. The check is repeated every 30 seconds"))
        case .superseded: return .unknown("a later renewal or a stop replaced this one")
        }
    }

    private func renewed(_ text: String) -> APNsControl.Renewal {
        Terminal.log("apns: \(text)")
        return .inUse
    }

    private func failed(_ fault: String) -> String {
        metrics.add(.alarms)
        Terminal.log(.error, "apns: the present credentials stay in use. \(fault)")
        return fault
    }
}

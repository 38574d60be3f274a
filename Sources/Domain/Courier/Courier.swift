public import EventLoop
import Linux
import Sealing
public import TLS
import Vocabulary

/// The address of an APNs environment.
public struct Endpoint: Sendable, Hashable {
    public var host: String
    public var port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    public static let production = Endpoint(host: "api.push.apple.com", port: 443)
    public static let sandbox = Endpoint(host: "api.sandbox.push.apple.com", port: 443)
    /// The ports that Apple documents ("Sending notification requests to APNs").
    public static let ports: [UInt16] = [443, 2197]

    /// The URI's authority, with the port unless it is 443 (RFC 9113, 8.3.1; RFC 3986, 3.2).
    var authority: String { port == 443 ? bracketed : authorityWithPort }
    /// The same with the port in any case, as CONNECT requires it (RFC 9110, 9.3.6).
    public var authorityWithPort: String { "\(bracketed):\(port)" }

    private var bracketed: String { host.contains(":") ? "[\(host)]" : host }
}

/// Sends pushes.
public protocol PushSender: Sendable {
    /// Sends `push` and returns its final outcome.
    func send(_ push: Push) async -> Outcome
}

/// Sends pushes to their services. It retries each one until a final response or the push's deadline.
/// Each lane has a few HTTP/2 connections, which are opened on demand and kept.
public actor Courier: LoopActor, PushSender, LaneOwner {
    public struct Configuration: Sendable {
        public var production = Endpoint.production
        public var sandbox = Endpoint.sandbox
        public var trust = TLSContext.Trust.system
        /// The proxy that all connections go through. It resolves the names of the endpoints. Nil: connect directly.
        public var proxy: Proxy?
        /// The first account that serves a push's topic, environment and type sends it. Without accounts, every push fails as `notConfigured`.
        public var accounts: [Account]
        /// The bundle ids of apps that pushes may go to, beside those that the accounts list.
        public var apps: Set<String> = []
        /// Called at most once a minute for each kind of alarm, on the loop's thread. Must not block.
        public var onAlarm: @Sendable (Alarm) -> Void
        /// The clock of the pushes' deadlines, in Unix ms.
        public var deadlineClock: @Sendable () -> UInt64 = { Clock.wallMs }
        var timing = Timing()
        var wallMs: @Sendable () -> UInt64 = { Clock.wallMs }
        /// Resolves a host name. May block.
        var resolver: @Sendable (Endpoint) -> [SocketAddress] = {
            (try? SocketAddress.resolve(host: $0.host, port: $0.port)) ?? []
        }

        public init(accounts: [Account], onAlarm: @escaping @Sendable (Alarm) -> Void = { _ in }) {
            self.accounts = accounts
            self.onAlarm = onAlarm
        }

        /// One key for every topic in both environments.
        public init(providerToken: ProviderToken, onAlarm: @escaping @Sendable (Alarm) -> Void = { _ in }) {
            self.init(accounts: [Account(providerToken)], onAlarm: onAlarm)
        }
    }

    public nonisolated let loop: EventLoop
    let deadlineClock: @Sendable () -> UInt64
    private nonisolated let apns: APNsAdapter
    private nonisolated let resolver: Resolver
    /// Indexed by `LaneID.index`.
    private let lanes: [Lane]
    private let signers: [String: ProviderTokenSigner]
    private let shared: Shared
    /// Most pushes take the route of the one before.
    private var lastRoute: Route?
    private var drained: [CheckedContinuation<Void, Never>] = []

    public init(loop: EventLoop, _ configuration: Configuration) throws(TLSError) {
        self.loop = loop
        deadlineClock = configuration.deadlineClock
        resolver = Resolver(configuration.resolver)
        let apns = APNsAdapter(accounts: Accounts(configuration.accounts, apps: configuration.apps))
        self.apns = apns
        let shared = Shared(
            wallMs: configuration.wallMs, hasSeveralAccounts: configuration.accounts.count > 1, onAlarm: configuration.onAlarm)
        self.shared = shared
        let (settings, signers) = apns.lanes(configuration, shared)
        var lanes: [Lane] = []
        for (index, settings) in settings.enumerated() {
            let context = try TLSContext.client(trust: configuration.trust, alpn: ["h2"], certificate: settings.certificate)
            let target = Target(adapter: apns, endpoint: settings.endpoint, context: context, proxy: configuration.proxy)
            lanes.append(Lane(LaneID(index: index), settings, target, loop, configuration.timing, shared))
        }
        self.lanes = lanes
        self.signers = signers
        shared.owner = self
    }

    /// The accounts that pushes to Apple are sent with.
    public nonisolated var accounts: Accounts { apns.accounts }

    /// Sends `push`. Returns after the service's final response, or once the deadline has passed.
    public nonisolated func send(_ push: Push) async -> Outcome { await deliver(push, traced: false).outcome }

    /// Like `send`, but also returns Apple's `apns-unique-id`. Apple sends one in the sandbox, and sometimes in production.
    public nonisolated func sendTraced(_ push: Push) async -> (outcome: Outcome, uniqueID: String?) {
        let receipt = await deliver(push, traced: true)
        return (receipt.outcome, receipt.uniqueID)
    }

    private nonisolated func deliver(_ push: Push, traced: Bool) async -> Receipt {
        // Not isolated to this actor, so the caller resumes on its own executor without a turn on the courier's thread.
        await withCheckedContinuation { continuation in
            if loop.isCurrent {
                assumeIsolated { $0.take(push, traced, continuation) }
            } else {
                loop.submit { self.assumeIsolated { $0.take(push, traced, continuation) } }
            }
        }
    }

    private func take(_ push: Push, _ traced: Bool, _ continuation: CheckedContinuation<Receipt, Never>) {
        func fail(_ reason: PushReason, _ verdict: Verdict = .keep) {
            continuation.resume(returning: Receipt(outcome: .failed(status: 0, reason: reason, verdict: verdict)))
        }
        if let fault = apns.fault(of: push) { return fail(fault) }
        let now = deadlineClock()
        guard push.deadlineMs > now else { return fail(.late) }
        do throws(Unserved) {
            let route = try route(of: push)
            let deadline = loop.now + (push.deadlineMs - now)
            route.lane.enqueue(Delivery(push, route.topic, deadline: deadline, traced: traced, continuation))
        } catch {
            if let alarm = error.alarm { shared.raise(alarm) }
            fail(error.reason, .configuration)
        }
    }

    private func route(of push: Push) throws(Unserved) -> Route {
        if let lastRoute, lastRoute.carries(push) { return lastRoute }
        let (id, topic) = try apns.route(of: push)
        let lane = lanes[id.index]
        let route = Route(lane: lane, topic: lane.topic(topic), destination: push.address.destination, type: push.type)
        lastRoute = route
        return route
    }

    /// Accepts no more pushes, waits up to `withinMs` for those in flight, and closes the connections.
    public func stop(withinMs: UInt64) async {
        for lane in lanes { lane.stop() }
        if !lanes.allSatisfy({ $0.isIdle }) {
            await withCheckedContinuation { continuation in
                drained.append(continuation)
                loop.after(withinMs) { self.drain() }
            }
        }
        for lane in lanes { lane.close() }
    }

    public var figures: Figures { shared.figures }

    private func drain() {
        for continuation in drained { continuation.resume() }
        drained = []
    }

    // MARK: Called by lanes

    nonisolated func laneIsIdle() {
        assumeIsolated { courier in
            if !courier.drained.isEmpty, courier.lanes.allSatisfy({ $0.isIdle }) { courier.drain() }
        }
    }

    nonisolated func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void) {
        assumeIsolated { courier in
            _ = Task {
                await store(issuedAtS)
                courier.signers[signer]?.isStored(issuedAtS)
                for lane in courier.lanes { lane.pump() }
            }
        }
    }

    nonisolated func resolve(_ lane: LaneID, _ endpoint: Endpoint) {
        resolver.resolve(endpoint) { [loop, weak self] addresses in
            loop.submit { [weak self] in self?.assumeIsolated { $0.resolved(lane, addresses) } }
        }
    }

    private func resolved(_ lane: LaneID, _ addresses: [SocketAddress]) { lanes[lane.index].resolved(addresses) }
}

/// Where pushes of one destination and type go.
private struct Route {
    let lane: Lane
    let topic: Topic
    let destination: Destination
    let type: PushType

    func carries(_ push: Push) -> Bool { push.address.destination == destination && push.type == type }
}

/// Identifies one lane of a courier.
struct LaneID: Sendable {
    let index: Int
}

/// Counts since the start.
public struct Figures: Sendable, Equatable {
    public var delivered = 0
    public var failed = 0
    public var retries = 0
}

/// Serves the requests of lanes. Lanes call it on their loop's thread.
protocol LaneOwner: AnyObject {
    /// Resolves a name. The lane's `resolved` gets the addresses.
    func resolve(_ lane: LaneID, _ endpoint: Endpoint)
    /// Stores a provider token's issue time, then resumes the pushes that wait for it.
    func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void)
    func laneIsIdle()
}

/// State shared by all lanes of a courier. Used only on the loop's thread.
final class Shared {
    let wallMs: @Sendable () -> UInt64
    let hasSeveralAccounts: Bool
    weak var owner: (any LaneOwner)?
    private(set) var figures = Figures()
    private let onAlarm: @Sendable (Alarm) -> Void
    private var raised: [String: UInt64] = [:]

    init(
        wallMs: @escaping @Sendable () -> UInt64, hasSeveralAccounts: Bool, onAlarm: @escaping @Sendable (Alarm) -> Void
    ) {
        (self.wallMs, self.hasSeveralAccounts, self.onAlarm) = (wallMs, hasSeveralAccounts, onAlarm)
    }

    var retries: Int {
        get { figures.retries }
        set { figures.retries = newValue }
    }

    func count(_ outcome: Outcome) {
        switch outcome {
        case .delivered: figures.delivered += 1
        case .failed: figures.failed += 1
        }
    }

    func raise(_ alarm: Alarm) {
        let now = Clock.monotonicMs
        if let last = raised[alarm.kind], now - last < 60_000 { return }
        // Many accounts have many kinds of alarms. Forget those older than a minute.
        if raised.count > 1000 { raised = raised.filter { now - $0.value < 60_000 } }
        raised[alarm.kind] = now
        onAlarm(alarm)
    }

    func resolve(_ lane: LaneID, _ endpoint: Endpoint) { owner?.resolve(lane, endpoint) }

    func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void) {
        owner?.store(issuedAtS, of: signer, store)
    }

    func laneIsIdle() { owner?.laneIsIdle() }
}

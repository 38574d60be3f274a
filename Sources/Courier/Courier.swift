public import EventLoop
import Linux
public import TLS
import Vocabulary

/// Where an environment of APNs is.
public struct Endpoint: Sendable, Equatable {
    public var host: String
    public var port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    public static let production = Endpoint(host: "api.push.apple.com", port: 443)
    public static let sandbox = Endpoint(host: "api.sandbox.push.apple.com", port: 443)
    /// Where Apple listens ("Sending notification requests to APNs").
    public static let ports: [UInt16] = [443, 2197]

    /// As a URI names it: with the port unless that is https's own (RFC 9113, 8.3.1; RFC 3986, 3.2).
    var authority: String { (host.contains(":") ? "[\(host)]" : host) + (port == 443 ? "" : ":\(port)") }
}

/// What pushes are given to.
public protocol PushSender: Sendable {
    /// Sends `push`; returns when its end is known.
    func send(_ push: Push) async -> Outcome
}

/// The APNs client: sends each push until it is answered for good or its deadline passes, over a few HTTP/2 connections for each account and
/// environment, opened when they are needed and kept.
public actor Courier: LoopActor, PushSender {
    public struct Configuration: Sendable {
        public var production = Endpoint.production
        public var sandbox = Endpoint.sandbox
        public var trust = TLSContext.Trust.system
        /// A push goes by the first that serves its topic, environment and type. Without any each ends at once, as `notConfigured`.
        public var accounts: [Account]
        /// Told at most once a minute of each kind; called on the loop's thread, must not block.
        public var onAlarm: @Sendable (Alarm) -> Void
        /// What deadlines are measured by, unix ms: of the same clock as those who set them.
        public var deadlineClock: @Sendable () -> UInt64 = { Clock.wallMs }
        var timing = Timing()
        var wallMs: @Sendable () -> UInt64 = { Clock.wallMs }
        /// Looks a name up; may block.
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
    /// Whom to ask what can be sent.
    public nonisolated let accounts: Accounts
    let deadlineClock: @Sendable () -> UInt64
    private let resolver: @Sendable (Endpoint) -> [SocketAddress]
    /// By `LaneID.index`.
    private let lanes: [Lane]
    /// By team and key.
    private let signers: [String: Signer]
    private let shared: Shared
    /// Most pushes take the route of the one before.
    private var lastRoute: Route?
    private var drained: [CheckedContinuation<Void, Never>] = []

    public init(loop: EventLoop, _ configuration: Configuration) throws(TLSError) {
        self.loop = loop
        deadlineClock = configuration.deadlineClock
        resolver = configuration.resolver
        accounts = Accounts(configuration.accounts)
        let shared = Shared(configuration)
        self.shared = shared
        var signers: [String: Signer] = [:]
        var lanes: [Lane] = []
        for (index, account) in configuration.accounts.enumerated() {
            var certificate: ClientCertificate?
            var signer: Signer?
            switch account.credential {
            case .certificate(let shown): certificate = shown
            case .token(let token):
                let key = token.teamID + " " + token.keyID
                signer = signers[key] ?? Signer(token, key, shared)
                signers[key] = signer
            }
            let context = try TLSContext.client(trust: configuration.trust, alpn: ["h2"], certificate: certificate)
            for environment in PushEnvironment.allCases {
                let endpoint = environment == .production ? configuration.production : configuration.sandbox
                let id = LaneID(account: index, environment: environment)
                lanes.append(Lane(id, account, signer, endpoint, loop, context, configuration.timing, shared))
            }
        }
        self.lanes = lanes
        self.signers = signers
        shared.courier = self
    }

    /// Sends `push`; returns when Apple has answered for good, or when its deadline has passed.
    public nonisolated func send(_ push: Push) async -> Outcome { await deliver(push, traced: false).outcome }

    /// As `send`; also returns the name that Apple gave the delivery. Apple gives one in the sandbox, and in production to some.
    public nonisolated func sendTraced(_ push: Push) async -> (outcome: Outcome, uniqueID: String?) {
        let receipt = await deliver(push, traced: true)
        return (receipt.outcome, receipt.uniqueID)
    }

    private nonisolated func deliver(_ push: Push, traced: Bool) async -> Receipt {
        // Not the actor's: who waits here is resumed where it was, without a turn on the courier's thread.
        await withCheckedContinuation { continuation in
            if loop.isCurrent {
                assumeIsolated { $0.take(push, traced, continuation) }
            } else {
                loop.submit { self.assumeIsolated { $0.take(push, traced, continuation) } }
            }
        }
    }

    private func take(_ push: Push, _ traced: Bool, _ continuation: CheckedContinuation<Receipt, Never>) {
        func fail(_ reason: APNsReason, _ verdict: Verdict = .keep) {
            continuation.resume(returning: Receipt(outcome: .failed(status: 0, reason: reason, verdict: verdict)))
        }
        if let fault = push.fault { return fail(fault) }
        let now = deadlineClock()
        guard push.deadlineMs > now else { return fail(.late) }
        guard let route = route(of: push) else {
            shared.raise(.noAccount(push.environment, topic: push.topic, push.type))
            return fail(accounts.all.isEmpty ? .notConfigured : .topicDisallowed, .configuration)
        }
        let deadline = loop.now + (push.deadlineMs - now)
        route.lane.enqueue(Delivery(push, route.topic, deadline: deadline, traced: traced, continuation))
    }

    /// Returns nil if no account serves the push.
    private func route(of push: Push) -> Route? {
        if let lastRoute, lastRoute.carries(push) { return lastRoute }
        guard let account = accounts.index(push.topic, push.environment, push.type) else { return nil }
        let lane = lanes[LaneID(account: account, environment: push.environment).index]
        let route = Route(lane: lane, topic: lane.topic(push.topic), environment: push.environment, type: push.type)
        lastRoute = route
        return route
    }

    /// Takes nothing more, gives what is under way `withinMs` to be answered, and closes the connections.
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

    // MARK: What lanes ask for

    func laneIsIdle() {
        if !drained.isEmpty, lanes.allSatisfy({ $0.isIdle }) { drain() }
    }

    /// Has a provider token's birth stored; the pushes that wait for it go on then.
    func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void) {
        Task {
            await store(issuedAtS)
            signers[signer]?.isStored(issuedAtS)
            for lane in lanes { lane.pump() }
        }
    }

    /// Looks a name up on a thread of its own: the system's resolver blocks.
    nonisolated func resolve(_ lane: LaneID, _ endpoint: Endpoint) {
        let work: @Sendable () -> Void = { [loop, resolver, weak self] in
            let addresses = resolver(endpoint)
            loop.submit { [weak self] in self?.assumeIsolated { $0.resolved(lane, addresses) } }
        }
        if (try? Thread.spawn(name: "resolve", work)) == nil {
            loop.submit { [weak self] in self?.assumeIsolated { $0.resolved(lane, []) } }
        }
    }

    private func resolved(_ lane: LaneID, _ addresses: [SocketAddress]) { lanes[lane.index].resolved(addresses) }
}

/// Where pushes of one topic, environment and type go.
private struct Route {
    let lane: Lane
    let topic: Topic
    let environment: PushEnvironment
    let type: PushType

    func carries(_ push: Push) -> Bool { push.topic == topic.name && push.environment == environment && push.type == type }
}

/// Names one lane of a courier.
struct LaneID: Sendable {
    let account: Int
    let environment: PushEnvironment

    var index: Int { account * PushEnvironment.allCases.count + (environment == .production ? 0 : 1) }
}

/// Counts since the start.
public struct Figures: Sendable, Equatable {
    public var delivered = 0
    public var failed = 0
    public var retries = 0
}

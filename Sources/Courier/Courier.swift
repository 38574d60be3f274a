public import EventLoop
import Linux
public import TLS

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
}

/// What pushes are given to.
public protocol PushSender: Sendable {
    /// Sends `push`; returns when its end is known.
    func send(_ push: Push) async -> Outcome
}

/// The APNs client: sends each push until it is answered for good or its deadline passes, over a few HTTP/2 connections an environment,
/// opened when they are needed and kept.
public actor Courier: LoopActor, PushSender {
    public struct Configuration: Sendable {
        public var production = Endpoint.production
        public var sandbox = Endpoint.sandbox
        public var trust = TLSContext.Trust.system
        public var providerToken: ProviderToken
        /// Told at most once a minute of each kind; called on the loop's thread, must not block.
        public var onAlarm: @Sendable (Alarm) -> Void
        var timing = Timing()
        var wallMs: @Sendable () -> UInt64 = { Clock.wallMs }
        /// Looks a name up; may block.
        var resolver: @Sendable (Endpoint) -> [SocketAddress] = {
            (try? SocketAddress.resolve(host: $0.host, port: $0.port)) ?? []
        }

        public init(providerToken: ProviderToken, onAlarm: @escaping @Sendable (Alarm) -> Void = { _ in }) {
            self.providerToken = providerToken
            self.onAlarm = onAlarm
        }
    }

    public nonisolated let loop: EventLoop
    private let wallMs: @Sendable () -> UInt64
    private let resolver: @Sendable (Endpoint) -> [SocketAddress]
    private let production: Lane
    private let sandbox: Lane
    private let shared: Shared
    private var drained: [CheckedContinuation<Void, Never>] = []

    public init(loop: EventLoop, _ configuration: Configuration) throws(TLSError) {
        self.loop = loop
        wallMs = configuration.wallMs
        resolver = configuration.resolver
        let context = try TLSContext.client(trust: configuration.trust, alpn: ["h2"])
        shared = Shared(configuration)
        production = Lane(.production, configuration.production, loop, context, configuration.timing, shared)
        sandbox = Lane(.sandbox, configuration.sandbox, loop, context, configuration.timing, shared)
        shared.courier = self
    }

    /// Sends `push`; returns when Apple has answered for good, or when its deadline has passed.
    public func send(_ push: Push) async -> Outcome {
        if let fault = push.fault { return .failed(status: 0, reason: fault, verdict: .keep) }
        let now = wallMs()
        guard push.deadlineMs > now else { return .failed(status: 0, reason: .late, verdict: .keep) }
        return await withCheckedContinuation { continuation in
            let deadline = loop.now + (push.deadlineMs - now)
            lane(push.environment).enqueue(Delivery(push, deadline: deadline, continuation))
        }
    }

    /// Takes nothing more, gives what is under way `withinMs` to be answered, and closes the connections.
    public func stop(withinMs: UInt64) async {
        production.stop()
        sandbox.stop()
        if !(production.isIdle && sandbox.isIdle) {
            await withCheckedContinuation { continuation in
                drained.append(continuation)
                loop.after(withinMs) { self.drain() }
            }
        }
        production.close()
        sandbox.close()
    }

    public var figures: Figures { shared.figures }

    private func lane(_ environment: Push.Environment) -> Lane {
        switch environment {
        case .production: production
        case .sandbox: sandbox
        }
    }

    private func drain() {
        for continuation in drained { continuation.resume() }
        drained = []
    }

    // MARK: What lanes ask for

    func laneIsIdle() {
        if production.isIdle && sandbox.isIdle { drain() }
    }

    /// Looks a name up on a thread of its own: the system's resolver blocks.
    nonisolated func resolve(_ environment: Push.Environment, _ endpoint: Endpoint) {
        let work: @Sendable () -> Void = { [loop, resolver, weak self] in
            let addresses = resolver(endpoint)
            loop.submit { [weak self] in self?.assumeIsolated { $0.resolved(environment, addresses) } }
        }
        if (try? Thread.spawn(name: "resolve", work)) == nil {
            loop.submit { [weak self] in self?.assumeIsolated { $0.resolved(environment, []) } }
        }
    }

    private func resolved(_ environment: Push.Environment, _ addresses: [SocketAddress]) { lane(environment).resolved(addresses) }
}

/// Counts since the start.
public struct Figures: Sendable, Equatable {
    public var delivered = 0
    public var failed = 0
    public var retries = 0
}

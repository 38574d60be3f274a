public import EventLoop
import Linux
import Sealing
public import TLS
import Vocabulary
public import WebPush

/// Sends pushes to Web Push services, on a loop of its own. Each origin has a lane, which lives as long as it is used.
public actor WebPushCourier: LoopActor, PushSender, LaneOwner {
    public struct Configuration: Sendable {
        /// The key in force, and while it is rotated also the one before.
        public var keys: [VAPIDKey]
        /// `mailto:` or `https:`, for the services' operators.
        public var contact: String
        public var hosts = PushHosts.public
        /// The proxy that all connections go through. The broker resolves names and passes the proxy only addresses.
        public var proxy: Proxy?
        public var trust = TLSContext.Trust.system
        /// The certificates in the files that `hosts` names.
        public var authorities: [String: [UInt8]] = [:]
        /// Called at most once a minute for each kind of alarm, on the loop's thread. Must not block.
        public var onAlarm: @Sendable (Alarm) -> Void
        /// The clock of the pushes' deadlines, in Unix ms.
        public var deadlineClock: @Sendable () -> UInt64 = { Clock.wallMs }
        var timing = Timing.webPush
        var wallMs: @Sendable () -> UInt64 = { Clock.wallMs }
        /// Resolves a host name. May block.
        var resolver: @Sendable (Endpoint) -> [SocketAddress] = {
            (try? SocketAddress.resolve(host: $0.host, port: $0.port)) ?? []
        }
        /// This machine's own addresses, to which no push is sent.
        var ownAddresses: @Sendable () -> [SocketAddress] = { SocketAddress.ofThisMachine() }

        public init(keys: [VAPIDKey], contact: String, onAlarm: @escaping @Sendable (Alarm) -> Void = { _ in }) {
            (self.keys, self.contact, self.onAlarm) = (keys, contact, onAlarm)
        }
    }

    /// Counts since the start.
    public struct Figures: Sendable, Equatable {
        /// Answers in which Apple, Google or Mozilla refused this deployment. Each also raises an alarm. A single refused subscription doesn't count,
        /// because anybody can register one made for another key.
        public var refused = 0
        /// Pushes that failed at other hosts. They raise no alarm.
        public var failedElsewhere = 0
        /// Look-ups whose addresses were all inward.
        public var inward = 0

        public init() {}
    }

    private struct LaneKey: Hashable {
        let origin: String
        let key: UInt8
    }

    /// A lane and what its host may still do.
    private struct Entry {
        let lane: Lane
        let topic: Topic
        /// True for a host whose name a stranger may have made up.
        let isForeign: Bool
        /// True if its pushes a minute are limited.
        let isLimited: Bool
        let rule: PushHosts.Rule?
        /// The minute of `pushes`, on the loop's clock.
        var minute: UInt64 = 0
        var pushes = 0
        /// Pushes that wait for the next minute.
        var waiting = 0
        var usedAt: UInt64
    }

    public nonisolated let loop: EventLoop
    private let configuration: Configuration
    /// Strangers' name servers may never answer. Then browser makers' hosts must still be found.
    private nonisolated let (resolver, foreignResolver): (Resolver, Resolver)
    private let proxyAddress: ProxyAddress?
    private let shared: Shared
    private let foreignConnections = ConnectionLimit(mostForeignConnections)
    private let adapter: WebPushAdapter
    private var contexts: [String: TLSContext] = [:]
    private var lanes: [LaneKey: Entry] = [:]
    private var laneKeys: [Int: LaneKey] = [:]
    private var lastLane = 0
    /// The addresses of each name that was resolved a moment ago.
    private var resolved: [Endpoint: (addresses: [SocketAddress], until: UInt64)] = [:]
    private var own: (addresses: Set<SocketAddress>, until: UInt64) = ([], 0)
    /// The earliest time of the next look-up of a stranger's host, on the loop's clock.
    private var nextLookUp: UInt64 = 0
    /// Pushes that wait for their host's next minute.
    private var delayed: [Int: (push: Push, continuation: CheckedContinuation<Receipt, Never>, timer: TimerID)] = [:]
    private var lastDelayed = 0
    private var isSweeping = false
    private var isStopped = false
    private var drained: [CheckedContinuation<Void, Never>] = []
    public private(set) var figures = Figures()

    /// Of all hosts that are not browser makers' services, together.
    private static let mostForeignConnections = 256
    private static let mostForeignLanes = 4_096
    /// 8 look-ups of strangers' hosts a second.
    private static let lookUpMs: UInt64 = 125
    private static let mostPushesAMinute = 60
    private static let resolvedMs: UInt64 = 30_000
    private static let mostResolved = 1_024

    public init(loop: EventLoop, _ configuration: Configuration) {
        self.loop = loop
        self.configuration = configuration
        let proxyAddress = configuration.proxy.map(ProxyAddress.init)
        let lookUp: @Sendable (Endpoint) -> [SocketAddress] = { endpoint in
            proxyAddress?.resolve(configuration.resolver)
            return configuration.resolver(endpoint)
        }
        self.proxyAddress = proxyAddress
        resolver = Resolver(lookUp)
        foreignResolver = Resolver(mostThreads: 16, mostWaiting: 64, lookUp)
        shared = Shared(wallMs: configuration.wallMs, hasSeveralAccounts: false, onAlarm: configuration.onAlarm)
        adapter = WebPushAdapter(hasTwoKeys: configuration.keys.count > 1, clock: configuration.deadlineClock)
        shared.owner = self
    }

    /// Sends `push`. Returns after the service's final response, or once the deadline has passed.
    public nonisolated func send(_ push: Push) async -> Outcome {
        guard case .webPush(let number) = push.address.destination else {
            return .failed(status: 0, reason: .other, verdict: .keep)
        }
        let other = configuration.keys.map(\.number).first { $0 != number }
        let outcome = await send(push, key: number, isLast: other == nil)
        // A browser may have subscribed for the other key: pages keep the answer of `GET /api/push`. A refused message was not sent.
        guard let other, Self.isRefusal(outcome) else { return outcome }
        let second = await send(push, key: other, isLast: true)
        // Then the refusal is what is known.
        if case .failed(_, .late, _) = second { return outcome }
        return second
    }

    private static func isRefusal(_ outcome: Outcome) -> Bool {
        guard case .failed(let status, let reason, _) = outcome else { return false }
        return (status, reason) == WebPushAnswer.refused.recorded
    }

    private nonisolated func send(_ push: Push, key number: UInt8, isLast: Bool) async -> Outcome {
        let receipt: Receipt = await withCheckedContinuation { continuation in
            loop.submit { self.assumeIsolated { $0.take(push, number, isLast: isLast, continuation) } }
        }
        return receipt.outcome
    }

    /// - Parameter isLast: false if a refusal is followed by an attempt with the other key.
    private func take(_ push: Push, _ number: UInt8, isLast: Bool, _ continuation: CheckedContinuation<Receipt, Never>) {
        func fail(_ status: Int, _ reason: PushReason, _ verdict: Verdict = .keep, isForeign: Bool = false) {
            let outcome = Outcome.failed(status: status, reason: reason, verdict: verdict)
            count(outcome, isForeign: isForeign)
            continuation.resume(returning: Receipt(outcome: outcome))
        }
        guard !isStopped else { return fail(0, .stopped) }
        let now = configuration.deadlineClock()
        guard push.deadlineMs > now else { return fail(0, .late) }
        if let fault = adapter.fault(of: push) { return fail(0, fault) }
        guard let endpoint = Subscription(push.address.token)?.endpoint else { return fail(0, .other) }
        guard let key = configuration.keys.first(where: { $0.number == number }) else {
            return fail(0, .topicDisallowed, .configuration)
        }
        guard configuration.hosts.stillAllows(endpoint.host, endpoint.port) else {
            return fail(0, .topicDisallowed, isForeign: true)
        }
        let name = LaneKey(origin: endpoint.origin, key: number)
        if lanes[name] == nil {
            do throws(TLSError) { try open(name, endpoint, key) } catch { return fail(0, .badCertificate, .configuration) }
        }
        let deadline = loop.now + (push.deadlineMs - now)
        enqueue(push, name, deadline, isLast: isLast, continuation)
    }

    /// Queues a push in its lane, now or when its host may have another one.
    private func enqueue(
        _ push: Push, _ name: LaneKey, _ deadline: UInt64, isLast: Bool, _ continuation: CheckedContinuation<Receipt, Never>
    ) {
        guard var entry = lanes[name] else {
            return continuation.resume(returning: Receipt(outcome: .failed(status: 0, reason: .stopped, verdict: .keep)))
        }
        let minute = loop.now / 60_000
        if entry.minute != minute { (entry.minute, entry.pushes, entry.waiting) = (minute, 0, 0) }
        entry.usedAt = loop.now
        defer { lanes[name] = entry }
        if entry.isLimited, entry.pushes >= Self.mostPushesAMinute {
            let wait = 60_000 - loop.now % 60_000
            // More could not leave in the next minute either.
            guard loop.now + wait < deadline, entry.waiting < Self.mostPushesAMinute else {
                let late = Outcome.failed(status: 0, reason: .late, verdict: .keep)
                count(late, isForeign: true)
                return continuation.resume(returning: Receipt(outcome: late))
            }
            entry.waiting += 1
            // So it is not swept meanwhile.
            entry.usedAt = loop.now + wait
            lastDelayed += 1
            let number = lastDelayed
            let timer = loop.after(wait) {
                self.assumeIsolated { courier in
                    guard let delayed = courier.delayed.removeValue(forKey: number) else { return }
                    courier.enqueue(delayed.push, name, deadline, isLast: isLast, delayed.continuation)
                }
            }
            delayed[number] = (push, continuation, timer)
            return
        }
        entry.pushes += 1
        let isForeign = entry.isForeign
        let delivery = Delivery(push, entry.topic, deadline: deadline, traced: false, continuation) { [weak self] outcome in
            if isLast || !Self.isRefusal(outcome) { self?.assumeIsolated { $0.count(outcome, isForeign: isForeign) } }
        }
        entry.lane.enqueue(delivery)
    }

    private func count(_ outcome: Outcome, isForeign: Bool) {
        guard case .failed(let status, _, let verdict) = outcome else { return }
        if isForeign { figures.failedElsewhere += 1 } else if status > 0, verdict == .configuration { figures.refused += 1 }
    }

    /// Opens the lane of an origin.
    private func open(_ name: LaneKey, _ endpoint: PushEndpoint, _ key: VAPIDKey) throws(TLSError) {
        let maker = BrowserMaker(host: endpoint.host)
        let isForeign = maker?.hasFixedHosts != true
        let rule = configuration.hosts.rule(endpoint.host, endpoint.port)
        let target = Target(
            adapter: adapter, endpoint: Endpoint(host: endpoint.host, port: endpoint.port),
            context: try context(rule), proxy: configuration.proxy, proxyAddress: proxyAddress, allowsHTTP1: true,
            checksAddresses: true,
            limit: isForeign ? foreignConnections : nil)
        // Strangers could name any number of hosts.
        if isForeign, lanes.count >= Self.mostForeignLanes { sweep() }
        lastLane += 1
        let settings = LaneSettings(
            service: .webPush(maker), endpoint: target.endpoint, certificate: nil,
            signer: VAPIDSigner(key, origin: name.origin, contact: configuration.contact), apps: "Web Push",
            isQuiet: isForeign)
        var timing = configuration.timing
        if isForeign { (timing.connections, timing.dialsOnce) = (2, true) }
        let lane = Lane(LaneID(index: lastLane), settings, target, loop, timing, shared)
        lanes[name] = Entry(
            lane: lane, topic: lane.topic("Web Push"), isForeign: isForeign, isLimited: maker == nil && rule == nil, rule: rule,
            usedAt: loop.now)
        laneKeys[lastLane] = name
        watch()
    }

    private func context(_ rule: PushHosts.Rule?) throws(TLSError) -> TLSContext {
        let file = rule?.authority ?? ""
        if let context = contexts[file] { return context }
        let trust = configuration.authorities[file].map { TLSContext.Trust.authorities($0) } ?? configuration.trust
        let context = try TLSContext.client(trust: trust, alpn: ["h2", "http/1.1"])
        contexts[file] = context
        return context
    }

    // MARK: Lanes that are no longer used

    private static let sweepMs: UInt64 = 15_000

    private func watch() {
        guard !isSweeping, !isStopped else { return }
        isSweeping = true
        loop.after(Self.sweepMs) {
            self.assumeIsolated { courier in
                courier.isSweeping = false
                courier.sweep()
                if !courier.lanes.isEmpty { courier.watch() }
            }
        }
    }

    private func sweep() {
        let now = loop.now
        for (name, entry) in lanes where entry.lane.isUnused && now >= entry.usedAt + 60_000 { lanes[name] = nil }
        laneKeys = laneKeys.filter { lanes[$0.value] != nil }
        resolved = resolved.filter { now < $0.value.until }
    }

    // MARK: Addresses

    /// Resolves a lane's host, and keeps the addresses that a push may be sent to. Connections go to exactly these, so a name that changes its answer
    /// gains nothing.
    nonisolated func resolve(_ lane: LaneID, _ endpoint: Endpoint) { assumeIsolated { $0.lookUp(lane, endpoint) } }

    private func lookUp(_ lane: LaneID, _ endpoint: Endpoint) {
        guard let name = laneKeys[lane.index], let entry = lanes[name] else { return }
        if let known = resolved[endpoint], loop.now < known.until { return hand(known.addresses, to: lane) }
        guard entry.isForeign else { return ask(resolver, lane, endpoint) }
        // Strangers' names must not delay one that the operator knows.
        if entry.rule?.namesOneHost == true { return ask(foreignResolver, lane, endpoint) }
        nextLookUp = max(nextLookUp, loop.now) + Self.lookUpMs
        let wait = nextLookUp - loop.now - Self.lookUpMs
        if wait == 0 { return ask(foreignResolver, lane, endpoint) }
        // The lane gives up waiting after a while, and asks again later.
        guard wait < configuration.timing.connectMs else {
            nextLookUp -= Self.lookUpMs
            return hand([], to: lane)
        }
        loop.after(wait) { self.assumeIsolated { $0.ask($0.foreignResolver, lane, endpoint) } }
    }

    private func ask(_ resolver: Resolver, _ lane: LaneID, _ endpoint: Endpoint) {
        resolver.resolve(endpoint) { [loop, weak self] addresses in
            loop.submit { [weak self] in self?.assumeIsolated { $0.answered(lane, endpoint, addresses) } }
        }
    }

    private func answered(_ lane: LaneID, _ endpoint: Endpoint, _ addresses: [SocketAddress]) {
        guard let name = laneKeys[lane.index], let entry = lanes[name] else { return }
        var allowed = entry.rule?.isPrivate == true ? addresses : addresses.filter { $0.isGlobalUnicast && !isOwn($0) }
        if allowed.isEmpty, !addresses.isEmpty { figures.inward += 1 }
        // A stranger's name must not cost one attempt many connections.
        if entry.isForeign { allowed = Array(Dial.alternating(allowed).prefix(2)) }
        // A name that wasn't found may be found a moment later.
        if !addresses.isEmpty || entry.isForeign, !entry.isForeign || resolved.count < Self.mostResolved {
            resolved[endpoint] = (allowed, loop.now + Self.resolvedMs)
        }
        hand(allowed, to: lane)
    }

    private func hand(_ addresses: [SocketAddress], to lane: LaneID) {
        if let name = laneKeys[lane.index] { lanes[name]?.lane.resolved(addresses) }
    }

    private func isOwn(_ address: SocketAddress) -> Bool {
        if loop.now >= own.until { own = (Set(configuration.ownAddresses().map(\.bare)), loop.now + 60_000) }
        return own.addresses.contains(address.bare)
    }

    // MARK: The end

    /// Accepts no more pushes, waits up to `withinMs` for those in flight, and closes the connections.
    public func stop(withinMs: UInt64) async {
        isStopped = true
        for waiting in delayed.values {
            loop.cancel(waiting.timer)
            waiting.continuation.resume(returning: Receipt(outcome: .failed(status: 0, reason: .stopped, verdict: .keep)))
        }
        delayed = [:]
        for entry in lanes.values { entry.lane.stop() }
        if !lanes.values.allSatisfy(\.lane.isIdle) {
            await withCheckedContinuation { continuation in
                drained.append(continuation)
                loop.after(withinMs) { self.drain() }
            }
        }
        for entry in lanes.values { entry.lane.close() }
        lanes = [:]
    }

    private func drain() {
        for continuation in drained { continuation.resume() }
        drained = []
    }

    nonisolated func laneIsIdle() {
        assumeIsolated { courier in
            if !courier.drained.isEmpty, courier.lanes.values.allSatisfy(\.lane.isIdle) { courier.drain() }
        }
    }

    /// Only provider tokens are stored.
    nonisolated func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void) {}
}

extension Timing {
    /// Web Push services are asked seldom, so idle connections are closed. A host that hangs is given up early.
    static var webPush: Timing {
        var timing = Timing()
        timing.connectMs = 5_000
        timing.idleMs = 30_000
        timing.closesIdle = true
        timing.streams = 100
        return timing
    }
}

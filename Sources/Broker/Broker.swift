public import Courier
public import EventLoop
public import Ledger
import Linux
public import Policy
public import Sealing
public import Shares
import Storage
import Synchronization
public import Vocabulary
public import WebPush

/// The parts of a broker, with their common settings, counts of refusals and gauges.
///
/// `Rooms` has the rules of rooms, `Presence` tracks who is there, `Outbox` owns pushes. `Audiences` serves apps with accounts, with
/// `Companion`, `Monitor` and `Calls` on top. The folder `Keeping` has the tasks without a caller: sweep, key ratchet, public log.
public final class Broker: Sendable {
    /// The apps that a broker serves.
    public struct Settings: Sendable {
        /// The default app's bundle id, which is APNs' topic.
        public var topic: String
        /// The default environment.
        public var environment: PushEnvironment
        /// The length of new sealed addresses.
        public var addressSize: AddressSize
        /// Returns the bundle id of a configured app.
        public var bundleID: @Sendable (_ app: AppID) -> String?
        /// The keys, contact and hosts of Web Push. Nil if the operator configured none.
        public var webPush: WebPushService?
        /// The service that new subscriptions belong to. Nil unless `mayfly push enable` had run before this start.
        public var subscribable: WebPushService?
        /// True if pushes can be sent to this app in this environment.
        public var serves: @Sendable (_ kind: TokenKind, _ topic: String, _ environment: PushEnvironment) -> Bool

        public init(
            topic: String, environment: PushEnvironment, addressSize: AddressSize,
            bundleID: @escaping @Sendable (_ app: AppID) -> String?,
            serves: @escaping @Sendable (_ kind: TokenKind, _ topic: String, _ environment: PushEnvironment) -> Bool
        ) {
            self.topic = topic
            self.environment = environment
            self.addressSize = addressSize
            self.bundleID = bundleID
            self.serves = serves
        }

        /// Returns the bundle id of a destination's app. Nil if it isn't configured, and for other services than Apple's.
        func bundleID(of destination: Destination) -> String? {
            guard case .apns(let app, _) = destination else { return nil }
            return bundleID(app)
        }

        /// True if pushes can be sent there.
        func reaches(_ destination: Destination) -> Bool {
            switch destination {
            case .apns(let app, _): bundleID(app) != nil
            case .webPush(let key): webPush?.has(key: key) == true
            case .other: false
            }
        }

        /// Returns the push address of a browser's subscription.
        /// - Throws: `.webPushOff` if new subscriptions are not accepted; `.overloaded`; `PushEndpoint.Fault` and `Subscription.Fault` for the caller.
        public func address(endpoint: Span<UInt8>, p256dh: Span<UInt8>, auth: Span<UInt8>) throws -> PushAddress {
            guard let service = subscribable else { throw BrokerError.webPushOff }
            let subscription = try Subscription(endpoint: endpoint, p256dh: p256dh, auth: auth, service.hosts)
            return PushAddress(.webPush(key: service.current.number), token: subscription.secret)
        }

        /// Returns the push address of a token at Apple.
        /// - Parameters:
        ///   - topic: the app's bundle id. Nil for the default app.
        ///   - environment: nil for the default one, or the only one that the app is served in.
        /// - Throws: `.appNotServed` if no push could be sent there.
        public func address(
            of token: Secret, _ kind: TokenKind, topic: String? = nil, environment: PushEnvironment? = nil
        ) throws(BrokerError) -> PushAddress {
            let topic = topic ?? self.topic
            let wanted = environment.map { [$0] } ?? [self.environment] + PushEnvironment.allCases
            guard let served = wanted.first(where: { serves(kind, topic, $0) }) else { throw .appNotServed }
            return PushAddress(.apns(AppID(bundleID: topic), served), token: token)
        }
    }

    public let rooms: Rooms
    public let presence: Presence
    public let outbox: Outbox
    let shared: Dependencies
    private let refusals = Mutex<[Entry.RefusalCause: Int]>([:])

    /// - Parameters:
    ///   - shares: the quotas of all callers, which the server charges as well.
    ///   - sockets: receives messages and pings.
    ///   - neighbors: nil if this node is alone.
    public init(
        loop: EventLoop, store: StoreAccess, keys: KeyRing, time: BrokerTime, policies: Policies, courier: any PushSender,
        sweeper: Sweeper, settings: Settings, metrics: Metrics, shares: Shares? = nil, sockets: any RoomSockets,
        neighbors: Neighbors? = nil, log: Logger
    ) {
        let limits = policies.rooms
        shared = Dependencies(
            loop: loop, store: store, keys: keys, time: time, policies: policies, sweeper: sweeper,
            settings: settings, metrics: metrics,
            charges: CallerCharges(shares ?? Shares(.standard(limits)), loop: loop, time: time), neighbors: neighbors,
            log: log)
        presence = Presence(
            loop: loop,
            timing: PresenceState.Timing(
                graceMs: limits.peerGraceMs, reportMs: limits.presenceMs, probeMs: limits.presenceProbeMs), sockets: sockets,
            neighbors: neighbors)
        outbox = Outbox(shared, courier: courier, presence: presence)
        rooms = Rooms(shared, presence: presence, outbox: outbox)
    }

    public var loop: EventLoop { shared.loop }
    public var policies: Policies { shared.policies }
    public var settings: Settings { shared.settings }
    public var metrics: Metrics { shared.metrics }
    public var shares: Shares { shared.charges.shares }
    /// The wall clock, unix ms. JWTs are dated by it.
    public var wallMs: UInt64 { shared.time.wallMs }

    /// Says until when broker time is ahead of the wall clock. Nil if it is at most a minute ahead.
    public var timeLead: String? { shared.time.lead }

    // MARK: Refusals

    /// Counts a refusal for the ledger's next window.
    public func recordRefusal(_ error: BrokerError) {
        shared.metrics.add(.refused)
        shared.store.reportShortage(error)
        if let cause = error.ledgerCause { refusals.withLock { $0[cause, default: 0] += 1 } }
    }

    /// Reports a fault that no caller caused.
    /// - Parameter text: the kind of fault, a colon, and a description.
    public func reportFault(_ text: String) { shared.store.report(text) }

    /// Returns the refusals since the last call, rounded, at most one entry for each cause.
    public func takeRefusals() -> [Entry.Op] {
        let taken = refusals.withLock { refusals in
            defer { refusals = [:] }
            return refusals
        }
        return taken.sorted { $0.key.rawValue < $1.key.rawValue }.map { cause, count in
            .requestRefused(cause: cause, count: UInt32(clamping: Metrics.rounded(count)))
        }
    }

    // MARK: Gauges

    /// Returns the metrics that are read at each scrape.
    public func gauges() async -> [Metrics.Sample] {
        let own: [Metrics.Sample] = [
            .init("mayfly_sockets", "Open WebSockets in rooms.", await presence.socketCount),
            .init("mayfly_resident_bytes", "Resident memory.", ProcessControl.residentMemory),
            .init("mayfly_nodes", "Nodes that serve and hear each other, with this one.", shared.nodes, isExact: true),
        ]
        // Unreadable counts are left out. Zeros would report an empty store.
        guard let counts = try? await shared.store.engine.counts() else { return own }
        return [
            .init("mayfly_rooms", "Rooms stored.", counts.rooms),
            .init("mayfly_tokens", "Tokens of rooms stored.", counts.tokens),
            .init("mayfly_registrations", "Tokens of apps with accounts stored.", counts.registrations),
            .init("mayfly_join_codes", "Join codes that can be used.", counts.codes),
            .init("mayfly_pushes_queued", "Pushes queued for APNs.", counts.jobs),
            .init("mayfly_ledger_entries_waiting", "Ledger entries that are not published yet.", counts.waitingEntries),
        ] + own
    }
}

/// The dependencies that all parts of a broker share.
struct Dependencies: Sendable {
    let loop: EventLoop
    let store: StoreAccess
    let keys: KeyRing
    let time: BrokerTime
    let policies: Policies
    let sweeper: Sweeper
    let settings: Broker.Settings
    let metrics: Metrics
    let charges: CallerCharges
    /// Is nil if this node is alone.
    let neighbors: Neighbors?
    let log: Logger

    /// How many nodes serve. Each grants that part of a budget.
    var nodes: Int { 1 + (neighbors?.count ?? 0) }
}

/// A part of the broker. All parts live on the engine's loop, so that a request passes from one to another without a switch.
protocol BrokerPart: LoopActor {
    nonisolated var shared: Dependencies { get }
}

extension BrokerPart {
    nonisolated var store: StoreAccess { shared.store }
    nonisolated var keys: KeyRing { shared.keys }
    nonisolated var time: BrokerTime { shared.time }
    nonisolated var policies: Policies { shared.policies }
    nonisolated var sweeper: Sweeper { shared.sweeper }
    nonisolated var settings: Broker.Settings { shared.settings }
    nonisolated var metrics: Metrics { shared.metrics }
    nonisolated var charges: CallerCharges { shared.charges }
}

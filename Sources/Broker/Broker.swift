public import Courier
public import EventLoop
import Ledger
import Linux
public import Policy
public import Sealing
public import Storage

/// The rules of rooms: who may do what, what is sealed under what, when the peer is knocked at.
///
/// It lives on the engine's loop, so that a request reaches it without a switch; what must be durable is so when a call returns.
public actor Broker: LoopActor {
    /// What differs between brokers.
    public struct Settings: Sendable {
        /// The bundle id, APNs' topic, of the app that is meant where nobody names another.
        public var topic: String
        /// Likewise.
        public var environment: PushEnvironment
        /// Whether pushes can be sent to an app there at all.
        public var serves: @Sendable (_ kind: TokenKind, _ topic: String, _ environment: PushEnvironment) -> Bool

        public init(
            topic: String, environment: PushEnvironment,
            serves: @escaping @Sendable (_ kind: TokenKind, _ topic: String, _ environment: PushEnvironment) -> Bool
        ) {
            self.topic = topic
            self.environment = environment
            self.serves = serves
        }

        /// Where a token is for; nil where nothing could be sent to it. An app that is served in one environment only need not be told which.
        func destination(
            _ kind: TokenKind, topic: String?, environment: PushEnvironment?
        ) -> (topic: String, environment: PushEnvironment)? {
            let topic = topic ?? self.topic
            if let environment { return serves(kind, topic, environment) ? (topic, environment) : nil }
            let served = PushEnvironment.allCases.filter { serves(kind, topic, $0) }
            return served.contains(self.environment) ? (topic, self.environment) : served.first.map { (topic, $0) }
        }
    }

    public nonisolated let loop: EventLoop
    let store: any Store
    let keys: KeyRing
    let time: BrokerTime
    /// Broker time, unix ms: what expiry is measured by.
    public nonisolated var nowMs: UInt64 { time.now }

    /// The wall clock, unix ms: what JWTs are dated by.
    public nonisolated var wallMs: UInt64 { time.wallMs }
    public nonisolated let policies: Policies
    let courier: any PushSender
    let sweeper: Sweeper
    let settings: Settings
    public nonisolated let metrics: Metrics
    let log: @Sendable (String) -> Void

    var presence: Presence
    var sockets = SocketRegister()
    var edge: (any RoomSockets)?
    private(set) var creations: AttemptBudget
    private var wrongCodes: AttemptBudget
    private var shortCreations: Allowance
    var tokenKnocks: KeyedBudget
    /// The timer for the next end of a window of these, and when that is.
    private var windowsEnd: (at: UInt64, timer: TimerID)?
    private var refusals: [Entry.RefusalCause: Int] = [:]
    private let startedAt: UInt64
    /// Rooms made since the start, for as long as it matters: nobody was in them before, so no one can come back to them.
    var young: Set<[UInt8]> = []
    var departures: Departures
    let revocations = Revocations()
    let newest = NewestPushes()
    /// Seals of tokens that were sealed anew while pushes to them may be under way: those still leave.
    let renewals = Revocations()
    let access: StoreAccess
    /// When outcomes that the store does not take are logged again, on the loop's clock, and whether it took none of late.
    var outcomesLogAt: UInt64 = 0
    var holdsOutcomes = false

    public init(
        loop: EventLoop, store: any Store, keys: KeyRing, time: BrokerTime, policies: Policies, courier: any PushSender,
        sweeper: Sweeper, settings: Settings, metrics: Metrics, access: StoreAccess, log: @escaping @Sendable (String) -> Void
    ) {
        self.loop = loop
        self.store = store
        self.keys = keys
        self.time = time
        self.policies = policies
        self.courier = courier
        self.sweeper = sweeper
        self.settings = settings
        self.metrics = metrics
        self.access = access
        self.log = log
        let limits = policies.rooms
        presence = Presence(graceMs: limits.peerGraceMs, heldMs: limits.presenceMs)
        creations = AttemptBudget(limits.creations, ipv4Bits: limits.ipv4Bits, ipv6Bits: limits.ipv6Bits)
        wrongCodes = AttemptBudget(limits.wrongCodes, ipv4Bits: limits.ipv4Bits, ipv6Bits: limits.ipv6Bits)
        shortCreations = Allowance(limits.shortCreations)
        tokenKnocks = KeyedBudget(limits.tokenKnocks)
        departures = Departures(shuffles: policies.templates.values.contains { !$0.timing.isAtOnce })
        startedAt = time.now
    }

    public func setEdge(_ edge: any RoomSockets) { self.edge = edge }

    // MARK: Budgets

    /// Making a room tells whether its code is free, so that with a short code it is a guess as well. Taken before the store is asked,
    /// so that requests at the same moment don't all find room.
    func takeCreation(_ joinid: [UInt8], _ address: SocketAddress) throws(BrokerError) {
        let now = time.now
        let isShort = policies.rooms.isShort(codeOf: joinid.count)
        if let wait = creations.refusal(address, now: now) ?? (isShort ? shortCreations.refusal(now: now) : nil) {
            throw .tooManyRequests(retryAfterSeconds: wait)
        }
        if isShort { shortCreations.take(now: now) }
    }

    /// The caller has learned nothing of the code.
    func giveBackCreation(_ joinid: [UInt8]) {
        if policies.rooms.isShort(codeOf: joinid.count) { shortCreations.giveBack(now: time.now) }
    }

    func spendCreation(_ address: SocketAddress) {
        creations.spend(address, now: time.now)
        watchWindows()
    }

    /// Codes that are not short can't be guessed: the budget of all together holds for short ones only, so that whoever uses it up
    /// shuts out no others.
    func admitGuess(_ joinid: [UInt8], _ address: SocketAddress) throws(BrokerError) {
        let isShort = policies.rooms.isShort(codeOf: joinid.count)
        if let wait = wrongCodes.refusal(address, overall: isShort, now: time.now) {
            throw .tooManyRequests(retryAfterSeconds: wait)
        }
    }

    func spendGuess(_ joinid: [UInt8], _ address: SocketAddress) {
        wrongCodes.spend(address, overall: policies.rooms.isShort(codeOf: joinid.count), now: time.now)
        watchWindows()
    }

    /// Whom and what was counted in a window is forgotten when it ends, also if nobody asks then.
    func watchWindows() {
        let end = min(creations.end ?? .max, wrongCodes.end ?? .max, tokenKnocks.end ?? .max)
        guard end < .max else { return }
        if let windowsEnd {
            if windowsEnd.at <= end { return }
            loop.cancel(windowsEnd.timer)
        }
        let timer = loop.after(end - min(time.now, end) + 1) { self.assumeIsolated { $0.forgetWindows() } }
        windowsEnd = (end, timer)
    }

    private func forgetWindows() {
        windowsEnd = nil
        let now = time.now
        creations.forget(now)
        wrongCodes.forget(now)
        tokenKnocks.forget(now)
        watchWindows()
    }

    /// A token was destroyed: what is queued for it is not sent any more.
    func revoke(_ ref: [UInt8]?) {
        guard let ref else { return }
        let now = time.now
        revocations.add(ref, until: now + policies.jobDeadlineMs, now: now)
    }

    /// These tokens live on under other seals.
    func renew(_ refs: [[UInt8]]) {
        let now = time.now
        for ref in refs { renewals.add(ref, until: now + policies.jobDeadlineMs, now: now) }
    }

    func revoke(_ refs: [[UInt8]]) { for ref in refs { revoke(ref) } }

    // MARK: Refusals for the ledger

    /// Counts a refusal for the ledger's next window.
    public func noteRefusal(_ error: BrokerError) {
        metrics.add(.refused)
        if let cause = error.ledgerCause { refusals[cause, default: 0] += 1 }
    }

    /// The refusals since the last call, rounded, at most one of each cause.
    public func takeRefusals() -> [Entry.Op] {
        defer { refusals = [:] }
        return refusals.sorted { $0.key.rawValue < $1.key.rawValue }.map { cause, count in
            .requestRefused(cause: cause, count: UInt32(clamping: Metrics.rounded(count)))
        }
    }

    // MARK: Time since the start

    /// Until when a knock in this room waits for a peer who may have lost its socket by the restart.
    func startGraceEnd(_ room: [UInt8]) -> UInt64 {
        let end = startedAt + policies.rooms.startGraceMs
        guard time.now < end else {
            young = []
            return 0
        }
        return young.contains(room) ? 0 : end
    }

    func noteYoung(_ room: [UInt8]) {
        if time.now < startedAt + policies.rooms.startGraceMs { young.insert(room) }
    }

    // MARK: Gauges

    public func gauges() async -> [(name: String, value: Int)] {
        let counts = (try? await store.counts()) ?? StoreCounts()
        return [
            ("mayfly_rooms", counts.rooms), ("mayfly_tokens", counts.tokens), ("mayfly_registrations", counts.registrations),
            ("mayfly_join_codes", counts.codes),
            ("mayfly_pushes_queued", counts.jobs), ("mayfly_ledger_entries_waiting", counts.waitingEntries),
            ("mayfly_sockets", sockets.count), ("mayfly_resident_bytes", ProcessControl.residentMemory),
        ]
    }
}

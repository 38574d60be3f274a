public import Courier
public import EventLoop
import Ledger
import Linux
public import Policy
public import Sealing
public import Shares
public import Storage
public import Vocabulary

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
    let sweeper: Sweeper
    let settings: Settings
    public nonisolated let metrics: Metrics
    let log: @Sendable (String) -> Void

    /// The shares of all callers. Every layer charges here.
    public nonisolated let shares: Shares
    public nonisolated let presence: Presence
    public nonisolated let outbox: Outbox
    var recentAccepts = RecentAccepts()
    private var wrongCodes: AttemptBudget
    private var shortCreations: Allowance
    let tokenKnocks: KeyedBudget
    /// The timer for the next end of a window of these, and when that is.
    private var windowsEnd: (at: UInt64, timer: TimerID)?
    /// When the last window of what was charged is over; nil if there is none.
    private(set) var chargesEnd: UInt64?
    private var refusals: [Entry.RefusalCause: Int] = [:]
    private let startedAt: UInt64
    /// Rooms made since the start, for as long as it matters: nobody was in them before, so no one can come back to them.
    var young: Set<Digest> = []
    let access: StoreAccess

    public init(
        loop: EventLoop, store: any Store, keys: KeyRing, time: BrokerTime, policies: Policies, courier: any PushSender,
        sweeper: Sweeper, settings: Settings, metrics: Metrics, access: StoreAccess, shares: Shares? = nil,
        log: @escaping @Sendable (String) -> Void
    ) async {
        self.loop = loop
        self.store = store
        self.keys = keys
        self.time = time
        self.policies = policies
        self.sweeper = sweeper
        self.settings = settings
        self.metrics = metrics
        self.access = access
        self.log = log
        let limits = policies.rooms
        presence = Presence(
            loop: loop,
            timing: PresenceState.Timing(
                graceMs: limits.peerGraceMs, reportMs: limits.presenceMs, probeMs: limits.presenceProbeMs))
        self.shares = shares ?? Shares(.standard(limits.creations))
        wrongCodes = AttemptBudget(limits.wrongCodes, ipv4Bits: limits.ipv4Bits, ipv6Bits: limits.ipv6Bits)
        shortCreations = Allowance(limits.shortCreations)
        tokenKnocks = KeyedBudget(limits.tokenKnocks)
        outbox = Outbox(
            loop: loop, store: store, access: access, keys: keys, time: time, policies: policies, courier: courier,
            sweeper: sweeper, metrics: metrics, presence: presence, log: log)
        startedAt = time.now
        await presence.attach(self)
    }

    // MARK: Budgets

    /// Making a room tells whether its code is free, so that with a short code it is a guess as well. Taken before the store is asked,
    /// so that requests at the same moment don't all find room.
    func takeCreation(_ joinid: [UInt8], _ address: SocketAddress) throws(BrokerError) -> [Charge] {
        let now = time.now
        let isShort = policies.rooms.isShort(codeOf: joinid.count)
        let owners = RequestCharges.current?.owners ?? Owners(shares.network(address))
        let charges: [Charge]
        do throws(Shortage) {
            charges = try chargeEntries(1, to: owners, urgency: .creation)
        } catch { throw BrokerError(error) }
        guard isShort else { return charges }
        if let wait = shortCreations.refusal(now: now) {
            shares.refund(charges)
            throw .tooManyRequests(retryAfterSeconds: wait)
        }
        shortCreations.take(now: now)
        return charges
    }

    /// The caller has learned nothing of the code.
    func giveBackCreation(_ joinid: [UInt8]) {
        if policies.rooms.isShort(codeOf: joinid.count) { shortCreations.giveBack(now: time.now) }
    }

    // MARK: Shares

    /// Charges whoever asked for what runs now. Returns nil for what the broker does by itself.
    func charge(
        _ resource: Resource, _ amount: Int = 1, side: Owner? = nil, urgency: Urgency = .creation
    ) throws(Shortage) -> Charge? {
        guard var owners = RequestCharges.current?.owners else { return nil }
        owners.side = side
        let now = time.now
        defer { noteCharge(now) }
        return try shares.charge(resource, amount, to: owners, now: now, urgency: urgency)
    }

    /// Rows of callers are dropped when their windows are over.
    func noteCharge(_ now: UInt64) {
        chargesEnd = now + max(shares.table[.creations].windowMs ?? 0, shares.table[.tokenReplacements].windowMs ?? 0)
        watchWindows()
    }

    /// Charges something that adds to the public log: its entries are bounded by the budget of creations, and while the log can't be
    /// published by a share of what may wait.
    func chargeEntries(_ operations: Int = 1, urgency: Urgency = .creation) throws(Shortage) -> [Charge] {
        guard let owners = RequestCharges.current?.owners else { return [] }
        return try chargeEntries(operations, to: owners, urgency: urgency)
    }

    private func chargeEntries(_ operations: Int, to owners: Owners, urgency: Urgency) throws(Shortage) -> [Charge] {
        let now = time.now
        defer { noteCharge(now) }
        let creation = try shares.charge(.creations, operations, to: owners, now: now)
        do throws(Shortage) {
            return [creation, try shares.charge(.ledgerBacklog, operations, to: owners, urgency: urgency)]
        } catch {
            shares.refund(creation)
            throw error
        }
    }

    /// Charges pushes that are about to be queued.
    ///
    /// A back end's pushes are no creations: the policy's `tokenPushes` bounds what they add to the log.
    func chargePushes(_ count: Int) throws(BrokerError) -> PushCharge? {
        guard count > 0, let current = RequestCharges.current else { return nil }
        do throws(Shortage) {
            guard let queued = try charge(.queuedPushes, count, urgency: .knock) else { return nil }
            do throws(Shortage) {
                if !current.owners.payer.isBackEnd { _ = try chargeEntries(count, urgency: .knock) }
            } catch {
                shares.refund(queued)
                throw error
            }
            return PushCharge(shares, queued)
        } catch { throw BrokerError(error) }
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
        let end = min(chargesEnd ?? .max, wrongCodes.end ?? .max, tokenKnocks.end ?? .max)
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
        shares.forget([.creations, .tokenReplacements], now: now)
        if let chargesEnd, chargesEnd <= now { self.chargesEnd = nil }
        wrongCodes.forget(now)
        tokenKnocks.forget(now)
        watchWindows()
    }

    // MARK: Refusals for the ledger

    /// Counts a refusal for the ledger's next window.
    public func noteRefusal(_ error: BrokerError) {
        metrics.add(.refused)
        access.tell(error)
        if let cause = error.ledgerCause { refusals[cause, default: 0] += 1 }
    }

    /// Reports trouble that is no caller's fault.
    /// - Parameter text: its kind, a colon, what is wrong.
    public func noteTrouble(_ text: String) { access.report(text) }

    /// The refusals since the last call, rounded, at most one of each cause.
    public func takeRefusals() -> [Entry.Op] {
        defer { refusals = [:] }
        return refusals.sorted { $0.key.rawValue < $1.key.rawValue }.map { cause, count in
            .requestRefused(cause: cause, count: UInt32(clamping: Metrics.rounded(count)))
        }
    }

    // MARK: Time since the start

    /// Until when a knock in this room waits for a peer who may have lost its socket by the restart.
    func startGraceEnd(_ room: Digest) -> UInt64 {
        let end = startedAt + policies.rooms.startGraceMs
        guard time.now < end else {
            young = []
            return 0
        }
        return young.contains(room) ? 0 : end
    }

    func noteYoung(_ room: Digest) {
        if time.now < startedAt + policies.rooms.startGraceMs { young.insert(room) }
    }

    // MARK: Gauges

    public func gauges() async -> [Metrics.Sample] {
        let own: [Metrics.Sample] = [
            .init("mayfly_sockets", "Open WebSockets in rooms.", await presence.socketCount),
            .init("mayfly_resident_bytes", "Resident memory.", ProcessControl.residentMemory),
        ]
        // Unreadable counts are left out. Zeros would report an empty store.
        guard let counts = try? await store.counts() else { return own }
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

public import EventLoop
import Linux
public import Policy
import Sealing
import Storage
import Vocabulary

/// What apps with accounts share: registrations, fan-out, throttling, timers, idempotency. One for each kind of app.
///
/// An audience is whom an app addresses: a user, a printer, a uid. Its tokens are stored under keys that only the broker can derive. This
/// actor lives on the engine's loop, beside `Outbox`, which sends its pushes.
public actor Audiences: LoopActor {
    public nonisolated let loop: EventLoop
    nonisolated let broker: Broker
    let outbox: Outbox
    let store: StoreAccess
    let keys: KeyRing
    let time: BrokerTime
    let sweeper: Sweeper
    public nonisolated let policy: Policy
    public nonisolated let limits: AudienceLimits
    let settings: Broker.Settings
    let metrics: Metrics
    let tokenPushes: KeyedBudget
    private let events: KeyedBudget
    private var windowsEnd: UInt64?
    /// Places of registrations that were made under a policy with longer or shorter lives.
    private var formerPlaces: [(kind: TokenKind, place: ExpirySlot)] = []
    /// Called when one of the app's timers runs out.
    var timedOut: (@Sendable (TimerRecord) async throws(BrokerError) -> Void)?
    /// When something is next due, as far as this knows.
    var nextDue: UInt64 = 0
    /// The loop that sleeps until then.
    var sleeper: (until: UInt64, timer: TimerID, continuation: CheckedContinuation<Void, Never>)?
    /// By owner, registrations that wait for the one before them.
    private var registering: [[UInt8]: [CheckedContinuation<Void, Never>]] = [:]

    public init(broker: Broker, policy: Policy, limits: AudienceLimits) {
        let shared = broker.shared
        loop = shared.loop
        store = shared.store
        keys = shared.keys
        time = shared.time
        sweeper = shared.sweeper
        settings = shared.settings
        metrics = shared.metrics
        self.broker = broker
        outbox = broker.outbox
        self.policy = policy
        self.limits = limits
        tokenPushes = KeyedBudget(limits.tokenPushes)
        events = KeyedBudget(limits.eventsPerUser)
    }

    /// The wall clock, unix ms. JWTs are dated by it.
    public nonisolated var wallMs: UInt64 { time.wallMs }

    /// Counts a refusal for the ledger's next window.
    public nonisolated func noteRefusal(_ error: BrokerError) { broker.noteRefusal(error) }

    func setTimedOut(_ action: @escaping @Sendable (TimerRecord) async throws(BrokerError) -> Void) { timedOut = action }

    /// Counts an event of this user. Every other write for a user counts as one, so that nobody fills the disk or the queue.
    /// - Throws: `.tooManyRequests` if the user's budget is used up.
    @discardableResult
    func takeEvent(of user: [UInt8]) throws(BrokerError) -> KeyedBudget.Reservation {
        let now = time.now
        let reservation = try available { () throws(SealingError) in try events.reserve(user, now: now) }
        if let reservation {
            watchWindows()
            return reservation
        }
        throw .tooManyRequests(retryAfterSeconds: Int(((events.end ?? now) - now + 999) / 1_000))
    }

    /// Waits until no other registration of this owner is under way. Otherwise those of one token would replace each other and start over.
    /// - Throws: `.tooManyRequests` if too many wait already.
    func beginRegistering(_ owner: [UInt8]) async throws(BrokerError) {
        guard let waiting = registering[owner]?.count else {
            registering[owner] = []
            return
        }
        guard waiting < Self.mostRegistering else { throw .tooManyRequests(retryAfterSeconds: 1) }
        await withCheckedContinuation { registering[owner]?.append($0) }
    }

    /// A registration that waits keeps its token in the arena.
    static let mostRegistering = 64

    func waitingRegistrations(of owner: [UInt8]) -> Int { registering[owner]?.count ?? 0 }

    func endRegistering(_ owner: [UInt8]) {
        if registering[owner]?.isEmpty == false {
            registering[owner]?.removeFirst().resume()
        } else {
            registering[owner] = nil
        }
    }

    /// Counts must not outlive their window, even if nobody asks then.
    func watchWindows() {
        let end = min(events.end ?? .max, tokenPushes.end ?? .max)
        guard end < .max, windowsEnd != end else { return }
        windowsEnd = end
        loop.after(end - min(time.now, end) + 1) {
            self.assumeIsolated { audiences in
                audiences.windowsEnd = nil
                audiences.events.forget(audiences.time.now)
                audiences.tokenPushes.forget(audiences.time.now)
                audiences.watchWindows()
            }
        }
    }

    // MARK: Places of rows

    /// Rows of one kind live equally long, so that one look-up finds them all.
    enum Life {
        case device, activity, session
        /// A row for a request's own id. It outlives the request by one step, so that the request is found until its end.
        case request
    }

    /// Returns a life of 0 for what this kind of app does not have.
    private nonisolated func span(_ life: Life) -> (life: UInt64, step: UInt64) {
        switch life {
        case .device: (limits.deviceLifeMs, 86_400_000)
        case .activity: (limits.activities?.lifeMs ?? 0, 3_600_000)
        case .session: (limits.sessionLifeMs, 43_200_000)
        case .request: (limits.approvals.map { $0.keptMs + Self.requestStep } ?? 0, Self.requestStep)
        }
    }

    private static let requestStep: UInt64 = 300_000

    /// The place where a row of this life is written now.
    func place(_ life: Life) -> ExpirySlot {
        let (life, step) = span(life)
        return keys.expirySlot(lifeMs: life, stepMs: step, nowMs: time.now)
    }

    /// All places where a row of this life may be.
    func places(_ life: Life) -> [ExpirySlot] {
        let now = time.now
        formerPlaces.removeAll { $0.place.expiryMs <= now }
        let former = formerPlaces.filter { $0.kind.life == life }.map(\.place)
        return usualPlaces(life) + former
    }

    private func usualPlaces(_ life: Life) -> [ExpirySlot] {
        let (life, step) = span(life)
        return life > 0 ? keys.expirySlots(lifeMs: life, stepMs: step, nowMs: time.now) : []
    }

    /// Reads the places of registrations, once, before anything is looked up. Rows that an earlier policy gave other lives are found, renewed
    /// and deleted like all others until they expire.
    public func learnPlaces() async throws(BrokerError) {
        let found = try await store.perform(.survey) { try $0.registrationSlots() }
        formerPlaces = found.compactMap { found in
            usualPlaces(found.kind.life).contains(found.place) ? nil : (found.kind, found.place)
        }
    }

    /// The index by which a row at this place is found.
    func index(_ label: AudienceLabel, _ place: ExpirySlot, _ fields: [UInt8]...) throws(BrokerError) -> Digest {
        try index(label, place, fields)
    }

    private func index(_ label: AudienceLabel, _ place: ExpirySlot, _ fields: [[UInt8]]) throws(BrokerError) -> Digest {
        try available { () throws(SealingError) in try keys.index(label, place, policy.kind, fields) }
    }

    /// The same for every place where such a row may be.
    func indexes(_ label: AudienceLabel, _ life: Life, _ fields: [[UInt8]]) throws(BrokerError) -> [Digest] {
        try available { () throws(SealingError) in
            try places(life).map { place throws(SealingError) in try keys.index(label, place, policy.kind, fields) }
        }
    }

    /// Returns a record that makes a change happen once. The same fields again return `.repeated`, as long as a session's row lives.
    func seen(_ fields: [UInt8]...) throws(BrokerError) -> SeenRecord {
        let place = place(.session)
        return try available { () throws(SealingError) in
            let key = try keys.index(.seen, place, policy.kind, fields)
            let others = try places(.session).filter { $0 != place }.map { place throws(SealingError) in
                try keys.index(.seen, place, policy.kind, fields)
            }
            return SeenRecord(key: key, expires: place.expiryMs, others: others)
        }
    }

    /// Derives the keys of all places, once. With a month of them the first look-up would delay every request by a tenth of a second.
    public nonisolated func prepare() {
        for span in [span(.device), span(.activity), span(.session)] where span.life > 0 {
            for place in keys.expirySlots(lifeMs: span.life, stepMs: span.step, nowMs: time.now) {
                _ = try? keys.index(.audience, place, [])
            }
        }
    }

    // MARK: Looking up

    /// The devices of an audience.
    func devices(of audience: [UInt8]) async throws(BrokerError) -> [RegistrationRecord] {
        try await registrations(.audience, indexes(.audience, .device, [audience]))
    }

    /// The registrations of one owner.
    func registrations(of owner: [UInt8]) async throws(BrokerError) -> [RegistrationRecord] {
        try await registrations(.owner, ownerIndexes(owner))
    }

    func ownerIndexes(_ owner: [UInt8]) throws(BrokerError) -> [Digest] {
        try indexes(.owner, .device, [owner]) + indexes(.owner, .activity, [owner])
    }

    /// The Live Activities of one owner's session.
    func activities(of owner: [UInt8], session: [UInt8]) async throws(BrokerError) -> [RegistrationRecord] {
        try await registrations(.session, indexes(.session, .activity, [owner, session]))
    }

    /// Returns the row of a user's session or of a printer's run, or nil if there is none.
    func session(_ names: [UInt8]...) async throws(BrokerError) -> SessionRecord? {
        let indexes = try indexes(.session, .session, names)
        let found = try await store.read { try $0.session(indexes) }
        return found.flatMap { $0.expires > time.now ? $0 : nil }
    }

    /// A new row, for a session that is heard of for the first time.
    func newSession(_ names: [UInt8]...) throws(BrokerError) -> SessionRecord {
        let place = place(.session)
        return SessionRecord(
            session: try index(.session, place, names), generation: place.generation, expires: place.expiryMs, started: time.now,
            version: 0)
    }

    private func registrations(
        _ lookup: RegistrationLookup, _ indexes: [Digest]
    ) async throws(BrokerError) -> [RegistrationRecord] {
        let now = time.now
        let found = try await store.read { try $0.registrations(lookup, indexes) }
        return found.filter { $0.expires > now }
    }

    /// Returns those of an owner's registrations that are for this token.
    func registrations(
        _ registrations: [RegistrationRecord], for token: Secret, owner: [UInt8]
    ) throws(BrokerError) -> [RegistrationRecord] {
        var found: [RegistrationRecord] = []
        for registration in registrations {
            let device = try available { () throws(SealingError) in
                try keys.deviceIndex(registration.place, owner: ownerField(owner), kind: registration.kind, token: token)
            }
            if device == registration.device { found.append(registration) }
        }
        return found
    }

    func ownerField(_ owner: [UInt8]) -> [UInt8] { policy.kind.field(owner) }
}

extension Policy.Kind {
    /// The name of an owner or an audience in seals and indexes. Names of different kinds of apps never collide.
    func field(_ name: [UInt8]) -> [UInt8] { Array(rawValue.utf8) + [0] + name }
}

extension KeyRing {
    /// The index of a row of one kind of app. The kind comes first, so that no app reaches another's rows.
    func index(
        _ label: AudienceLabel, _ place: ExpirySlot, _ kind: Policy.Kind, _ fields: [[UInt8]]
    ) throws(SealingError) -> Digest {
        try index(label, place, [Array(kind.rawValue.utf8)] + fields)
    }
}

extension TokenKind {
    /// The life of a registration for such a token.
    var life: Audiences.Life { self == .liveActivity ? .activity : .device }
}

extension RegistrationSlot {
    var place: ExpirySlot { ExpirySlot(generation: generation, expiryMs: expires) }
}

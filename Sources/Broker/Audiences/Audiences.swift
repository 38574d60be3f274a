public import EventLoop
import Linux
public import Policy
import Sealing
import Storage
import Vocabulary

/// The features that all apps with accounts share: registrations, fan-out, throttling, timers, idempotency. One for each kind of app.
///
/// An audience is the receiver that an app addresses: a user, a printer, a uid. Its tokens are sealed under keys that only the broker can
/// derive.
public actor Audiences: LoopActor, BrokerPart {
    public nonisolated let loop: EventLoop
    nonisolated let shared: Dependencies
    private nonisolated let broker: Broker
    let outbox: Outbox
    public nonisolated let policy: Policy
    public nonisolated let limits: AudienceLimits
    let tokenPushes: KeyedBudget
    private let events: KeyedBudget
    private var windowsEnd: UInt64?
    /// Slots of registrations that were sealed under a policy with other lives.
    private var formerSlots: [(kind: TokenKind, slot: ExpirySlot)] = []
    /// When the next known work is due.
    var nextDue: UInt64 = 0
    /// The end of the sleep of `run`. 0 while it works.
    var sleepsUntil: UInt64 = 0
    let sleeper: WakeableSleep
    /// By owner, registrations that wait for the one before them.
    private var registering: [[UInt8]: [CheckedContinuation<Void, Never>]] = [:]

    public init(broker: Broker, policy: Policy, limits: AudienceLimits) {
        loop = broker.loop
        sleeper = WakeableSleep(broker.loop)
        shared = broker.shared
        self.broker = broker
        outbox = broker.outbox
        self.policy = policy
        self.limits = limits
        tokenPushes = KeyedBudget(limits.tokenPushes, nodes: { [shared] in shared.nodes })
        events = KeyedBudget(limits.eventsPerUser, nodes: { [shared] in shared.nodes })
    }

    /// The wall clock, unix ms. JWTs are dated by it.
    public nonisolated var wallMs: UInt64 { time.wallMs }

    /// Counts a refusal for the ledger's next window.
    public nonisolated func recordRefusal(_ error: BrokerError) { broker.recordRefusal(error) }

    /// Charges an event to this user. Every write for a user counts as an event, so that nobody can fill the disk or the queue.
    /// - Throws: `.tooManyRequests` if the user's budget is used up.
    @discardableResult
    func chargeEvent(of user: [UInt8]) throws -> KeyedBudget.Reservation {
        let now = time.now
        let reservation = try events.reserve(user, now: now)
        if let reservation {
            watchWindows()
            return reservation
        }
        throw BrokerError.tooManyRequests(retryAfterSeconds: Int(((events.end ?? now) - now + 999) / 1_000))
    }

    /// Waits until no other registration of this owner is under way. Otherwise registrations of one token would replace each other and retry.
    /// - Throws: `.tooManyRequests` if too many wait already.
    func beginRegistering(_ owner: [UInt8]) async throws {
        guard let waiting = registering[owner]?.count else {
            registering[owner] = []
            return
        }
        guard waiting < Self.maxRegistering else { throw BrokerError.tooManyRequests(retryAfterSeconds: 1) }
        await withCheckedContinuation { registering[owner]?.append($0) }
    }

    /// The limit bounds the arena, in which each waiting registration keeps its token.
    static let maxRegistering = 64

    func waitingRegistrations(of owner: [UInt8]) -> Int { registering[owner]?.count ?? 0 }

    func endRegistering(_ owner: [UInt8]) {
        if registering[owner]?.isEmpty == false {
            registering[owner]?.removeFirst().resume()
        } else {
            registering[owner] = nil
        }
    }

    /// Counts must not outlive their window, even if no request follows.
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

    // MARK: Slots of rows

    /// Rows of one kind live equally long, so that one look-up finds all of them.
    enum Life {
        case device, activity, session
        /// A row for a request's own id. It outlives the request by one step, so that it is found until the request ends.
        case request
    }

    /// Returns a life of 0 if this kind of app has no such rows.
    private nonisolated func span(_ life: Life) -> (life: UInt64, step: UInt64) {
        switch life {
        case .device: (limits.deviceLifeMs, 86_400_000)
        case .activity: (limits.activities?.lifeMs ?? 0, 3_600_000)
        case .session: (limits.sessionLifeMs, 43_200_000)
        case .request: (limits.approvals.map { $0.keptMs + Self.requestStep } ?? 0, Self.requestStep)
        }
    }

    private static let requestStep: UInt64 = 300_000

    /// The slot in which a row of this life is written now.
    func expirySlot(for life: Life) -> ExpirySlot {
        let (life, step) = span(life)
        return keys.expirySlot(lifeMs: life, stepMs: step, nowMs: time.now)
    }

    /// All slots in which a row of this life may be.
    func expirySlots(for life: Life) -> [ExpirySlot] {
        let now = time.now
        formerSlots.removeAll { $0.slot.expiryMs <= now }
        let former = formerSlots.filter { $0.kind.life == life }.map(\.slot)
        return usualSlots(life) + former
    }

    private func usualSlots(_ life: Life) -> [ExpirySlot] {
        let (life, step) = span(life)
        return life > 0 ? keys.expirySlots(lifeMs: life, stepMs: step, nowMs: time.now) : []
    }

    /// Reads the slots of registrations, once, before anything is looked up. So rows with the lives of an earlier policy are found, renewed and
    /// deleted like all others until they expire.
    public func learnSlots() async throws {
        let found = try await store.perform(.survey) { try $0.registrationSlots() }
        formerSlots = found.compactMap { found in
            let isFormer = !usualSlots(found.kind.life).contains(found.expirySlot)
            // Rows under lost keys are still there when a broker starts. Without a key no index can be computed.
            return isFormer && keys.reaches(found.expirySlot) ? (found.kind, found.expirySlot) : nil
        }
    }

    /// Returns the index of a row at this slot.
    func index(_ label: AudienceLabel, _ slot: ExpirySlot, _ fields: [UInt8]...) throws -> Digest {
        try index(label, slot, fields)
    }

    private func index(_ label: AudienceLabel, _ slot: ExpirySlot, _ fields: [[UInt8]]) throws -> Digest {
        try keys.index(label, slot, policy.kind, fields)
    }

    /// Returns the indexes of a row in all slots in which it may be.
    func indexes(_ label: AudienceLabel, _ life: Life, _ fields: [[UInt8]]) throws -> [Digest] {
        try expirySlots(for: life).map { slot in try keys.index(label, slot, policy.kind, fields) }
    }

    /// Returns a record that lets a change happen once. A change with the same fields is `.repeated` as long as a session's row lives.
    func repeatMark(_ fields: [UInt8]...) throws -> SeenRecord {
        let slot = expirySlot(for: .session)
        let key = try keys.index(.seen, slot, policy.kind, fields)
        let others = try expirySlots(for: .session).filter { $0 != slot }.map { slot in
            try keys.index(.seen, slot, policy.kind, fields)
        }
        return SeenRecord(key: key, expires: slot.expiryMs, others: others)
    }

    /// Derives the keys of all slots, once. Otherwise the first look-up over a month would block the loop for 0.1 s.
    public nonisolated func prepare() {
        for span in [span(.device), span(.activity), span(.session)] where span.life > 0 {
            keys.prepare(keys.expirySlots(lifeMs: span.life, stepMs: span.step, nowMs: time.now))
        }
    }

    // MARK: Looking up

    /// The devices of an audience.
    func devices(of audience: [UInt8]) async throws -> [RegistrationRecord] {
        try await registrations(.audience, indexes(.audience, .device, [audience]))
    }

    /// The registrations of one owner.
    func registrations(of owner: [UInt8]) async throws -> [RegistrationRecord] {
        try await registrations(.owner, ownerIndexes(owner))
    }

    func ownerIndexes(_ owner: [UInt8]) throws -> [Digest] {
        try indexes(.owner, .device, [owner]) + indexes(.owner, .activity, [owner])
    }

    /// The Live Activities of one owner's session.
    func activities(of owner: [UInt8], session: [UInt8]) async throws -> [RegistrationRecord] {
        try await registrations(.session, indexes(.session, .activity, [owner, session]))
    }

    /// Returns the row of a user's session or of a printer's run, or nil if there is none.
    func session(_ names: [UInt8]...) async throws -> SessionRecord? {
        let indexes = try indexes(.session, .session, names)
        let found = try await store.read { try $0.session(indexes) }
        return found.flatMap { $0.expires > time.now ? $0 : nil }
    }

    /// Returns a new row for an unknown session.
    func newSession(_ names: [UInt8]...) throws -> SessionRecord {
        let slot = expirySlot(for: .session)
        return SessionRecord(
            session: try index(.session, slot, names), generation: slot.generation, expires: slot.expiryMs, started: time.now,
            version: 0)
    }

    private func registrations(
        _ lookup: RegistrationLookup, _ indexes: [Digest]
    ) async throws -> [RegistrationRecord] {
        let now = time.now
        let found = try await store.read { try $0.registrations(lookup, indexes) }
        return found.filter { $0.expires > now }
    }

    /// Returns the registrations of this device among those of an owner.
    func registrations(
        _ registrations: [RegistrationRecord], for named: DeviceName, owner: [UInt8]
    ) throws -> [RegistrationRecord] {
        var found: [RegistrationRecord] = []
        for registration in registrations {
            let device = try keys.deviceIndex(
                registration.expirySlot, owner: ownerField(owner), kind: registration.kind, device: named)
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
        _ label: AudienceLabel, _ slot: ExpirySlot, _ kind: Policy.Kind, _ fields: [[UInt8]]
    ) throws -> Digest {
        try index(label, slot, [Array(kind.rawValue.utf8)] + fields)
    }
}

extension TokenKind {
    /// The life of a registration for such a token.
    var life: Audiences.Life { self == .liveActivity ? .activity : .device }
}

extension RegistrationSlot {
    var expirySlot: ExpirySlot { ExpirySlot(generation: generation, expiryMs: expires) }
}

/// Repeats an operation while it returns nil. Nil means that a row changed after it was read.
/// - Throws: `.storageUnavailable` if that happens each time.
func retrying<Value>(
    _ tries: Int = 5, _ operation: (_ attempt: Int) async throws -> Value?
) async throws -> Value {
    for attempt in 0..<tries {
        if let value = try await operation(attempt) { return value }
    }
    throw BrokerError.storageUnavailable
}

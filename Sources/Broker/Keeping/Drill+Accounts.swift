import Policy
import Sealing
public import Storage
import Vocabulary

// Apps with accounts: data that opens with the key file alone, and data that opens with the name of a user or a printer.
extension Drill {
    /// The data that opens with the key file alone.
    private struct Alone {
        var approvals: [(timer: TimerRecord, content: Companion.RequestContent)]
        /// The user and the expiry of each update that waits.
        var updates: [(user: [UInt8], expires: UInt64)] = []
        var activities = 0
        /// The expiry of each Live Activity whose names open.
        var names: [UInt64] = []
        var handleKeysOpen = false

        var users: Set<[UInt8]> { Set(approvals.map(\.content.user) + updates.map(\.user)) }
        /// A back end may have registered something too.
        var callers: Set<[UInt8]> { users.union(approvals.map(\.content.creator.name)) }
    }

    /// The part of `everything` for apps with accounts.
    func accounts(_ holdings: Holdings) throws(StoreError) -> (tokens: Finding, others: [Finding]) {
        let alone = try alone()
        let tokens = try openTokens(alone) { _ in true }
        let sessions = try sessions(
            alone.approvals.map { [$0.content.user, $0.content.session] }
                + tokens.compactMap { token in sessionName(of: token.record).map { [token.name, $0] } })
        let timers = try store.read { try $0.timers() }.count
        let isUsed = holdings.registrations + holdings.sessions + holdings.seen + timers > 0
        let (approvalsEnd, updatesEnd) = (alone.approvals.map(\.timer.expires).max(), alone.updates.map(\.expires).max())
        return (
            Finding(
                .audienceTokens, held: holdings.registrations, opens: tokens.count,
                holdings.registrations == 0
                    ? "none is registered"
                    : tokens.isEmpty ? "each needs its user's or printer's name" : "their name opens, or they need none",
                until: holdings.latestRegistration.map(Self.keysGone)),
            [
                Finding(
                    .users, held: isUsed ? nil : 0, opens: alone.users.count,
                    !isUsed
                        ? "rooms have no accounts"
                        : alone.users.isEmpty ? "keyed hashes: can be tried" : "in approvals, updates; others can be tried",
                    until: [approvalsEnd, updatesEnd].compactMap(\.self).max().map(Self.keysGone)),
                Finding(
                    .approvals, held: timers, opens: alone.approvals.count, "open by themselves",
                    until: approvalsEnd.map(Self.keysGone)),
                Finding(
                    .names, held: alone.activities, opens: alone.names.count,
                    !alone.handleKeysOpen
                        ? "open by themselves"
                        : alone.names.isEmpty ? "handle keys open by themselves" : "as do handle keys",
                    until: alone.names.max().map(Self.keysGone)),
                Finding(
                    .sessions, held: holdings.sessions, opens: sessions.count,
                    sessions.isEmpty ? "keyed hashes: can be tried" : "by names that open; others can be tried",
                    until: holdings.latestSession.map(Self.keysGone)),
                Finding(
                    .seen, held: holdings.seen, opens: 0, "keyed hashes: can be tried",
                    until: holdings.latestSeen.map(Self.keysGone)),
            ]
        )
    }

    /// Tries to find an audience's token that someone names. A match needs the owner's name, unless the token opens without it.
    func audienceToken(_ token: DeviceName, of holdings: Holdings) throws(StoreError) -> Finding {
        let matches = try openTokens(try alone()) { $0 == token }
        return Finding(
            .audienceTokens, held: holdings.registrations, opens: matches.count,
            holdings.registrations == 0
                ? "none is registered"
                : matches.isEmpty ? "only its owner recognises this one" : "one of those that open alone",
            until: matches.map(\.record.expires).max().map(Self.keysGone))
    }

    /// Tries to open a user's data with the user's name.
    public func user(_ user: [UInt8]) throws(StoreError) -> [Finding] {
        let slots = try registrationSlots()
        var owned: [Policy.Kind: [RegistrationRecord]] = [:]
        for kind in Policy.Kind.allCases where kind != .rooms {
            owned[kind] = try registrations(.owner, user, kind, slots)
        }
        let approvals = try alone().approvals.filter { $0.content.user == user }
        guard owned.values.contains(where: { !$0.isEmpty }) || !approvals.isEmpty else {
            return [Finding(.users, held: 0, opens: 0, "none; one that ended looks the same")]
        }
        let devices = owned[.companion, default: []].filter { !$0.isActivity }
        let activities = owned[.companion, default: []].filter(\.isActivity)
        let monitors = owned[.monitor, default: []]
        let names = approvals.map(\.content.session) + activities.compactMap(sessionName)
        let sessions = try sessions(names.map { [user, $0] })
        let (free, all) = (monitors.count { opens($0, .monitor, []) }, monitors.count)
        return [
            registered(.devices, devices, .companion, user, "by the user's name"),
            registered(.activities, activities, .companion, user, "with their names"),
            registered(.phones, owned[.calls, default: []], .calls, user, "by the user's name"),
            registered(
                .monitors, monitors, .monitor, [],
                free == 0 ? "each needs its printer's prefix" : free == all ? "without a printer" : "those without a printer"),
            Finding(
                .approvals, held: approvals.count, opens: approvals.count,
                "\(approvals.count { $0.timer.answer == 0 && $0.timer.due > now }) pending",
                until: approvals.map(\.timer.expires).max().map(Self.keysGone)),
            Finding(
                .sessions, held: nil, opens: sessions.count,
                sessions.isEmpty ? "keyed hashes: can be tried" : "by names that open; others can be tried",
                until: sessions.max().map(Self.keysGone)),
        ]
    }

    /// Tries to open a printer's data with its prefix.
    public func printer(_ prefix: [UInt8]) throws(StoreError) -> [Finding] {
        let devices = try registrations(.audience, prefix, .monitor, registrationSlots())
        let run = try session(.monitor, [prefix], sessionSlots())
        guard !devices.isEmpty || run != nil else {
            return [Finding(.monitors, held: 0, opens: 0, "none; one that ended looks the same")]
        }
        return [
            registered(.monitors, devices, .monitor, prefix, "by its prefix"),
            Finding(
                .run, held: run == nil ? 0 : 1, opens: run == nil ? 0 : 1, "its start and progress",
                until: run.map { Self.keysGone($0.expires) }),
        ]
    }

    // MARK: Trying

    private func alone() throws(StoreError) -> Alone {
        var alone = Alone(
            approvals: try store.read { try $0.timers() }.compactMap { timer in
                let content = attempt { try Companion.RequestContent(timer, keys) }
                return content?.map { (timer, $0) }
            })
        try store.read {
            try $0.eachRegistration { record in
                if record.isActivity { alone.activities += 1 }
                let waiting = attempt { try keys.waiting(of: record) }
                if let waiting = waiting ?? nil { alone.updates.append((waiting.audience, record.expires)) }
                guard details(of: record) != nil else { return }
                alone.handleKeysOpen = true
                if record.isActivity { alone.names.append(record.expires) }
            }
        }
        return alone
    }

    /// Returns the matching tokens that open with the key file alone: they need no name, or their name opens, too.
    private func openTokens(
        _ alone: Alone, fit: (DeviceName) -> Bool
    ) throws(StoreError) -> [(name: [UInt8], record: RegistrationRecord)] {
        let slots = try registrationSlots()
        let names = Policy.Kind.allCases.flatMap { kind -> [(Policy.Kind, [UInt8])] in
            switch kind {
            case .rooms: []
            // A device without a printer needs no name.
            case .monitor: [(kind, [])]
            // A user has one name in all apps.
            case .companion, .calls: alone.callers.map { (kind, $0) }
            }
        }
        var found: [(name: [UInt8], record: RegistrationRecord)] = []
        for (kind, name) in names {
            for record in try registrations(.audience, name, kind, slots) {
                if let token = token(record, kind, name), fit(token) { found.append((name, record)) }
            }
        }
        return found
    }

    /// Returns the expiries of these sessions' rows, as far as they exist.
    private func sessions(_ names: [[[UInt8]]]) throws(StoreError) -> [UInt64] {
        let slots = try sessionSlots()
        var found: [UInt64] = []
        for names in Set(names) { if let session = try session(.companion, names, slots) { found.append(session.expires) } }
        return found
    }

    private func session(_ kind: Policy.Kind, _ names: [[UInt8]], _ slots: [ExpirySlot]) throws(StoreError) -> SessionRecord? {
        let indexes = slots.compactMap { slot in attempt { try keys.index(.session, slot, kind, names) } }
        return try store.read { try $0.session(indexes) }
    }

    private func registrations(
        _ lookup: RegistrationLookup, _ name: [UInt8], _ kind: Policy.Kind, _ slots: [ExpirySlot]
    ) throws(StoreError) -> [RegistrationRecord] {
        let label: AudienceLabel = lookup == .owner ? .owner : .audience
        let indexes = slots.compactMap { slot in attempt { try keys.index(label, slot, kind, [name]) } }
        return try store.read { try $0.registrations(lookup, indexes) }
    }

    private func registered(
        _ subject: Finding.Subject, _ records: [RegistrationRecord], _ kind: Policy.Kind, _ audience: [UInt8], _ because: String
    ) -> Finding {
        Finding(
            subject, held: records.count, opens: records.count { opens($0, kind, audience) },
            records.isEmpty ? "none is registered" : because, until: records.map(\.expires).max().map(Self.keysGone))
    }

    private func opens(_ record: RegistrationRecord, _ kind: Policy.Kind, _ audience: [UInt8]) -> Bool {
        token(record, kind, audience) != nil && details(of: record) != nil
    }

    private func details(of record: RegistrationRecord) -> RegistrationDetails? {
        (attempt { try keys.details(of: record) }) ?? nil
    }

    private func sessionName(of record: RegistrationRecord) -> [UInt8]? {
        record.isActivity ? details(of: record)?.session : nil
    }

    private func token(_ record: RegistrationRecord, _ kind: Policy.Kind, _ audience: [UInt8]) -> DeviceName? {
        attempt { try keys.openToken(record.sealed.span, context: record.context, audience: kind.field(audience).span) }?.address
            .device
    }

    private func registrationSlots() throws(StoreError) -> [ExpirySlot] {
        let slots = try store.read { try $0.registrationSlots() }
        return Array(Set(slots.map { ExpirySlot(generation: $0.generation, expiryMs: $0.expires) }))
    }

    private func sessionSlots() throws(StoreError) -> [ExpirySlot] {
        try store.read { try $0.sessionSlots() }.map { ExpirySlot(generation: $0.generation, expiryMs: $0.expires) }
    }
}

extension RegistrationRecord {
    fileprivate var isActivity: Bool { kind == .liveActivity }
}

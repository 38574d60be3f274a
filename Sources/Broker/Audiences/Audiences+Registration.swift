import Ledger
import Policy
public import Sealing
import Shares
import Storage
public import Vocabulary

/// A token that an app with accounts registers. The edge has checked that all values are in range.
public struct Registration: Sendable {
    /// Pushes are addressed to this name. Names are unique within one kind of app.
    public var audience: [UInt8]
    /// Only the owner may change the registration.
    public var owner: [UInt8]
    public var address: PushAddress
    public var kind: TokenKind
    /// The app's own names of a Live Activity and its session, at most 128 bytes each.
    public var activity: (id: [UInt8], session: [UInt8])?
    /// A token of the same owner that this one replaces.
    public var previous: DeviceName?
}

/// The result of a registration.
public struct Registered: Sendable {
    /// A renewal keeps the id.
    public var id: RegistrationID
    /// The token's name in the log.
    public var ref: Ref
    /// Unix ms.
    public var expires: UInt64
    /// Derives the handles in this device's pushes. 32 bytes.
    public var handleKey: HandleKey
    /// True if its owner had not registered the token before.
    public var isNew: Bool
}

/// The sealed part of a registration beside its token.
struct RegistrationDetails: Sendable {
    var handleKey: HandleKey
    var activity: [UInt8] = []
    var session: [UInt8] = []
}

extension Audiences {
    /// Seals a token for its audience, or renews it. The same token of the same owner keeps its id and its handle key. Registrations of other
    /// owners are not changed, even for the same token.
    /// - Throws: `.tooManyRegistrations` and `.tooManyRequests`; `.storageUnavailable`.
    func register(_ asked: Registration, charging payer: RequestCharges?) async throws -> Registered {
        try await beginRegistering(asked.owner)
        defer { endRegistering(asked.owner) }
        // A failed try means that an update of a Live Activity or a change of preferences came between.
        return try await retrying(8) { _ in
            let slot = expirySlot(for: asked.kind.life)
            let current = try await registrations(of: asked.owner).filter { $0.kind == asked.kind }
            let same = try registrations(current, for: asked.address.device, owner: asked.owner)
            var replaced = same
            if let previous = asked.previous {
                replaced += try registrations(current, for: previous, owner: asked.owner).filter { !same.contains($0) }
            }
            // The same token comes before the previous one, so that its id is kept.
            let kept = try replaced.first.flatMap { record in
                try keys.details(of: record).map { (record, $0) }
            }
            if replaced.count == 1, let (record, details) = kept, same.count == 1, record.expirySlot == slot,
                record.audience == (try index(.audience, slot, asked.audience)),
                details.activity == asked.activity?.id ?? [], details.session == asked.activity?.session ?? [],
                try self.address(of: record, audience: asked.audience) == asked.address,
                let ref = try ref(of: record, audience: asked.audience)
            {
                // Nothing has changed, and a new seal would not live longer.
                return Registered(id: record.id, ref: ref, expires: record.expires, handleKey: details.handleKey, isNew: false)
            }
            var record = try seal(asked, at: slot, after: kept)
            // State of another activity is not carried over to this token.
            var sameActivity: [RegistrationRecord] = []
            for record in replaced {
                guard let activity = asked.activity, let details = try keys.details(of: record) else { continue }
                if details.activity == activity.id, details.session == activity.session { sameActivity.append(record) }
            }
            try await carry(sameActivity, of: asked.audience, over: &record.row)
            let limit = asked.kind == .liveActivity ? limits.activities?.perOwner ?? 0 : limits.registrationsPerOwner
            let admission = Admission(charges.shares)
            defer { admission.end() }
            admission.add(try chargeEvent(of: asked.owner))
            admission.add(try charges.admitEntries(charging: payer))
            let (new, old) = (NewRegistration(record.row, sealedID: record.sealedID), replaced)
            let (owners, devices) = (try ownerIndexes(asked.owner), try deviceIndexes(asked))
            let outcome = try await store.write {
                try $0.register(new, replacing: old, devices: devices, owners: owners, limit: limit)
            }
            switch outcome {
            case .registered:
                admission.commit()
                // The same token lives on under another seal, so its queued pushes are still sent, unless their state was carried over.
                let renewed = same.filter { !sameActivity.contains($0) }
                await outbox.renew(renewed.map(\.purgeID))
                await forget(replaced.filter { !renewed.contains($0) })
                await sweeper.scheduleScrub()
                await sweeper.expect(record.row.expires)
                metrics.add(.tokensRegistered)
                if record.row.waiting != nil { expectDue(record.row.opens) }
                return Registered(
                    id: record.row.id, ref: record.ref, expires: record.row.expires, handleKey: record.handleKey,
                    isNew: same.isEmpty)
            case .tooMany: throw BrokerError.tooManyRegistrations(limit: limit)
            case .changed: return nil
            }
        }
    }

    /// Opens the ref of a token but not the token. Returns nil if the row was edited.
    private func ref(of record: RegistrationRecord, audience: [UInt8]) throws -> Ref? {
        try ifItOpens {
            try keys.openRef(record.ref.span, context: record.context, audience: ownerField(audience).span)
        }
    }

    /// Returns nil if the row was edited.
    private func address(of record: RegistrationRecord, audience: [UInt8]) throws -> PushAddress? {
        try ifItOpens {
            try keys.openToken(record.sealed.span, context: record.context, audience: ownerField(audience).span).address
        }
    }

    /// Returns the token's indexes in every slot in which its owner may have it.
    private func deviceIndexes(_ asked: Registration) throws -> [Digest] {
        let owner = ownerField(asked.owner)
        return try expirySlots(for: asked.kind.life).map { slot in
            try keys.deviceIndex(slot, owner: owner, kind: asked.kind, device: asked.address.device)
        }
    }

    private func seal(
        _ asked: Registration, at slot: ExpirySlot,
        after kept: (record: RegistrationRecord, details: RegistrationDetails)?
    ) throws -> (row: RegistrationRecord, sealedID: EntryID, ref: Ref, handleKey: HandleKey) {
        let ref = Ref.random()
        let until = policies.ledger.untilMs(expiryMs: slot.expiryMs)
        let context = TokenContext(
            generation: slot.generation, kind: asked.kind, slot: 0, expiryMs: slot.expiryMs,
            purgeID: ref.purgeID(untilMs: until))
        let details = RegistrationDetails(
            handleKey: try kept?.details.handleKey ?? HandleKey.random(),
            activity: asked.activity?.id ?? [], session: asked.activity?.session ?? [])
        let audience = ownerField(asked.audience)
        let (sealed, sealedRef) = (
            try keys.sealToken(
                asked.address, ref: ref, sealedAtMs: time.now, context: context, audience: audience.span,
                size: settings.addressSize),
            try keys.sealRef(ref, context: context, audience: audience.span)
        )
        var row = RegistrationRecord(
            context, ref: sealedRef, id: kept?.record.id ?? RegistrationID.random(),
            audience: try index(.audience, slot, asked.audience), owner: try index(.owner, slot, asked.owner),
            device: try keys.deviceIndex(slot, owner: ownerField(asked.owner), kind: asked.kind, device: asked.address.device),
            sealed: sealed, isLong: TokenContext.isLong(from: time.now, to: slot.expiryMs),
            preferences: kept?.record.preferences ?? .max,
            details: try keys.sealDetails(details, context))
        if let session = asked.activity?.session {
            row.session = try index(.session, slot, asked.owner, session)
        }
        return (row, ref.sealedID(untilMs: until), ref, details.handleKey)
    }

    /// Copies an activity's window to its new row, and its newest state that waits or was sent without an outcome. The state must arrive, even if
    /// it arrives twice.
    private func carry(
        _ replaced: [RegistrationRecord], of owner: [UInt8], over row: inout RegistrationRecord
    ) async throws {
        row.opens = replaced.map(\.opens).max() ?? 0
        row.stamp = replaced.map(\.stamp).max() ?? 0
        var newest: UInt64 = 0
        for record in replaced {
            var next = try keys.waiting(of: record)
            if next == nil { next = try await underWay(to: record).map { (owner, $0) } }
            guard let (audience, content) = next, content.stampMs >= newest else { continue }
            newest = content.stampMs
            row.waiting = try sealWaiting(content, of: audience, for: row)
        }
    }

    private func underWay(to activity: RegistrationRecord) async throws -> PushContent? {
        guard let details = try keys.details(of: activity) else { return nil }
        return try await outbox.newestContent(
            of: WantedPushes.Target(token: activity.purgeID, collapse: collapse(.session(details.session), details)))
    }

    /// - Returns: how many tokens were destroyed.
    func unregister(_ registrations: [RegistrationRecord]) async throws -> Int {
        if registrations.isEmpty { return 0 }
        let rows = registrations.map(\.row)
        let purged = try await store.write { try $0.unregister(rows, cause: .ended) }
        await forget(registrations)
        metrics.add(.tokensPurged, purged)
        return purged
    }

    /// Withdraws the queued pushes to these tokens, which were destroyed, and has their rows removed from the write-ahead log.
    func forget(_ registrations: [RegistrationRecord]) async {
        if registrations.isEmpty { return }
        await outbox.revoke(registrations.map(\.purgeID))
        await sweeper.scheduleScrub()
    }
}

extension KeyRing {
    /// Returns nil if the row does not open: it was edited, or its key is gone.
    func details(of record: RegistrationRecord) throws -> RegistrationDetails? {
        try ifItOpens {
            try openDetails(record.details.span, record.expirySlot, record.purgeID, isDevice: record.session == nil)
        }
    }

    /// Seals handle key, activity and session, in 64 bytes for a device and in 320 for an activity.
    fileprivate func sealDetails(_ details: RegistrationDetails, _ token: TokenContext) throws -> [UInt8] {
        var names: [UInt8] = []
        names.append(name: details.activity)
        names.append(name: details.session)
        return try sealNote(
            details.handleKey.secret, names, .details, ExpirySlot(generation: token.generation, expiryMs: token.expiryMs),
            [token.purgeID.bytes], block: Self.detailsBlock(details.session.isEmpty))
    }

    private static func detailsBlock(_ isDevice: Bool) -> Int { isDevice ? 64 : 320 }

    private func openDetails(
        _ sealed: Span<UInt8>, _ slot: ExpirySlot, _ purgeID: EntryID, isDevice: Bool
    ) throws -> RegistrationDetails {
        let (key, names) = try openSecretNote(sealed, .details, slot, [purgeID.bytes], block: Self.detailsBlock(isDevice))
        var rest = names[...]
        guard let activity = rest.popName(), let session = rest.popName() else { throw SealingError.doesNotOpen }
        return RegistrationDetails(handleKey: HandleKey(key), activity: activity, session: session)
    }
}

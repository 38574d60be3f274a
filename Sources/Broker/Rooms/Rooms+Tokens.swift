import Ledger
import Policy
public import Sealing
import Shares
import Storage
public import Vocabulary

// The tokens of a room's sides.
extension Rooms {
    /// Replaces the token of the caller's side. The same token again changes nothing and gets the same answer.
    public func replaceToken(
        _ caller: Caller, token: Secret, environment: PushEnvironment?, topic: String? = nil
    ) async throws(BrokerError) -> (ref: Ref, expires: UInt64) {
        let (record, slot) = try await authorize(caller)
        guard
            let sealed = try seal(
                token, room: caller.room, index: record.room, slot: slot, expires: record.expires, environment: environment,
                topic: topic, now: time.now)
        else { throw try await refusal(of: caller) }
        if let current = try await currentToken(of: record, slot, in: caller.room),
            current.opened.token == token, current.record.topic == sealed.row.topic,
            current.record.environment == sealed.row.environment
        {
            return (current.opened.ref, record.expires)
        }
        // A side that shows its member secret has a quota of its own, so that nobody who guesses its client id can exhaust that.
        let side = charges.shares.side(record.room, slot: caller.member != nil ? slot | 0x80 : slot)
        let replacement = try charges.chargeReplacement(by: side)
        var isReplaced = false
        defer { if !isReplaced { charges.shares.refund(replacement) } }
        isReplaced = try await store.write {
            try $0.replaceToken(room: record.room, slot: slot, proven: caller.member != nil, token: sealed.new)
        }
        guard isReplaced else { throw try await refusal(of: caller) }
        if let token = record[slot]?.token { await outbox.revoke([token]) }
        await sweeper.noteErasure()
        return (sealed.ref, record.expires)
    }

    /// - Returns: how many tokens were purged: 0 or 1.
    public func withdrawToken(_ caller: Caller) async throws(BrokerError) -> Int {
        let (record, slot) = try await authorize(caller)
        if record[slot]?.token == nil { return 0 }
        let purged = try await store.write {
            try $0.withdrawToken(room: record.room, slot: slot, proven: caller.member != nil)
        }
        guard let purged else { throw try await refusal(of: caller) }
        if let token = record[slot]?.token { await outbox.revoke([token]) }
        metrics.add(.tokensPurged, purged)
        if purged > 0 { await sweeper.noteErasure() }
        return purged
    }

    // MARK: Rows

    /// Returns nil if the side has none, or none that opens.
    private func currentToken(
        of room: RoomRecord, _ slot: UInt8, in id: RoomID
    ) async throws(BrokerError) -> (record: TokenRecord, opened: OpenedToken)? {
        guard let (found, context) = try await tokenRow(of: room, slot) else { return nil }
        let opened = try ifItOpens { () throws(SealingError) in
            try keys.openToken(found.sealed.span, context: context, room: id)
        }
        return opened.map { (found, $0) }
    }

    /// The ref of a side's token, which stays sealed. Returns nil if the side has none, or none that opens.
    func ref(of room: RoomRecord, _ slot: UInt8, in id: RoomID) async throws(BrokerError) -> Ref? {
        guard let (found, context) = try await tokenRow(of: room, slot) else { return nil }
        return try ifItOpens { () throws(SealingError) in try keys.openRef(found.ref.span, context: context, room: id) }
    }

    private func tokenRow(
        of room: RoomRecord, _ slot: UInt8
    ) async throws(BrokerError) -> (record: TokenRecord, context: TokenContext)? {
        guard let name = room[slot]?.token else { return nil }
        let expires = room.expires
        let found = try await store.read { try $0.token(name, expires: expires) }
        return found.map { ($0, $0.context) }
    }

    func destination(
        _ topic: String?, _ environment: PushEnvironment?
    ) throws(BrokerError) -> (topic: String, environment: PushEnvironment) {
        guard let destination = settings.destination(.alert, topic: topic, environment: environment) else {
            throw .appNotServed
        }
        return destination
    }

    func seal(
        _ token: Secret?, room: RoomID, index: Digest, slot: UInt8, expires: UInt64, environment: PushEnvironment?,
        topic: String?,
        now: UInt64
    ) throws(BrokerError) -> SealedRoomToken? {
        guard let token else { return nil }
        let (topic, environment) = try destination(topic, environment)
        let ref = Ref.random()
        let until = policies.ledger.untilMs(expiryMs: expires)
        let context = TokenContext(
            generation: keys.currentGeneration, kind: .alert, environment: environment, slot: slot, expiryMs: expires,
            purgeID: ref.purgeID(untilMs: until), topic: topic)
        let (sealed, sealedRef) = try available { () throws(SealingError) in
            (
                try keys.sealToken(token, ref: ref, sealedAtMs: now, context: context, room: room),
                try keys.sealRef(ref, context: context, room: room)
            )
        }
        let row = TokenRecord(
            purgeID: context.purgeID, ref: sealedRef, room: index, slot: slot, kind: context.kind,
            environment: environment, generation: context.generation, expires: expires, topic: topic,
            sealed: sealed, isLong: TokenContext.isLong(from: now, to: expires))
        return SealedRoomToken(new: NewToken(row, sealedID: ref.sealedID(untilMs: until)), row: row, ref: ref)
    }

    /// A side's token: what the store is given, and the ref for its owner.
    struct SealedRoomToken {
        let new: NewToken
        let row: TokenRecord
        let ref: Ref
    }
}

public import EventLoop
import Ledger
import Linux
import Policy
public import Sealing
import Shares
import Storage
public import Vocabulary

/// The rules of rooms: the rights of callers, the keys of seals, and the knocks at peers.
///
/// When a call returns, its changes are durable.
public actor Rooms: LoopActor, BrokerPart {
    public nonisolated let loop: EventLoop
    nonisolated let shared: Dependencies
    let presence: Presence
    let outbox: Outbox

    private var wrongCodes: AttemptBudget
    /// Pushes to one token, in all rooms together.
    let tokenKnocks: KeyedBudget
    /// When the next window of these budgets ends, and the timer for it.
    private var windowsEnd: (at: UInt64, timer: TimerID)?
    var knockDelays: KnockDelays
    /// The charges of pending rooms with short codes, by the room's index, until accept, end or expiry.
    private var shortCodes: [Digest: (charge: Charge, expiry: TimerID)] = [:]

    init(_ shared: Dependencies, presence: Presence, outbox: Outbox) {
        loop = shared.loop
        self.shared = shared
        self.presence = presence
        self.outbox = outbox
        let limits = shared.policies.rooms
        wrongCodes = AttemptBudget(limits.wrongCodes, ipv4Bits: limits.ipv4Bits, ipv6Bits: limits.ipv6Bits)
        tokenKnocks = KeyedBudget(limits.tokenKnocks, nodes: { shared.nodes })
        knockDelays = KnockDelays(startedAt: shared.time.now, startGraceMs: limits.startGraceMs)
    }

    /// - Throws: `.roomNotFound`.
    public func status(_ room: RoomID) async throws -> RoomStatus {
        guard let record = try await live(index(of: room)) else { throw BrokerError.roomNotFound }
        return RoomStatus(
            expires: record.expires, accepted: record.joiner != nil,
            creatorPresent: await presence.isPresent(RoomSide(room: record.room, slot: 1)),
            joinerPresent: await presence.isPresent(RoomSide(room: record.room, slot: 2)),
            creatorHasToken: record.creator.token != nil, joinerHasToken: record.joiner?.token != nil)
    }

    /// Ends a room for both sides.
    /// - Returns: how many tokens were destroyed.
    public func close(_ room: RoomID) async throws -> Int {
        let index = try index(of: room)
        // An expired room that the sweeper has not reached yet is gone to callers.
        guard let record = try await live(index),
            let purged = try await store.write({ try $0.close(room: index) })
        else { throw BrokerError.roomNotFound }
        refundShortCode(of: index)
        await outbox.revoke([record.creator, record.joiner].compactMap { $0?.token })
        metrics.add(.roomsClosed)
        metrics.add(.tokensPurged, purged)
        await sweeper.scheduleScrub()
        await presence.endEverywhere(index)
        return purged
    }

    // MARK: Callers

    /// Finds the caller's side, and charges it for the operation. A member secret that is used for the first time is recorded.
    /// - Throws: `.roomNotFound`; `.notAMember`; `.memberRequired` if the side has used its secret before and none was sent.
    func authorize(_ caller: Caller, charging payer: RequestCharges?) async throws -> (room: RoomRecord, slot: UInt8) {
        guard let room = try await live(index(of: caller.room)) else { throw BrokerError.roomNotFound }
        for slot: UInt8 in [1, 2] {
            guard let side = room[slot] else { continue }
            let client = try clientIndex(
                of: caller.client, in: caller.room, slot: slot, expires: room.expires, generation: side.generation)
            guard client == side.client else { continue }
            guard let member = caller.member else {
                if side.proven { throw BrokerError.memberRequired }
                try payer?.charge(side: charges.shares.side(room.room, slot: slot))
                return (room, slot)
            }
            guard keys.memberHash(member) == side.member else { throw BrokerError.notAMember }
            try payer?.charge(side: charges.shares.side(room.room, slot: slot))
            if !side.proven {
                let known = try await store.write { try $0.markProven(room: room.room, slot: slot) }
                guard known else { throw BrokerError.roomNotFound }
                // This has deleted the sealed copy of the creator's secret.
                if slot == 1 { await sweeper.scheduleScrub() }
            }
            return (room, slot)
        }
        throw BrokerError.notAMember
    }

    /// Explains a change that found no row. Either the room has ended, or the side has used its secret since `authorize`.
    func refusal(of caller: Caller) async throws -> BrokerError {
        _ = try await authorize(caller, charging: nil)
        return .roomNotFound
    }

    /// Returns the index of a caller's room.
    /// - Throws: `.roomNotFound` if no room can have this id now.
    private func index(of room: RoomID) throws -> Digest {
        let (now, end) = (time.now, room.endMs)
        guard now < end, end <= now + KeyRing.largestLifeSeconds * 1_000 else { throw BrokerError.roomNotFound }
        return keys.roomIndex(room)
    }

    /// Returns the room's row, or nil if the room has ended.
    func live(_ index: Digest) async throws -> RoomRecord? {
        let record = try await store.read { try $0.room(index) }
        return record.flatMap { $0.ends > time.now ? $0 : nil }
    }

    /// Returns nil if the room has ended.
    func msUntilEnd(of room: Digest) async throws -> UInt64? {
        try await live(room).map { $0.ends - min(time.now, $0.ends) }
    }

    func clientIndex(
        of client: [UInt8], in room: RoomID, slot: UInt8, expires: UInt64, generation: UInt32
    ) throws -> Digest {
        try keys.clientIndex(room, slot: slot, client: client.span, expiryMs: expires, generation: generation)
    }

    // MARK: Budgets

    /// Long codes can't be guessed, so the budget of all callers together applies to short codes only. Otherwise one caller could use it up
    /// and shut out others.
    func admitGuess(_ joinid: [UInt8], _ address: SocketAddress) throws {
        let isShort = policies.rooms.isShort(codeOf: joinid.count)
        if let wait = wrongCodes.refusal(address, overall: isShort, nodes: shared.nodes, now: time.now) {
            throw BrokerError.tooManyRequests(retryAfterSeconds: wait)
        }
    }

    func spendGuess(_ joinid: [UInt8], _ address: SocketAddress) {
        wrongCodes.spend(address, overall: policies.rooms.isShort(codeOf: joinid.count), now: time.now)
        watchWindows()
    }

    /// Charges a creation, and its short code until the room is no longer pending.
    ///
    /// Everything is charged before the store is read. Otherwise requests at the same moment would all find room in the budget.
    /// - Parameter room: the room's index.
    /// - Returns: the creation's charges. For a short code also the charge of a guess, since the answer shows whether the code is free. `shortLimit`: with
    ///   so many short codes in the store, this caller may not add one. The store also counts those of earlier runs and other nodes.
    func chargeCreation(
        _ joinid: [UInt8], of room: Digest, codeLifeMs: UInt64, from address: SocketAddress, charging payer: RequestCharges?
    ) throws -> (entries: Admission, guess: Admission?, shortLimit: Int) {
        let entries = try charges.admitCreation(from: address, charging: payer)
        guard policies.rooms.isShort(codeOf: joinid.count) else { return (entries, nil, .max) }
        let guess = try charges.admitShortCreation(from: address, charging: payer)
        let pending = try charges.chargeShortCode(from: address, charging: payer)
        let timer = loop.after(codeLifeMs) { self.assumeIsolated { $0.refundShortCode(of: room) } }
        shortCodes[room] = (pending, timer)
        return (entries, guess, policies.rooms.pendingShortCodes - charges.shares.mustStayFree(pending))
    }

    /// The room is no longer pending. Does nothing for a room without a charged code, e.g. one of another node or of an earlier run.
    func refundShortCode(of room: Digest) {
        guard let (charge, timer) = shortCodes.removeValue(forKey: room) else { return }
        loop.cancel(timer)
        charges.shares.refund(charge)
    }

    /// Counts must not outlive their window, even if no request follows.
    func watchWindows() {
        let end = min(wrongCodes.end ?? .max, tokenKnocks.end ?? .max)
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
        wrongCodes.forget(now)
        tokenKnocks.forget(now)
        watchWindows()
    }
}

// The tokens of a room's sides.
extension Rooms {
    /// Replaces the token of the caller's side. The same token again changes nothing and returns the same ref.
    public func replaceToken(
        _ caller: Caller, with address: PushAddress, charging payer: RequestCharges?
    ) async throws -> (ref: Ref, expires: UInt64) {
        // Of several calls at once, each compares its token with the one that the call before has stored.
        while true {
            if let answer = try await replaceOnce(caller, address, payer) { return answer }
        }
    }

    /// Returns nil if the side's token changed meanwhile.
    private func replaceOnce(
        _ caller: Caller, _ address: PushAddress, _ payer: RequestCharges?
    ) async throws -> (ref: Ref, expires: UInt64)? {
        let (record, slot) = try await authorize(caller, charging: payer)
        if let current = try await currentToken(of: record, slot, in: caller.room), current.address == address {
            return (current.ref, record.expires)
        }
        let sealed = try seal(
            address, room: caller.room, index: record.room, slot: slot, expires: record.expires, now: time.now)
        // A side that sends its member secret has a quota of its own, which a caller who guesses its client id can't exhaust.
        let side = charges.shares.side(record.room, slot: caller.member != nil ? slot | 0x80 : slot)
        let admission = try charges.admitReplacement(by: side, charging: payer)
        defer { admission.end() }
        let previous = record[slot]?.token
        let outcome = try await store.write {
            try $0.replaceToken(
                room: record.room, slot: slot, proven: caller.member != nil, previous: previous, token: sealed.new)
        }
        switch outcome {
        case .replaced: admission.commit()
        case .changed: return nil
        case .refused: throw try await refusal(of: caller)
        }
        if let previous { await outbox.revoke([previous]) }
        await sweeper.scheduleScrub()
        return (sealed.ref, record.expires)
    }

    /// - Returns: how many tokens were purged: 0 or 1.
    public func withdrawToken(_ caller: Caller, charging payer: RequestCharges?) async throws -> Int {
        let (record, slot) = try await authorize(caller, charging: payer)
        if record[slot]?.token == nil { return 0 }
        let purged = try await store.write {
            try $0.withdrawToken(room: record.room, slot: slot, proven: caller.member != nil)
        }
        guard let purged else { throw try await refusal(of: caller) }
        if let token = record[slot]?.token { await outbox.revoke([token]) }
        metrics.add(.tokensPurged, purged)
        if purged > 0 { await sweeper.scheduleScrub() }
        return purged
    }

    // MARK: Rows

    /// Returns nil if the side has no token, or if the token does not open.
    private func currentToken(
        of room: RoomRecord, _ slot: UInt8, in id: RoomID
    ) async throws -> OpenedToken? {
        guard let found = try await tokenRow(of: room, slot) else { return nil }
        return try ifItOpens {
            try keys.openToken(found.sealed.span, context: found.context, room: id)
        }
    }

    /// Opens the ref of a side's token, but not the token. Returns nil if the side has no token, or if the ref does not open.
    func ref(of room: RoomRecord, _ slot: UInt8, in id: RoomID) async throws -> Ref? {
        guard let found = try await tokenRow(of: room, slot) else { return nil }
        return try ifItOpens { try keys.openRef(found.ref.span, context: found.context, room: id) }
    }

    func tokenRow(of room: RoomRecord, _ slot: UInt8) async throws -> TokenRecord? {
        guard let name = room[slot]?.token else { return nil }
        let expires = room.expires
        return try await store.read { try $0.token(name, expires: expires) }
    }

    func seal(
        _ address: PushAddress, room: RoomID, index: Digest, slot: UInt8, expires: UInt64, now: UInt64
    ) throws -> (new: NewToken, ref: Ref) {
        let ref = Ref.random()
        let until = policies.ledger.untilMs(expiryMs: expires)
        let context = TokenContext(
            generation: keys.currentGeneration, kind: .alert, slot: slot, expiryMs: expires,
            purgeID: ref.purgeID(untilMs: until))
        let (sealed, sealedRef) = (
            try keys.sealToken(
                address, ref: ref, sealedAtMs: now, context: context, room: room, size: settings.addressSize),
            try keys.sealRef(ref, context: context, room: room)
        )
        let row = TokenRecord(
            context, ref: sealedRef, room: index, sealed: sealed, isLong: TokenContext.isLong(from: now, to: expires))
        return (NewToken(row, sealedID: ref.sealedID(untilMs: until)), ref)
    }
}

import EventLoop
import Ledger
public import Linux
import Policy
public import Sealing
import Shares
import Storage
public import Vocabulary

extension Broker {
    /// Makes a room, or answers again for the pending room that this client made with this code.
    public func create(_ request: CreateRoom, from address: SocketAddress) async throws(BrokerError) -> Membership {
        try admitGuess(request.joinid, address)
        let now = time.now
        let room = try secret { () throws(SealingError) in try RoomID.random() }
        let member = try secret { () throws(SealingError) in try MemberSecret.random() }
        let expires = now + UInt64(request.lifeSeconds) * 1_000
        let codeExpires = now + UInt64(request.codeLifeSeconds) * 1_000
        let generation = keys.currentGeneration
        let index = keys.roomIndex(room)
        let codes = try codeIndexes(request.joinid, now: now)
        let token = try seal(
            request.token, room: room, index: index, slot: 1, expires: expires, environment: request.environment,
            topic: request.topic, now: now)

        let creator = SideRecord(
            generation: generation,
            client: try clientIndex(of: request.client, in: room, slot: 1, expires: expires, generation: generation),
            member: keys.memberHash(member), token: token?.row.purgeID)
        let creatorUntil = min(now + policies.rooms.retryWindowMs, codeExpires)
        let code = try secret { () throws(SealingError) in
            PendingCode(
                code: codes[0], expires: codeExpires, room: index, roomExpires: expires, generation: generation,
                pending: try keys.sealPending(
                    room, joinID: request.joinid.span, expiryMs: codeExpires, generation: generation, codeIndex: codes[0]),
                creator: try keys.sealCreator(
                    member, joinID: request.joinid.span, client1: request.client.span, untilMs: creatorUntil,
                    generation: generation, codeIndex: codes[0]),
                creatorUntil: creatorUntil, short: policies.rooms.isShort(codeOf: request.joinid.count))
        }
        let record = RoomRecord(room: index, expires: expires, creator: creator)

        let charges: [Charge]
        do {
            charges = try takeCreation(request.joinid, address)
        } catch {
            // A repeat costs nothing of the budget, so that a lost answer can always be asked for again. Nobody else is told that the
            // code is taken: that would be a guess for nothing.
            let taken = try await stored { () throws(StoreError) in try await self.store.code(codes, now: now) }
            guard let taken, let again = try await ownRoom(request, with: taken) else { throw error }
            return again
        }
        let outcome: CreateOutcome
        do {
            outcome = try await stored { () throws(StoreError) in
                try await self.store.create(
                    record, code: code, otherIndexes: Array(codes.dropFirst()), token: token?.new,
                    shortLimit: self.policies.rooms.pendingShortCodes, now: now)
            }
        } catch {
            giveBackCreation(request.joinid)
            shares.refund(charges)
            throw error
        }
        if outcome != .created { shares.refund(charges) }
        switch outcome {
        case .created:
            noteYoung(index)
            await sweeper.expect(creatorUntil)
            metrics.add(.roomsCreated)
            return Membership(
                room: room, member: member, expires: expires, joinExpires: codeExpires, ref: token?.ref, isNew: true)
        case .taken(let taken):
            guard let again = try await ownRoom(request, with: taken) else {
                spendGuess(request.joinid, address)
                throw .joinCodeInUse
            }
            giveBackCreation(request.joinid)
            return again
        case .tooManyShort:
            throw .tooManyShortCodes
        }
    }

    /// Answers a repeated create.
    ///
    /// The member secret and the ref are part of the answer only while the sealed copy exists: until the creator first uses the
    /// secret, and for two minutes at most. Anyone may know the code and guess the client id.
    /// - Returns: nil if another client made the room, or the code is used.
    private func ownRoom(_ request: CreateRoom, with taken: CodeRecord) async throws(BrokerError) -> Membership? {
        guard case .pending(let code) = taken,
            let room = try ifItOpens({ () throws(SealingError) in
                try keys.openPending(
                    code.pending.span, joinID: request.joinid.span, expiryMs: code.expires, generation: code.generation,
                    codeIndex: code.code)
            }),
            let record = try await stored({ () throws(StoreError) in try await self.store.room(code.room) }),
            record.joiner == nil
        else { return nil }
        let creator = record.creator
        let client = try clientIndex(
            of: request.client, in: room, slot: 1, expires: record.expires, generation: creator.generation)
        guard client == creator.client else { return nil }
        var member: MemberSecret?
        if let sealed = code.creator, !creator.proven {
            member = try ifItOpens { () throws(SealingError) in
                try keys.openCreator(
                    sealed.span, joinID: request.joinid.span, client1: request.client.span, untilMs: code.creatorUntil,
                    generation: code.generation, codeIndex: code.code)
            }
        }
        return Membership(
            room: room, member: member, expires: record.expires, joinExpires: code.expires,
            ref: member == nil ? nil : try await ref(of: record, 1, in: room), isNew: false)
    }

    /// Lets the holder of a join code in, once; answers the same client again for two minutes.
    public func accept(_ request: AcceptRoom, from address: SocketAddress) async throws(BrokerError) -> Membership {
        // Before the code is looked up: the refusal must not depend on whether the code exists.
        if request.token != nil { _ = try destination(request.topic, request.environment) }
        try admitGuess(request.joinid, address)
        // A few rounds at most: each loss means that another accept, a close or an expiry won.
        for _ in 0..<3 {
            let now = time.now
            let codes = try codeIndexes(request.joinid, now: now)
            let found = try await stored { () throws(StoreError) in try await self.store.joinable(codes, now: now) }
            // Once more: of guesses that came at the same moment, those before this one may have used the budget up.
            try admitGuess(request.joinid, address)
            guard let found else {
                spendGuess(request.joinid, address)
                throw .roomNotFound
            }
            switch found.code {
            case .used(let code):
                return try await repeatAccept(request, of: code, from: address)
            case .pending(let code):
                if let membership = try await join(request, found.room, with: code, now: now) { return membership }
            }
        }
        spendGuess(request.joinid, address)
        throw .roomNotFound
    }

    private func repeatAccept(
        _ request: AcceptRoom, of code: UsedCode, from address: SocketAddress
    ) async throws(BrokerError) -> Membership {
        if let sealed = code.retry,
            let (room, member) = try ifItOpens({ () throws(SealingError) in
                try keys.openRetry(
                    sealed.span, joinID: request.joinid.span, client2: request.client.span, untilMs: code.retryUntil,
                    generation: code.retryGeneration, codeIndex: code.code)
            })
        {
            guard let record = try await live(keys.roomIndex(room)) else { throw .roomNotFound }
            return Membership(
                room: room, member: member, expires: record.expires, ref: try await ref(of: record, 2, in: room), isNew: false)
        }
        // A used code opens nothing, so that finding one is no gain, and two phones that race are no attack.
        throw .roomAlreadyAccepted
    }

    /// - Returns: nil when code or room changed meanwhile.
    private func join(
        _ request: AcceptRoom, _ record: RoomRecord, with code: PendingCode, now: UInt64
    ) async throws(BrokerError) -> Membership? {
        guard
            let room = try ifItOpens({ () throws(SealingError) in
                try keys.openPending(
                    code.pending.span, joinID: request.joinid.span, expiryMs: code.expires, generation: code.generation,
                    codeIndex: code.code)
            }),
            // What is sealed in a row opens that room and no other.
            keys.roomIndex(room) == record.room, record.ends > time.now
        else { return nil }
        let asCreator = try clientIndex(
            of: request.client, in: room, slot: 1, expires: record.expires, generation: record.creator.generation)
        guard asCreator != record.creator.client else { throw .notAMember }

        let member = try secret { () throws(SealingError) in try MemberSecret.random() }
        let generation = keys.currentGeneration
        let token = try seal(
            request.token, room: room, index: record.room, slot: 2, expires: record.expires, environment: request.environment,
            topic: request.topic, now: now)
        let joiner = SideRecord(
            generation: generation,
            client: try clientIndex(of: request.client, in: room, slot: 2, expires: record.expires, generation: generation),
            member: keys.memberHash(member), token: token?.row.purgeID)
        // Nothing of a room outlives it.
        let retryUntil = min(now + policies.rooms.retryWindowMs, record.expires)
        let used = UsedCode(
            code: code.code, expires: min(now + policies.rooms.codeKeptAfterAcceptMs, record.expires),
            retry: try secret { () throws(SealingError) in
                try keys.sealRetry(
                    room, member, joinID: request.joinid.span, client2: request.client.span, untilMs: retryUntil,
                    generation: generation, codeIndex: code.code)
            },
            retryGeneration: generation, retryUntil: retryUntil)
        let outcome = try await stored { () throws(StoreError) in
            try await self.store.accept(code, joiner: joiner, token: token?.new, used: used, now: now)
        }
        guard outcome == .accepted else { return nil }
        metrics.add(.roomsAccepted)
        await sweeper.expect(retryUntil)
        await sweeper.noteErasure()
        recentAccepts.add(code.room, now: now)
        await presence.tell(RoomSide(room: code.room, slot: 1), .peerAccepted)
        return Membership(
            room: room, member: member, expires: record.expires, ref: token?.ref, isNew: true)
    }

    public func status(_ room: RoomID) async throws(BrokerError) -> RoomStatus {
        let index = keys.roomIndex(room)
        guard let record = try await live(index) else { throw .roomNotFound }
        return RoomStatus(
            expires: record.expires, accepted: record.joiner != nil,
            creatorPresent: await presence.isPresent(RoomSide(room: record.room, slot: 1)),
            joinerPresent: await presence.isPresent(RoomSide(room: record.room, slot: 2)),
            creatorHasToken: record.creator.token != nil, joinerHasToken: record.joiner?.token != nil)
    }

    /// Puts a new token in the caller's place. The same token again changes nothing, and is answered as before.
    public func replaceToken(
        _ caller: Caller, token: Secret, environment: PushEnvironment?, topic: String? = nil
    ) async throws(BrokerError) -> (ref: Ref, expires: UInt64) {
        let (record, slot) = try await authorize(caller)
        guard
            let sealed = try seal(
                token, room: caller.room, index: record.room, slot: slot, expires: record.expires, environment: environment,
                topic: topic, now: time.now)
        else { throw try await refusal(of: caller) }
        if let standing = try await standingToken(of: record, slot, in: caller.room),
            standing.opened.token == token, standing.record.topic == sealed.row.topic,
            standing.record.environment == sealed.row.environment
        {
            return (standing.opened.ref, record.expires)
        }
        let charges = try chargeReplacement(record.room, slot, isProven: caller.member != nil)
        var isReplaced = false
        defer { if !isReplaced { shares.refund(charges) } }
        isReplaced = try await stored { () throws(StoreError) in
            try await self.store.replaceToken(room: record.room, slot: slot, proven: caller.member != nil, token: sealed.new)
        }
        guard isReplaced else { throw try await refusal(of: caller) }
        if let token = record[slot]?.token { await outbox.revoke([token]) }
        await sweeper.noteErasure()
        return (sealed.ref, record.expires)
    }

    /// Returns nil if the side has none, or none that opens.
    private func standingToken(
        of room: RoomRecord, _ slot: UInt8, in id: RoomID
    ) async throws(BrokerError) -> (record: TokenRecord, opened: OpenedToken)? {
        guard let (found, context) = try await tokenRow(of: room, slot) else { return nil }
        let opened = try ifItOpens { () throws(SealingError) in
            try keys.openToken(found.sealed.span, context: context, room: id)
        }
        return opened.map { (found, $0) }
    }

    /// The ref of a side's token, which stays sealed. Returns nil if the side has none, or none that opens.
    private func ref(of room: RoomRecord, _ slot: UInt8, in id: RoomID) async throws(BrokerError) -> Ref? {
        guard let (found, context) = try await tokenRow(of: room, slot) else { return nil }
        return try ifItOpens { () throws(SealingError) in try keys.openRef(found.ref.span, context: context, room: id) }
    }

    private func tokenRow(
        of room: RoomRecord, _ slot: UInt8
    ) async throws(BrokerError) -> (record: TokenRecord, context: TokenContext)? {
        guard let name = room[slot]?.token else { return nil }
        let expires = room.expires
        let found = try await stored { () throws(StoreError) in try await self.store.token(name, expires: expires) }
        return found.map { ($0, $0.context) }
    }

    /// A replacement adds to the public log as a creation does, and is charged like one.
    ///
    /// A side that shows its member secret has a share of its own: whoever guesses its client id can't use that up.
    private func chargeReplacement(_ room: Digest, _ slot: UInt8, isProven: Bool) throws(BrokerError) -> [Charge] {
        let side = shares.side(room, slot: isProven ? slot | 0x80 : slot)
        do throws(Shortage) {
            let now = time.now
            let replacement = try shares.charge(.tokenReplacements, to: Owners(side), now: now)
            noteCharge(now)
            do throws(Shortage) {
                return [replacement] + (try chargeEntries())
            } catch {
                shares.refund(replacement)
                throw error
            }
        } catch { throw BrokerError(error) }
    }

    /// - Returns: how many tokens were purged: 0 or 1.
    public func withdrawToken(_ caller: Caller) async throws(BrokerError) -> Int {
        let (record, slot) = try await authorize(caller)
        if record[slot]?.token == nil { return 0 }
        let purged = try await stored { () throws(StoreError) in
            try await self.store.withdrawToken(room: record.room, slot: slot, proven: caller.member != nil)
        }
        guard let purged else { throw try await refusal(of: caller) }
        if let token = record[slot]?.token { await outbox.revoke([token]) }
        metrics.add(.tokensPurged, purged)
        if purged > 0 { await sweeper.noteErasure() }
        return purged
    }

    /// Ends a room for both sides.
    /// - Returns: how many tokens were destroyed.
    public func close(_ room: RoomID) async throws(BrokerError) -> Int {
        let index = keys.roomIndex(room)
        // An expired room that the sweeper has not reached yet is gone to callers.
        guard let record = try await live(index),
            let purged = try await stored({ () throws(StoreError) in try await self.store.close(room: index) })
        else { throw .roomNotFound }
        await outbox.revoke([record.creator, record.joiner].compactMap { $0?.token })
        metrics.add(.roomsClosed)
        metrics.add(.tokensPurged, purged)
        await sweeper.noteErasure()
        await presence.end(index)
        return purged
    }

    // MARK: Parts

    /// Why what was allowed a moment ago is not any more: the room has gone, or its side has used its secret.
    private func refusal(of caller: Caller) async throws(BrokerError) -> BrokerError {
        _ = try await authorize(caller)
        return .roomNotFound
    }

    /// Which side the caller is.
    func authorize(_ caller: Caller) async throws(BrokerError) -> (room: RoomRecord, slot: UInt8) {
        guard let room = try await live(keys.roomIndex(caller.room)) else { throw .roomNotFound }
        for slot: UInt8 in [1, 2] {
            guard let side = room[slot] else { continue }
            let client = try clientIndex(
                of: caller.client, in: caller.room, slot: slot, expires: room.expires, generation: side.generation)
            guard client == side.client else { continue }
            guard let member = caller.member else {
                if side.proven { throw .memberRequired }
                try holdOperation(room.room, slot)
                return (room, slot)
            }
            guard keys.memberHash(member) == side.member else { throw .notAMember }
            try holdOperation(room.room, slot)
            if !side.proven {
                let known = try await stored { () throws(StoreError) in
                    try await self.store.markProven(room: room.room, slot: slot)
                }
                guard known else { throw .roomNotFound }
                // This has deleted the sealed copy of the creator's secret.
                if slot == 1 { await sweeper.noteErasure() }
            }
            return (room, slot)
        }
        throw .notAMember
    }

    private func holdOperation(_ room: Digest, _ slot: UInt8) throws(BrokerError) {
        try RequestCharges.current?.hold(of: shares.side(room, slot: slot))
    }

    /// The room's row, unless it has expired.
    func live(_ index: Digest) async throws(BrokerError) -> RoomRecord? {
        let record = try await stored { () throws(StoreError) in try await self.store.room(index) }
        return record.flatMap { $0.ends > time.now ? $0 : nil }
    }

    /// Returns nil if the room has ended.
    func msUntilEnd(of room: Digest) async throws(BrokerError) -> UInt64? {
        try await live(room).map { $0.ends - min(time.now, $0.ends) }
    }

    private func destination(
        _ topic: String?, _ environment: PushEnvironment?
    ) throws(BrokerError) -> (topic: String, environment: PushEnvironment) {
        guard let destination = settings.destination(.alert, topic: topic, environment: environment) else {
            throw .appNotServed
        }
        return destination
    }

    private func seal(
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
        let (sealed, sealedRef) = try secret { () throws(SealingError) in
            (
                try keys.sealToken(token, ref: ref, sealedAtMs: now, context: context, room: room),
                try keys.sealRef(ref, context: context, room: room)
            )
        }
        let row = TokenRecord(
            purgeID: context.purgeID, ref: sealedRef, room: index, slot: slot, kind: context.kind,
            environment: environment, generation: context.generation, expires: expires, topic: topic,
            sealed: sealed, isLong: TokenLife.isLong(from: now, to: expires))
        return SealedRoomToken(new: NewToken(row, sealedID: ref.sealedID(untilMs: until)), row: row, ref: ref)
    }

    /// A side's token: what the store is given, and the ref for its owner.
    private struct SealedRoomToken {
        let new: NewToken
        let row: TokenRecord
        let ref: Ref
    }

    private func clientIndex(
        of client: [UInt8], in room: RoomID, slot: UInt8, expires: UInt64, generation: UInt32
    ) throws(BrokerError) -> Digest {
        try secret { () throws(SealingError) in
            try keys.clientIndex(room, slot: slot, client: client.span, expiryMs: expires, generation: generation)
        }
    }

    private func codeIndexes(_ joinid: [UInt8], now: UInt64) throws(BrokerError) -> [Digest] {
        let stands = policies.rooms.codeStandsMs
        return try secret { () throws(SealingError) in try keys.codeIndexes(joinid.span, nowMs: now, standsMs: stands) }
    }

    /// Keys that can't be had are the broker's trouble, not the caller's.
    func secret<Value>(_ body: () throws(SealingError) -> Value) throws(BrokerError) -> Value { try available(body) }

    func stored<Value: Sendable>(_ body: () async throws(StoreError) -> Value) async throws(BrokerError) -> Value {
        try await access.stored(body)
    }
}

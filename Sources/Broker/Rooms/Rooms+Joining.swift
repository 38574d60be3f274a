import EventLoop
import Ledger
public import Linux
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

extension Rooms {
    /// Creates a room. A repeat by the same client with the same code returns the same room while it is pending.
    /// - Throws: `.joinCodeInUse`; `.tooManyRequests` if a budget is used up; `.tooManyShortCodes`.
    public func create(
        _ request: CreateRoom, from address: SocketAddress, charging payer: RequestCharges?
    ) async throws -> Membership {
        try admitGuess(request.joinid, address)
        let now = time.now
        let expires = now + UInt64(request.lifeSeconds) * 1_000
        let room = try RoomID.random(endMs: expires)
        let member = try MemberSecret.random()
        let codeExpires = now + UInt64(request.codeLifeSeconds) * 1_000
        let generation = keys.currentGeneration
        let index = keys.roomIndex(room)
        let codes = try codeIndexes(request.joinid, now: now)
        let token = try request.address.map { address in
            try seal(address, room: room, index: index, slot: 1, expires: expires, now: now)
        }

        let creator = SideRecord(
            generation: generation,
            client: try clientIndex(of: request.client, in: room, slot: 1, expires: expires, generation: generation),
            member: keys.memberHash(member), token: token?.new.record.purgeID)
        let creatorUntil = min(now + policies.rooms.retryWindowMs, codeExpires)
        let code = PendingCode(
            code: codes[0], expires: codeExpires, room: index, roomExpires: expires, generation: generation,
            pending: try keys.sealPending(
                room, joinID: request.joinid.span, expiryMs: codeExpires, generation: generation, codeIndex: codes[0]),
            creator: try keys.sealCreator(
                member, joinID: request.joinid.span, client1: request.client.span, untilMs: creatorUntil,
                generation: generation, codeIndex: codes[0]),
            creatorUntil: creatorUntil, short: policies.rooms.isShort(codeOf: request.joinid.count))
        let record = RoomRecord(room: index, expires: expires, creator: creator)

        let creation: (entries: Admission, guess: Admission?, shortLimit: Int)
        do {
            creation = try chargeCreation(
                request.joinid, of: index, codeLifeMs: codeExpires - now, from: address, charging: payer)
        } catch {
            // A repeat costs no budget, so that a lost answer can always be requested again. Other callers get the budget's error. Reporting a taken
            // code would be a free guess.
            let taken = try await store.read { try $0.joinable(codes, now: now)?.code }
            // A failed look-up gets the budget's error, too. Otherwise it would show that the code is taken.
            guard let taken, let again = try? await ownRoom(request, with: taken) else { throw error }
            return again
        }
        defer {
            creation.entries.end()
            creation.guess?.end()
        }
        let outcome: CreateOutcome
        do {
            outcome = try await store.write {
                try $0.create(
                    record, code: code, otherIndexes: Array(codes.dropFirst()), token: token?.new,
                    shortLimit: creation.shortLimit, now: now)
            }
        } catch {
            refundShortCode(of: index)
            throw error
        }
        if outcome != .created { refundShortCode(of: index) }
        switch outcome {
        case .created:
            creation.entries.commit()
            creation.guess?.commit()
            knockDelays.recordNewRoom(index, now: time.now)
            await sweeper.expect(creatorUntil)
            // The write-ahead log shows which seal belongs to this row.
            await sweeper.scheduleScrub()
            metrics.add(.roomsCreated)
            return Membership(
                room: room, member: member, expires: expires, joinExpires: codeExpires, ref: token?.ref, isNew: true)
        case .taken(let taken):
            let again: Membership?
            do {
                again = try await ownRoom(request, with: taken)
            } catch {
                // This error also shows that the code is taken.
                creation.guess?.commit()
                throw error
            }
            // The guess is refunded: the caller learned nothing about the code.
            if let again { return again }
            creation.guess?.commit()
            spendGuess(request.joinid, address)
            throw BrokerError.joinCodeInUse
        case .tooManyShort:
            creation.guess?.commit()
            throw BrokerError.tooManyShortCodes
        }
    }

    /// Answers a repeated create.
    ///
    /// The member secret and the ref are part of the answer only while the sealed copy exists: until the creator first uses the
    /// secret, and for two minutes at most. Anyone may know the code and guess the client id.
    /// - Returns: nil if another client created the room, or if the code is used.
    private func ownRoom(_ request: CreateRoom, with taken: CodeRecord) async throws -> Membership? {
        guard case .pending(let code) = taken,
            let room = try ifItOpens({
                try keys.openPending(
                    code.pending.span, joinID: request.joinid.span, expiryMs: code.expires, generation: code.generation,
                    codeIndex: code.code)
            }),
            let record = try await store.read({ try $0.room(code.room) }),
            record.joiner == nil
        else { return nil }
        let creator = record.creator
        let client = try clientIndex(
            of: request.client, in: room, slot: 1, expires: record.expires, generation: creator.generation)
        guard client == creator.client else { return nil }
        var member: MemberSecret?
        // A lost answer can be repeated, but only until the first proof: a join code is shared, and a client id can be guessed.
        if let sealed = code.creator, !creator.proven {
            member = try ifItOpens {
                try keys.openCreator(
                    sealed.span, joinID: request.joinid.span, client1: request.client.span, untilMs: code.creatorUntil,
                    generation: code.generation, codeIndex: code.code)
            }
        }
        return Membership(
            room: room, member: member, expires: record.expires, joinExpires: code.expires,
            ref: member == nil ? nil : try await ref(of: record, 1, in: room), isNew: false)
    }

    /// Accepts a room for the holder of its join code, once. A repeat by the same client returns the same room for two minutes.
    /// - Throws: `.roomNotFound` if the code is unknown or expired; `.roomAlreadyAccepted`; `.notAMember` if the creator accepts its own room;
    ///   `.tooManyRequests` if a budget is used up.
    public func accept(_ request: AcceptRoom, from address: SocketAddress) async throws -> Membership {
        try admitGuess(request.joinid, address)
        // A failed try means that another accept, a close or an expiry won.
        for _ in 0..<3 {
            let now = time.now
            let codes = try codeIndexes(request.joinid, now: now)
            let found = try await store.read { try $0.joinable(codes, now: now) }
            // Checked again: guesses at the same moment may have used up the budget.
            try admitGuess(request.joinid, address)
            guard let found else {
                spendGuess(request.joinid, address)
                throw BrokerError.roomNotFound
            }
            switch found.code {
            case .used(let code):
                return try await repeatAccept(request, of: code)
            case .pending(let code):
                if let membership = try await acceptPending(request, found.room, with: code, now: now) { return membership }
            }
        }
        spendGuess(request.joinid, address)
        throw BrokerError.roomNotFound
    }

    private func repeatAccept(_ request: AcceptRoom, of code: UsedCode) async throws -> Membership {
        if let sealed = code.retry,
            let (room, member) = try ifItOpens({
                try keys.openRetry(
                    sealed.span, joinID: request.joinid.span, client2: request.client.span, untilMs: code.retryUntil,
                    generation: code.retryGeneration, codeIndex: code.code)
            })
        {
            guard let record = try await live(keys.roomIndex(room)) else { throw BrokerError.roomNotFound }
            return Membership(
                room: room, member: member, expires: record.expires, ref: try await ref(of: record, 2, in: room), isNew: false)
        }
        // This costs no guess. A used code opens nothing, and two phones that race are no attack.
        throw BrokerError.roomAlreadyAccepted
    }

    /// - Returns: nil if the code or the room changed meanwhile.
    private func acceptPending(
        _ request: AcceptRoom, _ record: RoomRecord, with code: PendingCode, now: UInt64
    ) async throws -> Membership? {
        guard
            let room = try ifItOpens({
                try keys.openPending(
                    code.pending.span, joinID: request.joinid.span, expiryMs: code.expires, generation: code.generation,
                    codeIndex: code.code)
            }),
            // A seal that was moved to another row must not open its room.
            keys.roomIndex(room) == record.room, record.ends > time.now
        else { return nil }
        let asCreator = try clientIndex(
            of: request.client, in: room, slot: 1, expires: record.expires, generation: record.creator.generation)
        guard asCreator != record.creator.client else { throw BrokerError.notAMember }

        let member = try MemberSecret.random()
        let generation = keys.currentGeneration
        let token = try request.address.map { address in
            try seal(address, room: room, index: record.room, slot: 2, expires: record.expires, now: now)
        }
        let joiner = SideRecord(
            generation: generation,
            client: try clientIndex(of: request.client, in: room, slot: 2, expires: record.expires, generation: generation),
            member: keys.memberHash(member), token: token?.new.record.purgeID)
        // Nothing of a room outlives it.
        let retryUntil = min(now + policies.rooms.retryWindowMs, record.expires)
        let used = UsedCode(
            code: code.code, expires: min(now + policies.rooms.codeKeptAfterAcceptMs, record.expires),
            retry: try keys.sealRetry(
                room, member, joinID: request.joinid.span, client2: request.client.span, untilMs: retryUntil,
                generation: generation, codeIndex: code.code),
            retryGeneration: generation, retryUntil: retryUntil)
        let outcome = try await store.write {
            try $0.accept(code, joiner: joiner, token: token?.new, used: used, now: now)
        }
        guard outcome == .accepted else { return nil }
        refundShortCode(of: code.room)
        metrics.add(.roomsAccepted)
        await sweeper.expect(retryUntil)
        await sweeper.scheduleScrub()
        knockDelays.recordAccept(code.room, now: now)
        shared.neighbors?.post(.accepted(room: code.room))
        await presence.send(RoomSide(room: code.room, slot: 1), .peerAccepted)
        return Membership(room: room, member: member, expires: record.expires, ref: token?.ref, isNew: true)
    }

    /// Handles what another node has done to a room.
    func hear(_ message: NodeMessage) {
        switch message {
        case .accepted(let room):
            knockDelays.recordAccept(room, now: time.now)
            refundShortCode(of: room)
        case .closed(let room): refundShortCode(of: room)
        default: break
        }
    }

    private func codeIndexes(_ joinid: [UInt8], now: UInt64) throws -> [Digest] {
        let retention = policies.rooms.codeRetentionMs
        let ahead = shared.neighbors == nil ? 0 : Neighbors.largestDifferenceMs
        return try keys.codeIndexes(joinid.span, nowMs: now, retentionMs: retention, aheadMs: ahead)
    }
}

import EventLoop
import Ledger
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

extension Rooms {
    /// The template of the one push that rooms know.
    public static let template = "peer_waiting"

    /// A socket joins its room. An absent peer is knocked at.
    /// - Parameter isOpen: whether the socket is still open after a wait.
    /// - Returns: nil if the socket ended meanwhile.
    public func join(
        _ caller: Caller, socket: UInt64, isOpen: @Sendable () -> Bool
    ) async throws(BrokerError) -> (expires: UInt64, peerPresent: Bool, delivery: Delivery)? {
        let (record, slot) = try await authorize(caller)
        guard isOpen() else { return nil }
        let side = RoomSide(room: record.room, slot: slot)
        try chargePresenceChange(side)
        await presence.join(socket, at: side, in: caller.room, endsInMs: record.ends - min(time.now, record.ends))
        // The room may have ended between its look-up and the socket's entry. Then nobody has told this socket.
        guard let current = try await live(record.room) else {
            await presence.leave(socket: socket, isDeliberate: true)
            throw .roomNotFound
        }
        guard await presence.hasSocket(socket) else { return nil }
        switch await presence.check(side.peer, isAwaited: true) {
        case .present:
            metrics.add(.knocksUnneeded)
            return (current.expires, true, .peerPresent)
        // If the probe fails, `peer_left` follows.
        case .probing: return (current.expires, true, .peerPresent)
        case .absent: break
        }
        do {
            return (current.expires, false, try await knock(in: caller.room, current, at: side.peer.slot))
        } catch {
            // The socket is more than a knock: if it were closed, the app would open another at once.
            switch error {
            case .tooManyPushes, .overloaded, .outOf: break
            default: throw error
            }
            await presence.checkAgain(side.peer, in: caller.room, afterMs: error.retryMs)
            return (current.expires, false, .throttled)
        }
    }

    /// An app reports over HTTP that a side is present, or that it leaves.
    public func report(_ caller: Caller, leaving: Bool) async throws(BrokerError) -> Delivery {
        let (record, slot) = try await authorize(caller)
        let side = RoomSide(room: record.room, slot: slot)
        try chargePresenceChange(side)
        if leaving {
            await presence.reportLeaving(side)
            return .none
        }
        await presence.report(side, in: caller.room)
        switch await presence.check(side.peer, isAwaited: true) {
        case .present:
            metrics.add(.knocksUnneeded)
            return .peerPresent
        case .probing: return try await presence.resultOfProbe(of: side.peer)
        case .absent: return try await knock(in: caller.room, record, at: side.peer.slot)
        }
    }

    private func chargePresenceChange(_ side: RoomSide) throws(BrokerError) {
        do throws(Shortage) {
            let owner = charges.shares.side(side.room, slot: side.slot)
            _ = try charges.shares.charge(.presenceChanges, to: Owners(owner), now: loop.now)
        } catch { throw BrokerError(error) }
    }

    /// Knocks at a side for `Presence`, whose peer waits there.
    func knock(at side: RoomSide, in id: RoomID) async throws(BrokerError) -> Delivery {
        guard let record = try await live(side.room) else { throw .roomNotFound }
        return try await knock(in: id, record, at: side.slot)
    }

    /// Asks for a push to the side in `slot`, unless it is there. When this returns `queued` the push is durable.
    func knock(in roomID: RoomID, _ record: RoomRecord, at slot: UInt8) async throws(BrokerError) -> Delivery {
        var room = record
        for _ in 0..<3 {
            let now = time.now
            // The side may have arrived while the store was asked.
            if await presence.isPresent(RoomSide(room: room.room, slot: slot)) {
                metrics.add(.knocksUnneeded)
                return .peerPresent
            }
            guard let name = room[slot]?.token else { return .noToken }
            let expires = room.expires
            let token = try await store.read { try $0.token(name, expires: expires) }
            if let token, let delivery = try await queue(token, room: roomID, now: now) { return delivery }
            guard let again = try await live(keys.roomIndex(roomID)) else { throw .roomNotFound }
            room = again
        }
        return .noToken
    }

    /// Stores a job that pushes to this token, if its side and the token itself may be knocked at now.
    /// - Returns: nil if the token is gone, was replaced or does not open: look again.
    private func queue(_ token: TokenRecord, room: RoomID, now: UInt64) async throws(BrokerError) -> Delivery? {
        let context = token.context
        guard now < token.expires, let template = policies.template(Self.template) else {
            return nil
        }
        let heldUntil = knockHolds.end(token.room, now: now)
        let plan = JobTimes(template).plan(now: now, heldUntil: heldUntil, tokenExpires: token.expires)
        // The room ends too soon for a push.
        guard let plan else { return .noToken }
        guard await !outbox.isFull(topic: token.topic, environment: token.environment) else { throw .tooManyPushes }
        let opened = try ifItOpens { () throws(SealingError) in
            try keys.openToken(token.sealed.span, context: context, room: room)
        }
        guard let opened else { return nil }
        let reservation = try available { () throws(SealingError) in
            try tokenKnocks.reserve(opened.token, context.environment, now: now)
        }
        guard let reservation else { return await throttled(token, room, until: tokenKnocks.end ?? now) }
        watchWindows()
        // Reserved before the wait, so that knocks at the same moment don't all find room.
        var isQueued = false
        defer { if !isQueued { reservation.cancel() } }
        guard let charged = try chargeKnock(token) else {
            return await throttled(token, room, until: now + policies.rooms.knockThrottleMs)
        }
        defer { if !isQueued { charges.shares.refund(charged) } }
        let new = try self.job(opened, token, context, plan, room: room)
        let job = new.record
        await outbox.reserve(job)
        let throttle = policies.rooms.knockThrottleMs
        let outcome: KnockOutcome
        do throws(BrokerError) {
            outcome = try await store.write { try $0.knock(new, throttle: throttle, now: now, knocked: plan.knocked) }
        } catch {
            await outbox.release(job)
            throw error
        }
        if outcome != .queued { await outbox.release(job) }
        switch outcome {
        case .queued:
            isQueued = true
            metrics.add(.knocksQueued)
            let charge = charged.first.map { PushCharge(charges.shares, $0) }
            await outbox.schedule(Outbox.Entry(job: job, reservation: reservation, charge: charge))
            return .queued
        case .throttled(let until): return await throttled(token, room, until: until)
        case .changed: return nil
        }
    }

    private func throttled(_ token: TokenRecord, _ room: RoomID, until end: UInt64) async -> Delivery {
        metrics.add(.knocksThrottled)
        let now = time.now
        await presence.checkAgain(RoomSide(room: token.room, slot: token.slot), in: room, afterMs: end - min(now, end) + 1)
        return .throttled
    }

    /// A knock without a caller is not charged.
    /// - Returns: nil if the side or the caller is over its share.
    private func chargeKnock(_ token: TokenRecord) throws(BrokerError) -> [Charge]? {
        do throws(Shortage) {
            return try charges.chargeKnock(at: charges.shares.side(token.room, slot: token.slot))
        } catch {
            if case .overShare = error { return nil }
            throw .tooManyPushes
        }
    }

    /// Seals a token, which the caller's room id has opened, into a job that the broker can open by itself until the deadline.
    private func job(
        _ opened: OpenedToken, _ token: TokenRecord, _ context: TokenContext, _ plan: JobTimes.Plan, room: RoomID
    ) throws(BrokerError) -> NewJob {
        let job = JobContext(
            generation: keys.currentGeneration, job: JobID.random(), purgeID: context.purgeID, kind: context.kind,
            environment: context.environment, topic: token.topic, template: Self.template, deadlineMs: plan.deadline,
            expiryMs: token.expires)
        let handle = keys.handle(room, kind: "room", slot: token.slot)
        let sealed = try available { () throws(SealingError) in
            try keys.sealJob(JobContent(token: opened.token, sealedAtMs: opened.sealedAtMs, handle: handle), context: job)
        }
        let row = JobRecord(
            job: job.job, deadline: plan.deadline, notBefore: plan.notBefore, purgeID: token.purgeID, room: token.room,
            slot: token.slot, kind: token.kind, environment: token.environment, topic: token.topic, template: Self.template,
            generation: job.generation, expires: token.expires, sealed: sealed)
        return NewJob(row, openedID: opened.ref.openedID(job.job))
    }
}

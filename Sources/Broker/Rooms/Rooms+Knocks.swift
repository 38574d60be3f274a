import EventLoop
import Ledger
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

extension Rooms {
    /// The template of every push in rooms.
    public static let template = "peer_waiting"

    /// Adds a socket to its room, and knocks at the peer if it is absent.
    /// - Parameter isOpen: returns whether the socket is still open after a wait.
    /// - Returns: nil if the socket ended meanwhile.
    /// - Throws: what `authorize` and `knock` throw. A knock that failed for a shortage is reported as throttled and tried again.
    public func join(
        _ caller: Caller, socket: UInt64, charging payer: RequestCharges?, isOpen: @Sendable () -> Bool
    ) async throws -> (expires: UInt64, peerPresent: Bool, delivery: Delivery)? {
        let (record, slot) = try await authorize(caller, charging: payer)
        guard isOpen() else { return nil }
        let side = RoomSide(room: record.room, slot: slot)
        try chargePresenceChange(side)
        await presence.join(socket, at: side, with: knocker(caller.room), endsInMs: record.ends - min(time.now, record.ends))
        // The room may have ended after it was read. Then this socket was not among those that were closed.
        guard let current = try await live(record.room) else {
            await presence.leave(socket: socket, isDeliberate: true)
            throw BrokerError.roomNotFound
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
            return (current.expires, false, try await knock(in: caller.room, current, at: side.peer.slot, charging: payer))
        } catch {
            // Keep the socket: if it were closed, the app would open another at once.
            guard let refusal = BrokerError(thrown: error), refusal.isOverload else { throw error }
            await presence.checkAgain(side.peer, with: knocker(caller.room), afterMs: refusal.retryMs)
            return (current.expires, false, .throttled)
        }
    }

    /// Records that a side is present, or that it leaves, as the app reports over HTTP. Knocks at the peer if it is absent.
    public func report(_ caller: Caller, leaving: Bool, charging payer: RequestCharges?) async throws -> Delivery {
        let (record, slot) = try await authorize(caller, charging: payer)
        let side = RoomSide(room: record.room, slot: slot)
        try chargePresenceChange(side)
        if leaving {
            await presence.reportLeaving(side)
            return .none
        }
        await presence.report(side, with: knocker(caller.room))
        switch await presence.check(side.peer, isAwaited: true) {
        case .present:
            metrics.add(.knocksUnneeded)
            return .peerPresent
        case .probing: return try await presence.resultOfProbe(of: side.peer)
        case .absent: return try await knock(in: caller.room, record, at: side.peer.slot, charging: payer)
        }
    }

    private func knocker(_ room: RoomID) -> Knocker { Knocker(room: room, rooms: self) }

    private func chargePresenceChange(_ side: RoomSide) throws {
        let owner = charges.shares.side(side.room, slot: side.slot)
        _ = try charges.shares.charge(.presenceChanges, to: Owners(owner), now: loop.now)
    }

    /// Knocks at a side whose peer waits, without a caller.
    func knock(at side: RoomSide, in id: RoomID) async throws -> Delivery {
        guard let record = try await live(side.room) else { throw BrokerError.roomNotFound }
        return try await knock(in: id, record, at: side.slot, charging: nil)
    }

    /// Queues a push to the side in `slot`, unless that side is present. When this returns `.queued`, the push is durable.
    /// - Throws: `.roomNotFound`; `.tooManyPushes` and `.overloaded` after a shortage; what the store throws.
    func knock(
        in roomID: RoomID, _ record: RoomRecord, at slot: UInt8, charging payer: RequestCharges?
    ) async throws -> Delivery {
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
            let attempt: KnockAttempt = if let token { try await queue(token, room: roomID, now: now, payer) } else { .gone }
            if case .ended(let delivery) = attempt { return delivery }
            guard let again = try await live(record.room) else { throw BrokerError.roomNotFound }
            if attempt == .invalid { return .noToken }
            room = again
        }
        return .noToken
    }

    private enum KnockAttempt: Equatable {
        case ended(Delivery)
        /// The token has expired, or was replaced or withdrawn. The room's row names the current one.
        case gone
        /// The token does not open: its row was edited, or its key is gone.
        case invalid
    }

    /// Stores a job that pushes to this token, if its side and the token itself may be knocked at now.
    private func queue(
        _ token: TokenRecord, room: RoomID, now: UInt64, _ payer: RequestCharges?
    ) async throws -> KnockAttempt {
        if now >= token.expires { return .gone }
        guard let template = policies.template(Self.template) else { throw BrokerError.storageUnavailable }
        let context = token.context
        let delayedUntil = knockDelays.end(token.room, now: now)
        let plan = JobTimes(template).plan(now: now, delayedUntil: delayedUntil, tokenExpires: token.expires)
        // The room ends too soon for a push.
        guard let plan else { return .ended(.noToken) }
        guard await !outbox.isFull else { throw BrokerError.tooManyPushes }
        let opened = try ifItOpens {
            try keys.openToken(token.sealed.span, context: context, room: room)
        }
        guard let opened else { return .invalid }
        // Reserve before the wait. Otherwise knocks at the same moment would all find room in the budget.
        let reservation = try tokenKnocks.reserve(opened.address, now: now)
        guard let reservation else { return .ended(await throttled(token, room, until: tokenKnocks.end ?? now)) }
        watchWindows()
        let admission: Admission
        do {
            admission = try charges.admitKnock(at: charges.shares.side(token.room, slot: context.slot), charging: payer)
        } catch {
            reservation.cancel()
            guard case Shortage.overShare = error else { throw BrokerError.tooManyPushes }
            return .ended(await throttled(token, room, until: now + policies.rooms.knockThrottleMs))
        }
        defer { admission.end() }
        admission.add(reservation)
        switch try await enqueue(opened, of: token, room, plan, reservation, admission) {
        case .queued: return .ended(.queued)
        case .throttled(let until): return .ended(await throttled(token, room, until: until))
        case .changed: return .gone
        }
    }

    /// Stores a job that pushes to this token, and hands it to the outbox.
    private func enqueue(
        _ opened: OpenedToken, of token: TokenRecord, _ room: RoomID, _ plan: JobTimes.Plan,
        _ reservation: KeyedBudget.Reservation, _ admission: Admission, isTest: Bool = false
    ) async throws -> KnockOutcome {
        let handle = keys.handle(room, kind: "room", slot: token.context.slot)
        let new = try keys.newJob(
            opened, token.context, template: Self.template, plan: plan, handle: handle, room: token.room,
            size: settings.addressSize)
        let job = new.record
        await outbox.reserve(job)
        let (now, throttle, knocked) = (time.now, policies.rooms.knockThrottleMs, isTest ? nil : plan.knocked)
        let outcome: KnockOutcome
        do {
            outcome = try await store.write { try $0.knock(new, throttle: throttle, now: now, knocked: knocked) }
        } catch {
            await outbox.release(job)
            throw error
        }
        guard outcome == .queued else {
            await outbox.release(job)
            return outcome
        }
        metrics.add(.knocksQueued)
        await outbox.schedule(Outbox.Entry(job: job, reservation: reservation, charge: admission.commit(), isTest: isTest))
        return .queued
    }

    private func throttled(_ token: TokenRecord, _ room: RoomID, until end: UInt64) async -> Delivery {
        metrics.add(.knocksThrottled)
        let now = time.now
        await presence.checkAgain(
            RoomSide(room: token.room, slot: token.context.slot), with: knocker(room), afterMs: end - min(now, end) + 1)
        return .throttled
    }
}

extension Rooms {
    /// Pushes to the caller's own address what a knock would, although the caller is present.
    ///
    /// A test neither waits for the throttle of knocks nor starts it. It uses one push of the token's budget and one creation.
    /// - Throws: what `authorize` throws; `.tooManyRequests` if the address had its tests or the caller its share.
    public func test(_ caller: Caller, charging payer: RequestCharges?) async throws -> Delivery {
        let (record, slot) = try await authorize(caller, charging: payer)
        var room = record
        // A failed try means that the token was replaced or withdrawn meanwhile.
        for _ in 0..<3 {
            guard room[slot]?.token != nil else { return .noToken }
            if let token = try await tokenRow(of: room, slot),
                let delivery = try await test(token, in: caller.room, charging: payer)
            {
                return delivery
            }
            guard let again = try await live(room.room) else { throw BrokerError.roomNotFound }
            room = again
        }
        return .noToken
    }

    /// Returns nil if the side's token has changed.
    private func test(_ token: TokenRecord, in room: RoomID, charging payer: RequestCharges?) async throws -> Delivery? {
        guard let template = policies.template(Self.template) else { throw BrokerError.storageUnavailable }
        let now = time.now
        guard let plan = JobTimes(template).plan(now: now, delayedUntil: 0, tokenExpires: token.expires),
            let opened = try ifItOpens({ try keys.openToken(token.sealed.span, context: token.context, room: room) })
        else { return .noToken }
        guard await !outbox.isFull else { throw BrokerError.tooManyPushes }
        let admission = Admission(charges.shares)
        defer { admission.end() }
        admission.add(try await outbox.reserveTest(opened.address))
        guard let knock = try tokenKnocks.reserve(opened.address, now: now) else { return .throttled }
        admission.add(knock)
        watchWindows()
        try charges.charge(pushes: 1, in: admission, charging: payer)
        let outcome = try await enqueue(opened, of: token, room, plan, knock, admission, isTest: true)
        return outcome == .queued ? .queued : nil
    }
}

/// How long knocks in a room wait before they leave. All times are broker time, unix ms.
struct KnockDelays {
    static let recentMs: UInt64 = 10_000
    static let delayMs: UInt64 = 250

    private let startGraceEnd: UInt64
    /// Rooms made since the start, until the grace after the start is over.
    var newRooms: Set<Digest> = []
    /// When each room was accepted, for rooms that were accepted a moment ago.
    var accepts: [Digest: UInt64] = [:]
    /// The same in order of time.
    private var order = Queue<(at: UInt64, room: Digest)>()

    init(startedAt: UInt64, startGraceMs: UInt64) { startGraceEnd = startedAt + startGraceMs }

    /// Exempts a room from the grace: nobody was in it before the start, so nobody lost a socket there.
    mutating func recordNewRoom(_ room: Digest, now: UInt64) {
        if now < startGraceEnd { newRooms.insert(room) }
    }

    mutating func recordAccept(_ room: Digest, now: UInt64) {
        while let oldest = order.first, oldest.at + Self.recentMs <= now {
            accepts[oldest.room] = nil
            _ = order.popFirst()
        }
        accepts[room] = now
        order.append((now, room))
    }

    /// Returns when a knock in this room may leave, or 0 if it may leave at once.
    ///
    /// After a start the peer may be about to come back. After an accept the two people often arrive together, and neither phone should ring.
    mutating func end(_ room: Digest, now: UInt64) -> UInt64 {
        if now >= startGraceEnd { newRooms = [] }
        let graceEnd = now >= startGraceEnd || newRooms.contains(room) ? 0 : startGraceEnd
        guard let accepted = accepts[room], now < accepted + Self.recentMs else { return graceEnd }
        return max(graceEnd, now + Self.delayMs)
    }
}

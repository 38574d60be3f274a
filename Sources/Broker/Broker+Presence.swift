import EventLoop
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

// Sockets and reports become events of `Presence`; its effects are carried out here.
extension Broker {
    /// When a knock that failed is tried again, if the error names no time.
    private static let retrySeconds = 5

    /// A socket joins its room; an absent peer is knocked at.
    /// - Parameter isOpen: whether the socket is still open after a wait.
    /// - Returns: nil if the socket ended meanwhile.
    public func join(
        _ caller: Caller, socket: UInt64, isOpen: @Sendable () -> Bool
    ) async throws(BrokerError) -> (expires: UInt64, peerPresent: Bool, delivery: Delivery)? {
        let (record, slot) = try await authorize(caller)
        guard isOpen() else { return nil }
        let place = Presence.Place(room: record.room, slot: slot)
        try charge(place)
        apply(presence.join(socket, at: place, now: loop.now), in: record.room, caller.room)
        if roomEnds[record.room] == nil { watchEnd(of: record) }
        // The room may have ended between its look-up and the socket's entry: then nobody has told this one.
        guard let current = try await live(record.room) else {
            leave(socket: socket, isDeliberate: true)
            throw .roomNotFound
        }
        guard presence.hasSocket(socket) else { return nil }
        switch check(place.peer, isAwaited: true) {
        case .present:
            metrics.add(.knocksUnneeded)
            return (current.expires, true, .peerPresent)
        // If the probe fails, `peer_left` follows.
        case .probing: return (current.expires, true, .peerPresent)
        case .absent: break
        }
        do {
            return (current.expires, false, try await knock(in: caller.room, current, at: place.peer.slot))
        } catch {
            // The socket is more than a knock: closing it would bring it back at once, with another.
            switch error {
            case .tooManyPushes, .overloaded, .outOf: break
            default: throw error
            }
            checkAgain(place.peer, in: caller.room, afterMs: Self.retryMs(error))
            return (current.expires, false, .throttled)
        }
    }

    /// A socket has ended.
    /// - Parameter isDeliberate: the app left, as opposed to a connection that broke.
    public func leave(socket: UInt64, isDeliberate: Bool) {
        guard let room = presence.room(of: socket) else { return }
        apply(presence.leave(socket, isDeliberate: isDeliberate, now: loop.now), in: room)
    }

    /// A socket answered the ping with this number.
    public func pong(socket: UInt64, number: UInt64) {
        guard let room = presence.room(of: socket) else { return }
        apply(presence.pong(socket, number: number, now: loop.now), in: room)
    }

    /// An app reports over HTTP that a side is present, or that it leaves.
    public func report(_ caller: Caller, leaving: Bool) async throws(BrokerError) -> Delivery {
        let (record, slot) = try await authorize(caller)
        let place = Presence.Place(room: record.room, slot: slot)
        try charge(place)
        if leaving {
            apply(presence.reportLeaving(place, now: loop.now), in: record.room)
            return .none
        }
        apply(presence.report(place, now: loop.now), in: record.room, caller.room)
        switch check(place.peer, isAwaited: true) {
        case .present:
            metrics.add(.knocksUnneeded)
            return .peerPresent
        case .probing:
            return try await withCheckedContinuation { waitingReports[place.peer, default: []].append($0) }.get()
        case .absent:
            return try await knock(in: caller.room, record, at: place.peer.slot)
        }
    }

    /// Checks a side for its peer, or for a push that is about to leave.
    func check(_ place: Presence.Place, isAwaited: Bool) -> Presence.Finding {
        let (finding, effects) = presence.check(place, isAwaited: isAwaited, now: loop.now)
        apply(effects, in: place.room)
        return finding
    }

    /// A knock was throttled or could not be stored: the side is checked again then, if its peer stays present.
    func checkAgain(_ place: Presence.Place, in room: RoomID, afterMs: UInt64) {
        // Broker time stands still while the wall clock is behind it, and a throttle ends by broker time.
        let wait = max(afterMs, 1_000)
        apply(presence.checkAgain(place, at: loop.now + wait, now: loop.now), in: place.room, room)
    }

    func end(_ room: Digest) async {
        let (sockets, effects) = presence.forget(room)
        apply(effects, in: room)
        for slot: UInt8 in [1, 2] {
            answer(Presence.Place(room: room, slot: slot), .failure(.roomNotFound))
            resumePushes(at: Presence.Place(room: room, slot: slot))
        }
        for socket in sockets { await edge?.tell(socket, .roomClosed) }
    }

    func tell(_ place: Presence.Place, _ event: RoomEvent) async {
        for socket in presence.sockets(at: place) { await edge?.tell(socket, event) }
    }

    // MARK: Effects

    /// Counts a report or a join.
    private func charge(_ place: Presence.Place) throws(BrokerError) {
        let side = shares.side(place.room, slot: place.slot)
        do throws(Shortage) {
            _ = try shares.charge(.presenceChanges, to: Owners(side), now: loop.now)
        } catch { throw BrokerError(error) }
    }

    /// Carries out what follows from an event in a room.
    /// - Parameter id: the room id, if a caller has brought it. One copy is kept as long as a knock may need it.
    private func apply(_ effects: [Presence.Effect], in room: Digest, _ id: RoomID? = nil) {
        let id = roomIDs[room] ?? id
        roomIDs[room] = presence.mayKnock(in: room) ? id : nil
        if !presence.hasSockets(in: room), let timer = roomEnds.removeValue(forKey: room) { loop.cancel(timer) }
        var later: [Presence.Effect] = []
        for effect in effects {
            switch effect {
            case .arm(let place, let time): arm(place, at: time)
            case .answered(let place):
                answer(place, .success(.peerPresent))
                resumePushes(at: place)
            case .absent(let place, _):
                resumePushes(at: place)
                later.append(effect)
            default: later.append(effect)
            }
        }
        if later.isEmpty { return }
        Task(executorPreference: loop) { [later] in for effect in later { await self.carryOut(effect, id) } }
    }

    private func carryOut(_ effect: Presence.Effect, _ id: RoomID?) async {
        switch effect {
        case .arm, .answered: break
        case .ping(let sockets, let number): for socket in sockets { await edge?.ping(socket, number) }
        case .close(let socket): await edge?.close(socket)
        case .arrived(let place): await tell(place.peer, .peerJoined)
        case .left(let place): await tell(place.peer, .peerLeft(nil))
        case .knock(let place): _ = await knockForPeer(at: place, in: id)
        case .absent(let place, let knocks):
            let waiting = waitingReports.removeValue(forKey: place)
            let result = knocks ? await knockForPeer(at: place, in: id) : .success(.none)
            // The side may have arrived meanwhile, and its peer heard so already.
            if !presence.isPresent(place) { await tell(place.peer, .peerLeft(knocks ? Self.told(result) : nil)) }
            for report in waiting ?? [] { report.resume(returning: result) }
        }
    }

    /// Knocks at a side because its peer waits. No caller sees an error, so a knock that could not be stored is tried again.
    private func knockForPeer(at place: Presence.Place, in id: RoomID?) async -> Result<Delivery, BrokerError> {
        guard let id else { return .failure(.roomNotFound) }
        do {
            guard let record = try await live(place.room) else { return .failure(.roomNotFound) }
            return .success(try await knock(in: id, record, at: place.slot))
        } catch {
            if Self.isRetried(error) { checkAgain(place, in: id, afterMs: Self.retryMs(error)) }
            return .failure(error)
        }
    }

    /// True if the knock is tried again after this error: the broker was short of something.
    private static func isRetried(_ error: BrokerError) -> Bool { error.status == 503 && error != .shuttingDown }

    /// Returns the knock's result for `peer_left`. A retried knock is reported as throttled.
    /// Returns nil if there will be no knock: the room is gone, or the broker stops.
    private static func told(_ result: Result<Delivery, BrokerError>) -> Delivery? {
        switch result {
        case .success(let delivery): delivery
        case .failure(let error): isRetried(error) ? .throttled : nil
        }
    }

    private static func retryMs(_ error: BrokerError) -> UInt64 { UInt64(error.retryAfter ?? retrySeconds) * 1_000 }

    private func answer(_ place: Presence.Place, _ result: Result<Delivery, BrokerError>) {
        for report in waitingReports.removeValue(forKey: place) ?? [] { report.resume(returning: result) }
    }

    private func arm(_ place: Presence.Place, at time: UInt64?) {
        if let timer = presenceTimers.removeValue(forKey: place) { loop.cancel(timer) }
        guard let time else { return }
        presenceTimers[place] = loop.after(time - min(loop.now, time)) {
            self.assumeIsolated { broker in
                broker.presenceTimers[place] = nil
                broker.apply(broker.presence.fire(place, now: broker.loop.now), in: place.room)
            }
        }
    }

    // MARK: The room's end

    /// Looks again when the room's end has come: its sockets are told, unless it was accepted meanwhile and goes on.
    private func watchEnd(of record: RoomRecord) { watchEnd(of: record.room, afterMs: record.ends - min(time.now, record.ends)) }

    private func watchEnd(of room: Digest, afterMs: UInt64) {
        roomEnds[room] = loop.after(afterMs) {
            self.assumeIsolated { broker in
                broker.roomEnds[room] = nil
                _ = Task(executorPreference: broker.loop) { await broker.lookAtEnd(of: room) }
            }
        }
    }

    private func lookAtEnd(of room: Digest) async {
        do {
            guard let record = try await live(room) else { return await end(room) }
            if presence.hasSockets(in: room), roomEnds[room] == nil { watchEnd(of: record) }
        } catch {
            // The store can't be read now: look again soon.
            if error != .shuttingDown, presence.hasSockets(in: room), roomEnds[room] == nil { watchEnd(of: room, afterMs: 1_000) }
        }
    }
}

import EventLoop
import Policy
import Sealing
import Storage

extension Broker {
    /// A socket joins its room; a peer who is away is knocked at.
    /// - Parameter isOpen: whether the socket is still there after a wait.
    /// - Returns: nil if the socket went meanwhile.
    public func join(
        _ caller: Caller, socket: UInt64, isOpen: @Sendable () -> Bool
    ) async throws(BrokerError) -> (expires: UInt64, peerPresent: Bool, delivery: Delivery)? {
        let (record, slot) = try await authorize(caller)
        guard isOpen() else { return nil }
        let now = time.now
        let peer = Self.peer(of: slot)
        let place = SocketRegister.Place(room: record.room, slot: slot)
        if sockets.add(socket, place) { watchEnd(of: record, caller.room) }
        // Together with the register, so that `leave` always takes back exactly what was added.
        let wasAway = presence.arrive(record.room, slot, now: now)
        // The room may have ended between its look-up and the socket's entry: then nobody has told this one.
        guard try await live(keys.roomIndex(caller.room)) != nil else {
            await leave(socket: socket)
            throw .roomNotFound
        }
        guard sockets[socket] != nil else { return nil }
        if wasAway { await tell(record.room, slot: peer, .peerJoined) }
        let present = presence.isPresent(record.room, peer, now: now)
        do {
            return (record.expires, present, try await knockOrLookAgain(in: caller.room, record, at: peer))
        } catch {
            // The socket is more than a knock: closing it would bring it back at once, with another.
            guard error == .tooManyPushes else { throw error }
            return (record.expires, present, .throttled)
        }
    }

    /// A socket is gone.
    public func leave(socket: UInt64) async {
        guard let (place, ending) = sockets.remove(socket) else { return }
        if let ending { loop.cancel(ending) }
        let now = time.now
        if presence.leave(place.room, place.slot, now: now) { await tell(place.room, slot: Self.peer(of: place.slot), .peerLeft) }
        presence.prune(now: now)
    }

    /// An app with a realtime server of its own says that a side is there, or that it leaves.
    public func report(_ caller: Caller, leaving: Bool) async throws(BrokerError) -> Delivery {
        let (record, slot) = try await authorize(caller)
        let now = time.now
        let peer = Self.peer(of: slot)
        defer { presence.prune(now: now) }
        if leaving {
            let was = presence.isPresent(record.room, slot, now: now)
            presence.release(record.room, slot, now: now)
            if was { await tell(record.room, slot: peer, .peerLeft) }
            return .none
        }
        let away = !presence.isPresent(record.room, slot, now: now)
        presence.hold(record.room, slot, now: now)
        watchLapse(record.room, slot)
        if away { await tell(record.room, slot: peer, .peerJoined) }
        return try await knockOrLookAgain(in: caller.room, record, at: peer)
    }

    /// Looks again when the room's end has come: its sockets are told, unless it was accepted meanwhile and goes on.
    private func watchEnd(of record: RoomRecord, _ room: RoomID) {
        let timer = loop.after(record.ends - min(time.now, record.ends)) {
            self.assumeIsolated { broker in
                _ = Task(executorPreference: broker.loop) { await broker.lookAtEnd(of: record, room) }
            }
        }
        sockets.setEnding(timer, of: record.room)
    }

    private func lookAtEnd(of record: RoomRecord, _ room: RoomID) async {
        do {
            guard let goesOn = try await live(keys.roomIndex(room)) else { return await end(record.room) }
            if !sockets.sockets(in: record.room).isEmpty { watchEnd(of: goesOn, room) }
        } catch {
            // The store can't be read now: look again soon.
            try? await loop.sleep(1_000)
            if !sockets.sockets(in: record.room).isEmpty { watchEnd(of: record, room) }
        }
    }

    func end(_ room: [UInt8]) async {
        for socket in sockets.sockets(in: room) { await edge?.tell(socket, .roomClosed) }
        presence.forget(room)
    }

    func tell(_ room: [UInt8], slot: UInt8, _ event: RoomEvent) async {
        for socket in sockets.sockets(in: room, slot: slot) { await edge?.tell(socket, event) }
    }

    static func peer(of slot: UInt8) -> UInt8 { slot == 1 ? 2 : 1 }

    /// Tells the peer when a side's word over HTTP has run out.
    private func watchLapse(_ room: [UInt8], _ slot: UInt8) {
        loop.after(policies.rooms.presenceMs + 1) {
            self.assumeIsolated { broker in
                guard broker.presence.takeLapse(room, slot, now: broker.time.now) else { return }
                _ = Task(executorPreference: broker.loop) { await broker.tell(room, slot: Self.peer(of: slot), .peerLeft) }
            }
        }
    }

    /// A peer who left a moment ago counts as present. If it does not come back while the caller is there, it is knocked at when
    /// that moment is over.
    private func knockOrLookAgain(in room: RoomID, _ record: RoomRecord, at peer: UInt8) async throws(BrokerError) -> Delivery {
        let now = time.now
        if let graceEnd = presence.graceEnd(record.room, peer, now: now), graceEnd <= now + policies.rooms.peerGraceMs {
            let own = Self.peer(of: peer)
            loop.after(graceEnd - now + 1) {
                self.assumeIsolated { broker in
                    guard broker.presence.isHere(record.room, own, now: broker.time.now) else { return }
                    _ = Task(executorPreference: broker.loop) {
                        guard let again = try? await broker.live(broker.keys.roomIndex(room)) else { return }
                        _ = try? await broker.knock(in: room, again, at: peer)
                    }
                }
            }
        }
        return try await knock(in: room, record, at: peer)
    }
}

import Shares
import Vocabulary

/// One side of one room.
struct RoomSide: Hashable, Sendable {
    let room: Digest
    let slot: UInt8

    var peer: RoomSide { RoomSide(room: room, slot: Self.peer(of: slot)) }

    static func peer(of slot: UInt8) -> UInt8 { slot == 1 ? 2 : 1 }
}

/// Tracks presence with one state machine per room side. It does no I/O and reads no clock. A restart forgets it.
///
/// Each event returns the effects that `Presence` carries out, in order. All times are milliseconds of the event loop's clock.
struct PresenceState {
    enum Effect: Equatable, Sendable {
        /// Ping these sockets of a side with this number.
        case ping(RoomSide, [UInt64], number: UInt64)
        case close(UInt64)
        /// Send `peer_joined` to the peer of this side.
        case arrived(RoomSide)
        /// Send `peer_left` to the peer of this side.
        case left(RoomSide)
        /// The side is absent. Knock at it if its peer waits, then send the peer `peer_left` with the result of the knock.
        case absent(RoomSide, knocks: Bool)
        /// Knock at a side whose peer already knows that it is absent.
        case knock(RoomSide)
        /// A probe ended with the side present. Answer the reports that waited for it.
        case answered(RoomSide)
        /// Set the one timer of this side, or cancel it.
        case arm(RoomSide, at: UInt64?)
    }

    /// The result of checking a side.
    enum Finding: Equatable {
        case absent
        case present
        /// A probe runs. The effect `absent` or `answered` follows.
        case probing
    }

    /// How a socket ended.
    enum Departure: UInt8 {
        case broken = 0
        case deliberate = 1
        /// The node that has the side's sockets probed them, and none answered.
        case unanswered = 2
    }

    struct Timing {
        /// How long a side still counts as present after it has gone.
        var graceMs: UInt64
        /// How long a report over HTTP is believed.
        var reportMs: UInt64
        /// How long a pinged socket may take to answer.
        var probeMs: UInt64

        /// How long a sign of life proves a side, and the shortest time between two of its probes.
        var proofMs: UInt64 { max(2_000, probeMs) }
    }

    /// Sockets that one side may have. One more closes the one that has been silent for longest.
    static let maxSockets = ShareTable.standard[.roomSockets].side?.cap ?? .max

    private let timing: Timing
    private var rooms: [Digest: Room] = [:]
    private var sideOfSocket: [UInt64: RoomSide] = [:]

    init(_ timing: Timing) { self.timing = timing }

    // MARK: Questions

    var roomCount: Int { rooms.count }
    var socketCount: Int { sideOfSocket.keys.count { !Self.isRemote($0) } }

    /// Returns the number of a socket that stands for a side at another node.
    static func remoteSocket(_ number: UInt64) -> UInt64 { number | 1 << 63 }
    static func isRemote(_ socket: UInt64) -> Bool { socket >> 63 == 1 }

    /// True if a side is present by a socket or a report at this node.
    func isHere(_ side: RoomSide, now: UInt64) -> Bool {
        rooms[side.room]?[side.slot].isHere(now) ?? false
    }

    /// True while the probe with this number runs.
    func isDoubtful(_ side: RoomSide, number: UInt64) -> Bool {
        guard let side = rooms[side.room]?[side.slot], case .doubtful = side.state else { return false }
        return side.number == number
    }

    /// Returns why a side is no longer present at this node.
    func departure(of side: RoomSide) -> Departure {
        guard let side = rooms[side.room]?[side.slot] else { return .broken }
        return switch side.state {
        case .grace(_, isDeliberate: true): .deliberate
        case .absent where side.hasOwnSockets: .unanswered
        case .grace, .absent, .present, .doubtful: .broken
        }
    }

    func hasSocket(_ socket: UInt64) -> Bool { sideOfSocket[socket] != nil }
    func room(of socket: UInt64) -> Digest? { sideOfSocket[socket]?.room }

    /// True also for a side in its grace or in doubt.
    func isPresent(_ side: RoomSide) -> Bool { rooms[side.room].map { $0[side.slot].state != .absent } ?? false }

    func sockets(at side: RoomSide) -> [UInt64] { rooms[side.room]?[side.slot].sockets.map(\.id) ?? [] }

    /// Sockets at other nodes don't count.
    func hasSockets(in room: Digest) -> Bool { rooms[room]?.hasOwnSockets ?? false }

    /// True if a knock may become due in this room while no caller brings the room id.
    /// - Parameter isAlone: false if the other side may arrive at another node. Its arrival brings no room id to this one.
    func mayKnock(in room: Digest, isAlone: Bool) -> Bool {
        guard let room = rooms[room], room.isOwn else { return false }
        let present = [room.creator, room.joiner].count { $0.state != .absent }
        return room.hasSockets || room.creator.checkAt != nil || room.joiner.checkAt != nil || present >= (isAlone ? 2 : 1)
    }

    // MARK: Events

    mutating func join(_ socket: UInt64, at side: RoomSide, provenAt: UInt64, now: UInt64) -> [Effect] {
        var step = begin(side.room, now)
        if let closed = step.room[side.slot].add(Socket(id: socket, joinedAt: now, provenAt: provenAt)) {
            sideOfSocket[closed] = nil
            step.effects.append(.close(closed))
        }
        sideOfSocket[socket] = side
        step.arrive(side.slot)
        // Another node's repetition is no sign of life, so the peer here checks this side.
        if now >= provenAt + timing.proofMs, step.room[side.peer.slot].isHere(now) { _ = step.check(side.slot, isAwaited: true) }
        return end(step)
    }

    mutating func leave(_ socket: UInt64, _ departure: Departure, now: UInt64) -> [Effect] {
        guard let side = sideOfSocket.removeValue(forKey: socket) else { return [] }
        var step = begin(side.room, now)
        step.remove(socket, of: side.slot, departure)
        return end(step)
    }

    /// A side reports over HTTP that it is present.
    mutating func report(_ side: RoomSide, now: UInt64) -> [Effect] {
        var step = begin(side.room, now)
        step.room[side.slot].reportedAt = now
        step.room[side.slot].reportedUntil = now + timing.reportMs
        step.arrive(side.slot)
        return end(step)
    }

    /// A side reports over HTTP that it leaves. Sockets that it has still open count again when it returns.
    mutating func reportLeaving(_ side: RoomSide, now: UInt64) -> [Effect] {
        var step = begin(side.room, now)
        // A pong that is on its way was sent before the side left.
        step.room[side.slot].number += 1
        step.room[side.slot].hasLeft = true
        step.depart(side.slot, isDeliberate: true)
        return end(step)
    }

    /// Another node received a report that a side leaves. The message may be late, and a socket that joined here in the last ten seconds may be newer than the
    /// report. So ping such sockets: if one answers, the side is present.
    mutating func hearLeaving(_ side: RoomSide, now: UInt64) -> [Effect] {
        let effects = reportLeaving(side, now: now)
        guard let known = rooms[side.room]?[side.slot] else { return effects }
        let joined = known.sockets.filter { !Self.isRemote($0.id) && $0.joinedAt + Neighbors.silenceMs > now }.map(\.id)
        return joined.isEmpty ? effects : effects + [.ping(side, joined, number: known.number)]
    }

    /// A socket answered the ping with this number.
    mutating func pong(_ socket: UInt64, number: UInt64, now: UInt64) -> [Effect] {
        guard let side = sideOfSocket[socket] else { return [] }
        var step = begin(side.room, now)
        step.answer(side.slot, socket, number: number)
        return end(step)
    }

    /// Finds out whether a side is present, for its peer or for a push about to leave.
    /// - Parameter isAwaited: true if its peer has arrived. A knock follows if the side turns out to be absent.
    mutating func check(_ side: RoomSide, isAwaited: Bool, now: UInt64) -> (finding: Finding, effects: [Effect]) {
        var step = begin(side.room, now)
        let finding = step.check(side.slot, isAwaited: isAwaited)
        return (finding, end(step))
    }

    /// Finds out for another node whether a side is present here. It always pings, because what this node knows may come from a socket that the asking node
    /// has just lost.
    mutating func checkForNeighbor(_ side: RoomSide, now: UInt64) -> (finding: Finding, effects: [Effect]) {
        var step = begin(side.room, now)
        let finding = step.check(side.slot, isAwaited: false, isForNeighbor: true)
        return (finding, end(step))
    }

    /// No answer to the probe of a side could arrive. The side is believed for now, and checked again.
    mutating func postpone(_ side: RoomSide, now: UInt64) -> [Effect] {
        var step = begin(side.room, now)
        if case .doubtful = step.room[side.slot].state {
            step.arrive(side.slot)
            step.room[side.slot].checkAt = now + timing.proofMs
        }
        return end(step)
    }

    /// Another node repeats that a side is there, and at this node it counts as absent or is in its grace. A message may have been lost, or the other node
    /// has not noticed yet that the side is silent. So probe the side again: an answer makes it present. A side that reported that it leaves is not probed.
    mutating func hearAgain(_ side: RoomSide, now: UInt64) -> [Effect] {
        guard let known = rooms[side.room]?[side.slot], !known.hasLeft else { return [] }
        switch known.state {
        case .absent, .grace: break
        case .present, .doubtful: return []
        }
        var step = begin(side.room, now)
        step.room[side.slot].number += 1
        step.effects.append(.ping(side, known.sockets.map(\.id), number: step.room[side.slot].number))
        return end(step)
    }

    /// A knock was throttled or failed for now. The side is checked again at this time, if its peer is still present then.
    mutating func checkAgain(_ side: RoomSide, at time: UInt64, now: UInt64) -> [Effect] {
        var step = begin(side.room, now)
        if step.room[side.slot].state == .absent, step.room[side.peer.slot].isPresentNow {
            step.room[side.slot].checkAt = min(step.room[side.slot].checkAt ?? .max, time)
        }
        return end(step)
    }

    /// The timer of a side fired.
    mutating func fire(_ side: RoomSide, now: UInt64) -> [Effect] {
        guard rooms[side.room] != nil else { return [] }
        var step = begin(side.room, now)
        step.room[side.slot].armedAt = nil
        step.expire(side.slot)
        return end(step)
    }

    /// The room has ended.
    /// - Returns: its sockets.
    mutating func forget(_ room: Digest) -> (sockets: [UInt64], effects: [Effect]) {
        guard let ended = rooms.removeValue(forKey: room) else { return ([], []) }
        let sockets = (ended.creator.sockets + ended.joiner.sockets).map(\.id)
        for socket in sockets { sideOfSocket[socket] = nil }
        return (sockets, [.arm(RoomSide(room: room, slot: 1), at: nil), .arm(RoomSide(room: room, slot: 2), at: nil)])
    }

    // MARK: Steps

    private mutating func begin(_ room: Digest, _ now: UInt64) -> Step {
        // Take the room out, so that it is changed in place.
        Step(name: room, room: rooms.removeValue(forKey: room) ?? Room(), timing: timing, now: now)
    }

    private mutating func end(_ step: consuming Step) -> [Effect] {
        for slot: UInt8 in [1, 2] {
            let at = step.room[slot].timer
            guard at != step.room[slot].armedAt else { continue }
            step.room[slot].armedAt = at
            step.effects.append(.arm(RoomSide(room: step.name, slot: slot), at: at))
        }
        if !step.room.isForgotten { rooms[step.name] = step.room }
        return step.effects
    }
}

extension PresenceState {
    fileprivate enum State: Equatable {
        case absent
        /// Gone for a moment, and counted as present until then.
        case grace(until: UInt64, isDeliberate: Bool)
        case present
        /// Its sockets were pinged, and may answer until then.
        case doubtful(until: UInt64)
    }

    fileprivate struct Socket {
        let id: UInt64
        let joinedAt: UInt64
        /// When it joined or last answered a probe.
        var provenAt: UInt64
        /// False after a probe that it did not answer.
        var isResponsive = true
    }

    fileprivate struct Side {
        var state = State.absent
        var sockets: [Socket] = []
        var reportedAt: UInt64 = 0
        var reportedUntil: UInt64 = 0
        /// The number of the last probe. Pongs with a lower one prove nothing.
        var number: UInt64 = 0
        var probedAt: UInt64?
        /// It reported that it leaves, and has not come back.
        var hasLeft = false
        /// Its peer arrived while it was in doubt or in its grace.
        var isAwaited = false
        /// When it is checked again for its peer.
        var checkAt: UInt64?
        var armedAt: UInt64?

        var hasSocket: Bool { sockets.contains(where: \.isResponsive) }
        var hasOwnSockets: Bool { sockets.contains { !isRemote($0.id) } }

        /// Present now, and not only a moment ago.
        var isPresentNow: Bool {
            switch state {
            case .present, .doubtful: true
            case .absent, .grace: false
            }
        }

        /// Present now by a socket or a report at this node.
        func isHere(_ now: UInt64) -> Bool {
            isPresentNow && (reportedUntil > now || sockets.contains { $0.isResponsive && !isRemote($0.id) })
        }

        var isForgotten: Bool { state == .absent && sockets.isEmpty && checkAt == nil }

        /// - Returns: the socket to close for it, if there are too many.
        mutating func add(_ socket: Socket) -> UInt64? {
            var silent: Int?
            let own = sockets.indices.filter { !isRemote(sockets[$0].id) }
            if own.count >= maxSockets, !isRemote(socket.id) { silent = own.min { sockets[$0].provenAt < sockets[$1].provenAt } }
            let closed = silent.map { sockets.remove(at: $0).id }
            sockets.append(socket)
            return closed
        }

        /// When its timer is due.
        var timer: UInt64? {
            let end: UInt64? =
                switch state {
                case .grace(let until, _), .doubtful(let until): until
                case .present: hasSocket ? nil : reportedUntil
                case .absent: nil
                }
            return [end, checkAt].compactMap(\.self).min()
        }
    }

    fileprivate struct Room {
        var creator = Side()
        var joiner = Side()

        var hasSockets: Bool { !creator.sockets.isEmpty || !joiner.sockets.isEmpty }
        var hasOwnSockets: Bool { creator.hasOwnSockets || joiner.hasOwnSockets }
        /// True unless the room is known only because of sockets at other nodes.
        var isOwn: Bool {
            hasOwnSockets || !hasSockets || creator.checkAt != nil || joiner.checkAt != nil
                || creator.reportedUntil > 0 || joiner.reportedUntil > 0
        }
        var isForgotten: Bool { creator.isForgotten && joiner.isForgotten }

        subscript(slot: UInt8) -> Side {
            get { slot == 1 ? creator : joiner }
            _modify { if slot == 1 { yield &creator } else { yield &joiner } }
        }
    }

    /// One event in one room: the transitions of its two sides.
    fileprivate struct Step {
        let name: Digest
        var room: Room
        let timing: Timing
        let now: UInt64
        var effects: [Effect] = []

        private func roomSide(_ slot: UInt8) -> RoomSide { RoomSide(room: name, slot: slot) }

        mutating func arrive(_ slot: UInt8) {
            switch room[slot].state {
            case .absent:
                effects.append(.arrived(roomSide(slot)))
                // No knock needs to be tried again.
                room[slot].checkAt = nil
            case .grace(_, isDeliberate: true): effects.append(.arrived(roomSide(slot)))
            case .doubtful: effects.append(.answered(roomSide(slot)))
            // The peer did not learn that the connection broke.
            case .grace, .present: break
            }
            room[slot].state = .present
            room[slot].isAwaited = false
            room[slot].hasLeft = false
        }

        mutating func remove(_ socket: UInt64, of slot: UInt8, _ departure: Departure) {
            let didCount = room[slot].hasSocket
            room[slot].sockets.removeAll { $0.id == socket }
            let side = room[slot]
            let peer = room[RoomSide.peer(of: slot)]
            if side.hasSocket {
                // The sockets that are left may be those of a suspended app. Each node checks for the sides that it has.
                let isOurs = isRemote(socket) ? peer.isHere(now) : peer.isPresentNow
                if side.state == .present, isOurs { _ = check(slot, isAwaited: true) }
                return
            }
            // A report still counts after the last socket has gone, unless a failed probe has voided it.
            guard didCount, now >= side.reportedUntil else { return }
            switch (departure, side.state) {
            case (.unanswered, .present): becomeAbsent(slot, isAwaited: true)
            case (.unanswered, .doubtful): becomeAbsent(slot, isAwaited: side.isAwaited)
            case (.unanswered, _): break
            case (.broken, _): depart(slot, isDeliberate: false)
            case (.deliberate, _): depart(slot, isDeliberate: true)
            }
        }

        /// The last socket ended, or the app reported that it leaves, or its report has lapsed.
        mutating func depart(_ slot: UInt8, isDeliberate: Bool) {
            room[slot].reportedUntil = 0
            switch room[slot].state {
            case .absent, .grace(_, isDeliberate: true): return
            case .grace(_, isDeliberate: false): if !isDeliberate { return }
            case .present: room[slot].isAwaited = false
            // The peer arrived before this side left, so that it is knocked at after the grace.
            case .doubtful: effects.append(.answered(roomSide(slot)))
            }
            room[slot].state = .grace(until: now + timing.graceMs, isDeliberate: isDeliberate)
            if isDeliberate {
                effects.append(.left(roomSide(slot)))
                // A deliberate leave cancels a postponed check. Only a later arrival of the peer causes a knock.
                room[slot].checkAt = nil
            }
            // The peer is checked again only while this side stays.
            room[RoomSide.peer(of: slot)].checkAt = nil
        }

        mutating func answer(_ slot: UInt8, _ socket: UInt64, number: UInt64) {
            guard number >= room[slot].number, let index = room[slot].sockets.firstIndex(where: { $0.id == socket }) else {
                return
            }
            room[slot].sockets[index].provenAt = now
            room[slot].sockets[index].isResponsive = true
            let wasAbsent = room[slot].state == .absent
            if room[slot].state != .present { arrive(slot) }
            let peer = RoomSide.peer(of: slot)
            if wasAbsent, check(peer, isAwaited: true) == .absent { effects.append(.knock(roomSide(peer))) }
        }

        mutating func check(_ slot: UInt8, isAwaited: Bool, isForNeighbor: Bool = false) -> Finding {
            let side = room[slot]
            switch side.state {
            case .absent: return .absent
            case .grace:
                if isAwaited { room[slot].isAwaited = true }
                return .present
            case .doubtful:
                if isAwaited { room[slot].isAwaited = true }
                return .probing
            case .present: break
            }
            // A report without a socket can't be probed, and is believed.
            guard isForNeighbor ? side.sockets.contains(where: { $0.isResponsive && !isRemote($0.id) }) : side.hasSocket else {
                return .present
            }
            let provenAt = max(side.reportedAt, side.sockets.lazy.filter(\.isResponsive).map(\.provenAt).max() ?? 0)
            let allowedAt = max(provenAt, side.probedAt ?? 0) + timing.proofMs
            if now < allowedAt, !isForNeighbor {
                // An app that answered a moment ago may be suspended now.
                room[slot].checkAt = allowedAt
                return .present
            }
            room[slot].checkAt = nil
            room[slot].number += 1
            room[slot].probedAt = now
            room[slot].isAwaited = isAwaited
            room[slot].state = .doubtful(until: now + timing.probeMs)
            effects.append(.ping(roomSide(slot), side.sockets.map(\.id), number: room[slot].number))
            return .probing
        }

        mutating func expire(_ slot: UInt8) {
            let side = room[slot]
            switch side.state {
            case .doubtful(let until) where until <= now:
                for index in side.sockets.indices { room[slot].sockets[index].isResponsive = false }
                becomeAbsent(slot, isAwaited: side.isAwaited)
            case .grace(let until, let isDeliberate) where until <= now:
                if isDeliberate, !side.isAwaited {
                    room[slot].state = .absent
                } else {
                    becomeAbsent(slot, isAwaited: true)
                }
            case .present where !side.hasSocket && side.reportedUntil <= now: depart(slot, isDeliberate: false)
            default: break
            }
            guard let checkAt = room[slot].checkAt, checkAt <= now else { return }
            room[slot].checkAt = nil
            guard room[RoomSide.peer(of: slot)].isPresentNow else { return }
            if check(slot, isAwaited: true) == .absent { effects.append(.knock(roomSide(slot))) }
        }

        /// The side becomes absent, and is knocked at if its peer waits for it.
        private mutating func becomeAbsent(_ slot: UInt8, isAwaited: Bool) {
            room[slot].state = .absent
            room[slot].isAwaited = false
            room[slot].checkAt = nil
            room[slot].reportedUntil = 0
            effects.append(.absent(roomSide(slot), knocks: isAwaited && room[RoomSide.peer(of: slot)].isPresentNow))
            room[RoomSide.peer(of: slot)].checkAt = nil
        }
    }
}

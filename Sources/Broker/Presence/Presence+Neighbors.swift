import EventLoop
import Vocabulary

// Sides that are present at other nodes. Each is a socket to `PresenceState`: it joins at a message from its node, and its pings and pongs are messages,
// too. Only the node where the waiting peer is present knocks, since only that one has the room id.
extension Presence {
    /// A side at another node.
    struct RemoteSide: Hashable, Sendable {
        let node: UInt64
        let side: RoomSide
    }

    struct RemoteSocket: Sendable {
        let socket: UInt64
        /// When the other node last reported this side, on the loop's clock.
        var seen: UInt64
    }

    func hear(_ message: NodeMessage, from node: UInt64) {
        switch message {
        case .here(let side, let isNew): arrived(side, at: node, isNew: isNew)
        case .gone(let side, let departure): left(side, at: node, departure)
        case .leaving(let side): apply(state.hearLeaving(side, now: loop.now), in: side.room)
        case .probe(let side, let number): answerProbe(of: side, number, node)
        case .alive(let side, let number, let asked):
            guard asked == neighbors?.node, let remote = remote[RemoteSide(node: node, side: side)] else { return }
            apply(state.pong(remote.socket, number: number, now: loop.now), in: side.room)
        case .accepted(let room):
            Task(executorPreference: loop) { await self.send(RoomSide(room: room, slot: 1), .peerAccepted) }
        case .closed(let room): Task(executorPreference: loop) { await self.end(room) }
        case .hello, .pulse, .revoked, .renewed, .news: break
        }
    }

    private func arrived(_ side: RoomSide, at node: UInt64, isNew: Bool) {
        let name = RemoteSide(node: node, side: side)
        if let known = remote[name], state.hasSocket(known.socket) {
            remote[name]?.seen = loop.now
            // The side is back after a failed probe.
            let effects =
                isNew
                ? state.pong(known.socket, number: .max, now: loop.now) : state.hearAgain(side, now: loop.now)
            apply(effects, in: side.room)
            return
        }
        lastRemote += 1
        let socket = PresenceState.remoteSocket(lastRemote)
        remote[name] = RemoteSocket(socket: socket, seen: loop.now)
        // A repetition is no sign of life.
        apply(state.join(socket, at: side, provenAt: isNew ? loop.now : 0, now: loop.now), in: side.room)
    }

    private func left(_ side: RoomSide, at node: UInt64, _ departure: PresenceState.Departure) {
        guard let gone = remote.removeValue(forKey: RemoteSide(node: node, side: side)) else { return }
        apply(state.leave(gone.socket, departure, now: loop.now), in: side.room)
    }

    private func answerProbe(of side: RoomSide, _ number: UInt64, _ node: UInt64) {
        guard announced.contains(side) else { return }
        let (finding, effects) = state.checkForNeighbor(side, now: loop.now)
        apply(effects, in: side.room)
        switch finding {
        case .present: neighbors?.post(.alive(side, number: number, node: node))
        case .probing:
            afterProbe(of: side) {
                self.assumeIsolated { presence in
                    guard presence.announced.contains(side) else { return }
                    presence.neighbors?.post(.alive(side, number: number, node: node))
                }
            }
        case .absent: break
        }
    }

    // MARK: Silence

    /// A node has gone, and all sockets there with it.
    func forget(node: UInt64) {
        for name in remote.keys where name.node == node { left(name.side, at: node, .broken) }
    }

    /// Forgets sides that their node no longer repeats: the message that they left was lost.
    func forgetUnrepeated(before time: UInt64) {
        for (name, known) in remote where known.seen < time { left(name.side, at: name.node, .broken) }
    }

    /// Keeps all sides while this node hears no messages.
    func believeAll() { for name in remote.keys { remote[name]?.seen = loop.now } }

    /// Reports all sides that are present here to the other nodes again.
    func repeatPresence() {
        for side in announced {
            if state.isHere(side, now: loop.now) {
                neighbors?.post(.here(side, isNew: false))
            } else {
                // A report lapsed while the side was present at another node, too.
                announce(side.room)
            }
        }
    }

    /// Sends a probe to the nodes of a side's other sockets, and repeats it until an answer comes. Otherwise a lost message would ring a phone.
    func probeElsewhere(_ side: RoomSide, _ number: UInt64) {
        guard let neighbors else { return }
        if neighbors.isDeaf { return apply(state.postpone(side, now: loop.now), in: side.room) }
        neighbors.post(.probe(side, number: number))
        loop.after(Self.repeatProbeMs) {
            self.assumeIsolated { presence in
                if presence.state.isDoubtful(side, number: number) { presence.probeElsewhere(side, number) }
            }
        }
    }

    private static let repeatProbeMs: UInt64 = 400

    /// Reports changes in a room to the other nodes.
    func announce(_ room: Digest) {
        guard let neighbors else { return }
        for slot: UInt8 in [1, 2] {
            let side = RoomSide(room: room, slot: slot)
            if state.isHere(side, now: loop.now) {
                if announced.insert(side).inserted { neighbors.post(.here(side, isNew: true)) }
            } else if announced.remove(side) != nil {
                neighbors.post(.gone(side, state.departure(of: side)))
            }
        }
    }
}

import Synchronization

@testable import Broker

// Pairs in which one side waits, and the other side's phone falls silent. Nobody else acts in their rooms.
extension DeploymentLife {
    /// A silent side counts as gone within this time: pings are lost, and then its grace ends.
    private static let silenceMs: UInt64 = 45_000
    /// The longest time from a wait for an absent peer to the peer's push, if a fault delays it.
    private static let ringMs: UInt64 = 60_000
    /// The longest time without a fault. A sign of life is believed for two seconds, and a ping may be answered for two more.
    private static let calmRingMs: UInt64 = 6_000
    /// The same after a connection broke: its side counts as present for five seconds, and is rung at most every 30 s.
    private static let brokenRingMs: UInt64 = 36_000
    private static let mostVigils = 12

    /// Two people come into a room that is theirs alone. One falls silent just before the other one comes, or leaves only a stale socket.
    func keepVigil(_ run: NodeRun) {
        let now = time.now
        let open = state.withLock { $0.rooms.values.count { $0.isVigil && $0.isClosed == .no && now < $0.expires } }
        if open >= Self.mostVigils { return }
        // The broker may have just heard of the one that falls silent.
        let pause = chance.upTo(2) == 0 ? chance.upTo(1_500) : 3_000 + chance.upTo(15_000)
        let (sleeper, wait, hasStaleSocket) = (Int(chance.upTo(2)), chance.upTo(2_000), chance.upTo(3) == 0)
        // The end of a socket is noticed also while the other one waits.
        let waiterComesFirst = hasStaleSocket && chance.upTo(2) == 0
        create(run, seconds: world.pace.vigilSeconds) { [self] room in
            @Sendable func come(_ slot: Int) { if let run = someRun() { arrive(room, slot, run) } }
            time.after(100) { [self] in if let run = someRun() { accept(room, run) } }
            if hasStaleSocket { time.after(1_000) { [self] in openStale(room, sleeper) } }
            if waiterComesFirst { time.after(1_500) { come(1 - sleeper) } }
            time.after(2_000) { come(sleeper) }
            time.after(2_000 + pause) { [self] in fallSilent(room, sleeper, hasStaleSocket) }
            if !waiterComesFirst { time.after(2_000 + pause + wait) { come(1 - sleeper) } }
        }
    }

    func fallSilent(_ room: Int, _ slot: Int, _ hasStaleSocket: Bool) {
        let now = time.now
        // A fault may have kept it from coming.
        guard state.withLock({ $0.rooms[room]?.sides[slot].presentSince }) != nil else { return endVigil(room) }
        change(room) { $0.silentSince = now }
        if hasStaleSocket { depart(room, slot, isDeliberate: false) } else { suspend(room, slot) }
    }

    private func endVigil(_ room: Int) {
        if state.withLock({ $0.rooms[room]?.isBusy }) == false, let run = someRun() { close(room, run) }
    }

    /// A socket of a side whose phone has lost the network, and will not come back to it.
    private func openStale(_ room: Int, _ slot: Int) {
        guard state.withLock({ $0.rooms[room]?.isBusy }) == false, let run = someRun(), let caller = caller(room, slot) else {
            return
        }
        let phone = Phone()
        let socket = run.sockets.open(phone)
        call(run, room) { broker in
            try await broker.rooms.join(caller, socket: socket) { run.sockets.isOpen(socket) }
        } done: { [self] result in
            phone.isAwake = false
            let now = time.now
            change(room, slot) { $0.maybePresent = now }
            if case .success(_?) = result { count("stale socket") } else { run.sockets.end(socket, isDeliberate: false) }
        }
    }

    /// Checks every 15 s whether the absent peer of a side that waits was rung. Ends with the socket of that side.
    func watchVigil(_ room: Int, _ slot: Int, _ socket: UInt64, since start: UInt64) {
        time.after(15_000) { [self] in
            let now = time.now
            let found: (isDue: Bool, isRung: Bool, since: UInt64, rungAt: UInt64)? = state.withLock { state in
                guard let room = state.rooms[room], room.isVigil, room.isClosed == .no, now + 70_000 < room.expires else {
                    return nil
                }
                let (side, peer) = (room.sides[slot], room.sides[1 - slot])
                guard let own = side.socket, own.number == socket, side.presentSince != nil else { return nil }
                guard peer.presentSince == nil, !peer.isJoining, peer.isTokenKnown, let token = peer.token,
                    room.isAccepted == .yes, let silent = room.silentSince,
                    silent + Self.silenceMs + Self.ringMs < now, start + Self.ringMs < now
                else { return (false, false, start, 0) }
                let rungAt = state.seen[token] ?? 0
                return (true, rungAt > silent, max(start, silent), rungAt)
            }
            guard let found else { return }
            if found.isRung {
                count("vigil")
                let delay = max(found.rungAt, found.since) - found.since
                if delay > Self.calmRingMs, isCalm(from: found.since - 40_000) {
                    world.story.fail("room \(room) side \(slot) waited for \(delay) ms until its silent peer was rung")
                }
                endVigil(room)
            } else if found.isDue, isCalm(from: now - Self.ringMs - 15_000) {
                // A ring that a fault delayed comes after the fault. So only a calm time counts.
                world.story.fail("room \(room) side \(slot) waits for a peer that fell silent, and which got no push")
            } else {
                watchVigil(room, slot, socket, since: start)
            }
        }
    }

    /// Checks, when the report of a side lapses, whether its peer was rung whose connection broke meanwhile.
    func watchReport(_ room: Int, _ slot: Int, since start: UInt64) {
        time.after(Self.reportMs) { [self] in
            let now = time.now
            let isMissing = state.withLock { state in
                guard let room = state.rooms[room], room.isVigil, room.isClosed == .no, let silent = room.silentSince,
                    start < silent, silent + Self.brokenRingMs < now
                else { return false }
                let peer = room.sides[1 - slot]
                guard peer.socket == nil, !peer.isJoining, peer.isTokenKnown, let token = peer.token else { return false }
                return state.seen[token] ?? 0 < silent
            }
            if isMissing, isCalm(from: start - 40_000) {
                world.story.fail("room \(room) side \(slot) reported that it waits, and its peer left and got no push")
            }
        }
    }
}

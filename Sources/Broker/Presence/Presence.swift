public import EventLoop
import Sealing
import Storage
import Vocabulary

/// Tracks who is present in rooms: sockets join and leave, apps report over HTTP, probes find out who still answers.
///
/// `PresenceState` decides. This actor feeds it events and carries out its effects, on the engine's loop.
public actor Presence: LoopActor {
    public nonisolated let loop: EventLoop
    var state: PresenceState
    let neighbors: Neighbors?
    private let sockets: any RoomSockets
    /// The timer of each side that waits for something.
    private(set) var timers: [RoomSide: TimerID] = [:]
    /// For each room with sockets, the timer for the room's end.
    private(set) var roomEnds: [Digest: TimerID] = [:]
    /// The caller's room id and `Rooms`, for each room that may need a knock after the caller has gone.
    private(set) var knockers: [Digest: Knocker] = [:]
    /// Reports over HTTP that wait for the probe of a side.
    private(set) var waitingReports: [RoomSide: [CheckedContinuation<Result<Delivery, BrokerError>, Never>]] = [:]
    /// Actions to call when the probe of a side ends.
    private var afterProbes: [RoomSide: [() -> Void]] = [:]
    /// Sides at other nodes.
    var remote: [RemoteSide: RemoteSocket] = [:]
    var lastRemote: UInt64 = 0
    /// Sides that other nodes believe to be present here.
    var announced: Set<RoomSide> = []

    /// - Parameter neighbors: nil if this node is alone.
    init(loop: EventLoop, timing: PresenceState.Timing, sockets: any RoomSockets, neighbors: Neighbors? = nil) {
        self.loop = loop
        self.sockets = sockets
        self.neighbors = neighbors
        state = PresenceState(timing)
    }

    // MARK: Questions

    var socketCount: Int { state.socketCount }

    func hasSocket(_ socket: UInt64) -> Bool { state.hasSocket(socket) }

    /// True also for a side in its grace or in doubt.
    func isPresent(_ side: RoomSide) -> Bool { state.isPresent(side) }

    // MARK: Events

    /// Adds a socket to its room.
    func join(_ socket: UInt64, at side: RoomSide, with knocker: Knocker, endsInMs: UInt64) {
        apply(state.join(socket, at: side, provenAt: loop.now, now: loop.now), in: side.room, knocker)
        if roomEnds[side.room] == nil { watchEnd(of: side.room, afterMs: endsInMs, knocker.rooms) }
    }

    /// Removes a socket that has ended.
    /// - Parameter isDeliberate: true if the app left, false if the connection broke.
    public func leave(socket: UInt64, isDeliberate: Bool) {
        guard let room = state.room(of: socket) else { return }
        apply(state.leave(socket, isDeliberate ? .deliberate : .broken, now: loop.now), in: room)
    }

    /// Records that a socket answered the ping with this number.
    public func pong(socket: UInt64, number: UInt64) {
        guard let room = state.room(of: socket) else { return }
        apply(state.pong(socket, number: number, now: loop.now), in: room)
    }

    /// Records a report over HTTP that a side is present.
    func report(_ side: RoomSide, with knocker: Knocker) { apply(state.report(side, now: loop.now), in: side.room, knocker) }

    /// Records a report over HTTP that a side leaves.
    func reportLeaving(_ side: RoomSide) {
        apply(state.reportLeaving(side, now: loop.now), in: side.room)
        neighbors?.post(.leaving(side))
    }

    /// Returns the last known state of a side, without a probe.
    func lastKnownState(_ side: RoomSide) -> PresenceState.Finding { isPresent(side) ? .present : .absent }

    /// Checks a side for its peer, or for a push that is about to leave.
    /// - Parameter isAwaited: true if the peer has arrived. A knock follows if the side turns out to be absent.
    func check(_ side: RoomSide, isAwaited: Bool) -> PresenceState.Finding {
        let (finding, effects) = state.check(side, isAwaited: isAwaited, now: loop.now)
        apply(effects, in: side.room)
        return finding
    }

    /// Waits for the end of a probe, and for the knock that may follow.
    func resultOfProbe(of side: RoomSide) async throws -> Delivery {
        try await withCheckedContinuation { waitingReports[side, default: []].append($0) }.get()
    }

    /// Calls `action` once, on the loop, when the probe of this side ends.
    func afterProbe(of side: RoomSide, _ action: @escaping @Sendable () -> Void) {
        afterProbes[side, default: []].append(action)
    }

    /// Checks a side again after its knock was throttled or failed, if its peer is still present then.
    func checkAgain(_ side: RoomSide, with knocker: Knocker, afterMs: UInt64) {
        // A throttle ends by broker time, which may be slower than the loop's clock.
        let wait = max(afterMs, 1_000)
        apply(state.checkAgain(side, at: loop.now + wait, now: loop.now), in: side.room, knocker)
    }

    /// Closes the sockets of a room that has ended, and forgets the room.
    func end(_ room: Digest) async {
        let (sockets, effects) = state.forget(room)
        apply(effects, in: room)
        for slot: UInt8 in [1, 2] {
            let side = RoomSide(room: room, slot: slot)
            answerReports(at: side, .failure(.roomNotFound))
            endProbe(of: side)
        }
        announce(room)
        for socket in sockets { await self.sockets.send(socket, .roomClosed) }
    }

    /// Ends a room at all nodes.
    func endEverywhere(_ room: Digest) async {
        neighbors?.post(.closed(room: room))
        await end(room)
    }

    /// Sends a message to the sockets of a side.
    func send(_ side: RoomSide, _ event: RoomEvent) async {
        for socket in state.sockets(at: side) { await sockets.send(socket, event) }
    }

    // MARK: Effects

    /// Carries out the effects of an event in a room.
    /// - Parameter knocker: of the caller, if there is one. It is kept as long as a knock may need it.
    func apply(_ effects: [PresenceState.Effect], in room: Digest, _ knocker: Knocker? = nil) {
        let knocker = knockers[room] ?? knocker
        knockers[room] = state.mayKnock(in: room, isAlone: neighbors == nil) ? knocker : nil
        announce(room)
        if !state.hasSockets(in: room), let timer = roomEnds.removeValue(forKey: room) { loop.cancel(timer) }
        var later: [PresenceState.Effect] = []
        for effect in effects {
            switch effect {
            case .arm(let side, let time): arm(side, at: time)
            case .answered(let side):
                answerReports(at: side, .success(.peerPresent))
                endProbe(of: side)
            case .absent(let side, _):
                endProbe(of: side)
                later.append(effect)
            default: later.append(effect)
            }
        }
        if later.isEmpty { return }
        Task(executorPreference: loop) { [later] in for effect in later { await self.carryOut(effect, knocker) } }
    }

    private func carryOut(_ effect: PresenceState.Effect, _ knocker: Knocker?) async {
        switch effect {
        case .arm, .answered: break
        case .ping(let side, let sockets, let number):
            for socket in sockets where !PresenceState.isRemote(socket) { await self.sockets.ping(socket, number) }
            if sockets.contains(where: PresenceState.isRemote) { probeElsewhere(side, number) }
        case .close(let socket): await sockets.close(socket)
        case .arrived(let side): await send(side.peer, .peerJoined)
        case .left(let side): await send(side.peer, .peerLeft(nil))
        case .knock(let side): if knocksHere(side) { _ = await knock(at: side, with: knocker) }
        case .absent(let side, let knocks):
            let knocks = knocks && knocksHere(side)
            let waiting = waitingReports.removeValue(forKey: side)
            let result = knocks ? await knock(at: side, with: knocker) : .success(.none)
            // The side may have arrived meanwhile. Then its peer has already got `peer_joined`.
            if !state.isPresent(side) { await send(side.peer, .peerLeft(knocks ? Self.delivery(of: result) : nil)) }
            for report in waiting ?? [] { report.resume(returning: result) }
        }
    }

    /// False if the peer that waits is present at another node only.
    private func knocksHere(_ side: RoomSide) -> Bool { neighbors == nil || state.isHere(side.peer, now: loop.now) }

    /// Knocks at a side because its peer waits. A knock that could not be stored is tried again, because no caller sees its error.
    private func knock(at side: RoomSide, with knocker: Knocker?) async -> Result<Delivery, BrokerError> {
        guard let knocker, let rooms = knocker.rooms else { return .failure(.roomNotFound) }
        do {
            return .success(try await rooms.knock(at: side, in: knocker.room))
        } catch {
            let error = BrokerError(thrown: error) ?? .storageUnavailable
            if error.isRetryable { checkAgain(side, with: knocker, afterMs: error.retryMs) }
            return .failure(error)
        }
    }

    /// Returns the knock's result for `peer_left`. A knock that will be tried again is reported as throttled.
    /// Returns nil if there will be no knock: the room has ended, or the broker stops.
    private static func delivery(of result: Result<Delivery, BrokerError>) -> Delivery? {
        switch result {
        case .success(let delivery): delivery
        case .failure(let error): error.isRetryable ? .throttled : nil
        }
    }

    private func answerReports(at side: RoomSide, _ result: Result<Delivery, BrokerError>) {
        for report in waitingReports.removeValue(forKey: side) ?? [] { report.resume(returning: result) }
    }

    private func endProbe(of side: RoomSide) {
        for action in afterProbes.removeValue(forKey: side) ?? [] { action() }
    }

    private func arm(_ side: RoomSide, at time: UInt64?) {
        if let timer = timers.removeValue(forKey: side) { loop.cancel(timer) }
        guard let time else { return }
        timers[side] = loop.after(time - min(loop.now, time)) {
            self.assumeIsolated { presence in
                presence.timers[side] = nil
                presence.apply(presence.state.fire(side, now: presence.loop.now), in: side.room)
            }
        }
    }

    // MARK: The room's end

    /// Checks the room at its end. Its sockets are closed, unless the room was accepted meanwhile.
    private func watchEnd(of room: Digest, afterMs: UInt64, _ rooms: Rooms?) {
        roomEnds[room] = loop.after(afterMs) { [weak rooms] in
            self.assumeIsolated { presence in
                presence.roomEnds[room] = nil
                _ = Task(executorPreference: presence.loop) { await presence.checkEnd(of: room, rooms) }
            }
        }
    }

    private func checkEnd(of room: Digest, _ rooms: Rooms?) async {
        guard let rooms else { return }
        let wait: UInt64
        do {
            guard let left = try await rooms.msUntilEnd(of: room) else { return await end(room) }
            wait = left
        } catch {
            if BrokerError(thrown: error) == .shuttingDown { return }
            // The store can't be read now. Check again soon.
            wait = 1_000
        }
        if state.hasSockets(in: room), roomEnds[room] == nil { watchEnd(of: room, afterMs: wait, rooms) }
    }
}

/// A room id for a later knock, after its caller has left. It doesn't keep `Rooms` alive.
struct Knocker: Sendable {
    let room: RoomID
    weak let rooms: Rooms?
}

extension BrokerError {
    /// True if the broker was short of something, so that the same call may succeed later.
    var isRetryable: Bool { status == 503 && self != .shuttingDown }

    /// True if the broker lacks queue places, slots or shares.
    var isOverload: Bool {
        switch self {
        case .tooManyPushes, .overloaded, .outOf: true
        default: false
        }
    }

    /// When to try again.
    var retryMs: UInt64 { UInt64(retryAfter ?? 5) * 1_000 }
}

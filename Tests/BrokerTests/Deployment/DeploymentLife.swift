import Broker
import EventLoop
import Ledger
import Linux
import Sealing
import Synchronization
import Vocabulary

@testable import Broker

/// The sockets of one process, and the phones at their other ends.
final class NodeSockets: RoomSockets {
    private struct State {
        var phones: [UInt64: Phone] = [:]
        var last: UInt64 = 0
        var presence: Presence?
    }

    private let machine: SimulatedMachine
    private let state = Mutex(State())

    init(_ machine: SimulatedMachine) { self.machine = machine }

    func attach(_ presence: Presence) { state.withLock { $0.presence = presence } }

    /// Opens a socket. Returns its number.
    func open(_ phone: Phone) -> UInt64 {
        state.withLock { state in
            state.last += 1
            state.phones[state.last] = phone
            return state.last
        }
    }

    func isOpen(_ socket: UInt64) -> Bool { state.withLock { $0.phones[socket] != nil } }

    /// The phone ends a socket, or its connection breaks.
    func end(_ socket: UInt64, isDeliberate: Bool) {
        let (phone, presence) = state.withLock { ($0.phones.removeValue(forKey: socket), $0.presence) }
        guard phone != nil, let presence else { return }
        machine.whenRunning {
            presence.loop.submit { presence.assumeIsolated { $0.leave(socket: socket, isDeliberate: isDeliberate) } }
        }
    }

    // MARK: From the broker

    func send(_ socket: UInt64, _ event: RoomEvent) async {
        if event == .roomClosed { state.withLock { _ = $0.phones.removeValue(forKey: socket) } }
    }

    func ping(_ socket: UInt64, _ number: UInt64) async {
        let (phone, presence) = state.withLock { ($0.phones[socket], $0.presence) }
        guard let phone, let presence else { return }
        machine.time.after(40) { [machine] in
            guard phone.isAwake else { return }
            machine.whenRunning {
                presence.loop.submit { presence.assumeIsolated { $0.pong(socket: socket, number: number) } }
            }
        }
    }

    func close(_ socket: UInt64) async {
        let presence = state.withLock { state in
            state.phones[socket] = nil
            return state.presence
        }
        await presence?.leave(socket: socket, isDeliberate: false)
    }
}

/// A phone at one side of a room.
final class Phone: Sendable {
    private let awake = Mutex(true)

    /// False while its app is suspended: then it answers no pings.
    var isAwake: Bool {
        get { awake.withLock(\.self) }
        set { awake.withLock { $0 = newValue } }
    }
}

/// People with rooms and phones, and what they must be able to rely on.
///
/// All checks use only what callers and Apple see. A result that a caller never got makes what depends on it unknown, and nothing is expected of that.
final class DeploymentLife: Sendable {
    /// A fact that a lost answer may leave open.
    enum Known { case no, yes, unknown }

    struct Side {
        let client: [UInt8]
        let phone = Phone()
        var token: [UInt8]?
        /// False if another token may be stored, or none.
        var isTokenKnown = true
        /// When this side's token last changed.
        var tokenSince: UInt64 = 0
        /// The acknowledged socket.
        var socket: (run: NodeRun, number: UInt64)?
        var isJoining = false
        /// Since when its phone answers at that socket. Nil without one, and after a report that it leaves.
        var presentSince: UInt64?
        /// The last time at which it may have counted as present.
        var maybePresent: UInt64 = 0
    }

    struct Room {
        let number: Int
        let id: RoomID
        let code: [UInt8]
        let expires: UInt64
        var isAccepted = Known.no
        var isClosed = Known.no
        /// When its end was acknowledged.
        var closedAt: UInt64?
        var isBusy = false
        /// True if only a vigil acts here.
        var isVigil = false
        /// When one of the pair fell silent there.
        var silentSince: UInt64?
        var sides = [Side(client: Facts.creator), Side(client: Facts.joiner)]
    }

    /// A knock that was acknowledged.
    private struct Knock {
        let room: Int
        let slot: Int
        let token: [UInt8]
        let at: UInt64
    }

    struct State {
        var rooms: [Int: Room] = [:]
        var count = 0
        /// The rooms and sides of all tokens.
        var owners: [[UInt8]: (room: Int, slot: Int)] = [:]
        /// Calls that have no answer yet, by number.
        var calls: [Int: (run: NodeRun, lost: @Sendable () -> Void)] = [:]
        /// The id of each push, by token and deadline.
        var pushes: [[UInt8]: [UInt64: String]] = [:]
        /// When Apple last saw a push for a token.
        var seen: [[UInt8]: UInt64] = [:]
        /// When a process learned that a push is delivered, by `apns-id`.
        var delivered: [String: UInt64] = [:]
        /// Until when the time of a machine, or of the database at -1, may be wrong.
        var wrongTimes: [Int: UInt64] = [:]
        /// While this is set, nothing new begins.
        var isQuiet = false
        var counts: [String: Int] = [:]
    }

    let world: DeploymentWorld
    let facts = Facts()
    let state = Mutex(State())
    var time: SimulatedTime { world.time }
    var chance: Chance { world.chance }
    private let ready: @Sendable () -> [NodeRun]

    /// How long after its end a room may still be there, or be gone before it: clocks of nodes and database may differ.
    private static let clockSlackMs: UInt64 = 70_000
    /// The same for a node whose time is right, like the database's, whatever the clocks of other nodes show.
    private static let callSlackMs: UInt64 = 5_000
    private static let clockAgreementMs: UInt64 = 60_000
    /// Broker's rules: how long a report over HTTP is believed, and how long after its end a side still counts as present.
    static let reportMs: UInt64 = 45_000
    /// Longer than a term: from then on all nodes know who is present.
    private static let termMs: UInt64 = 12_000
    /// Within this time all nodes know of a change.
    static let newsMs: UInt64 = 3_000
    /// A knock is tried for two minutes.
    private static let attemptsMs: UInt64 = 120_000

    /// - Parameter ready: returns the processes to which a balancer sends callers.
    init(_ world: DeploymentWorld, ready: @escaping @Sendable () -> [NodeRun]) {
        (self.world, self.ready) = (world, ready)
    }

    var summary: String {
        state.withLock { $0.counts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ") }
    }

    func count(_ what: String) { state.withLock { $0.counts[what, default: 0] += 1 } }

    // MARK: Acts

    /// A process to which a balancer sends a caller. Nil if there is none, or if nothing new begins.
    func someRun() -> NodeRun? {
        let runs = ready()
        return runs.isEmpty || state.withLock(\.isQuiet) ? nil : chance.pick(runs)
    }

    /// A process that serves. Nil if there is none.
    var readyRun: NodeRun? { ready().first }

    /// Something happens, at a random room.
    func act() {
        guard let run = someRun() else { return }
        let kind = chance.upTo(100)
        let rooms = state.withLock { state in
            state.rooms.values.filter { !$0.isBusy && $0.isClosed == .no && !$0.isVigil }.map(\.number).sorted()
        }
        guard kind >= 12, !rooms.isEmpty else {
            if kind < 5 { keepVigil(run) } else if rooms.count < 12 { create(run) }
            return
        }
        let room = chance.pick(rooms)
        let slot = Int(chance.upTo(2))
        switch kind {
        case ..<24: accept(room, run)
        case ..<48: arrive(room, slot, run)
        case ..<60: depart(room, slot)
        case ..<66: suspend(room, slot)
        case ..<70: awake(room, slot)
        case ..<76: report(room, slot, run)
        case ..<82: replaceToken(room, slot, run)
        case ..<84: withdrawToken(room, slot, run)
        case ..<86: close(room, run)
        default: status(room, run)
        }
    }

    /// The clock of a machine has stepped, or that of the database, -1. Broker time catches up at half speed after that.
    func clockStepped(at machine: Int, by ms: Int64, for duration: UInt64) {
        let until = time.now + duration + 4 * ms.magnitude + 60_000
        state.withLock { $0.wrongTimes[machine] = max(until, $0.wrongTimes[machine] ?? 0) }
    }

    /// Forgets rooms that were over an hour ago, and what was seen of them.
    func forgetEnded() {
        let now = time.now
        state.withLock { state in
            state.rooms = state.rooms.filter { min($0.value.expires, $0.value.closedAt ?? .max) + 3_600_000 > now }
            let rooms = state.rooms
            state.owners = state.owners.filter { rooms[$0.value.room] != nil }
            let owners = state.owners
            state.pushes = state.pushes.filter { owners[$0.key] != nil }
            state.seen = state.seen.filter { owners[$0.key] != nil }
            state.delivered = state.delivered.filter { $0.value + 3_600_000 > now }
        }
    }

    /// From now on nothing new begins.
    func beQuiet() { state.withLock { $0.isQuiet = true } }

    /// Closes all rooms. Call it when nothing is under way.
    func closeAll() {
        let runs = ready()
        let rooms = state.withLock { state in
            state.rooms.values.filter { !$0.isBusy && $0.isClosed != .yes }.map(\.number).sorted()
        }
        guard let run = runs.first else { return }
        for room in rooms { close(room, run) }
    }

    /// Checks that all rooms are there that must be.
    func checkAll() {
        guard let run = ready().first else { return }
        let rooms = state.withLock { state in
            state.rooms.values.filter { !$0.isBusy && $0.isClosed == .no }.map(\.number).sorted()
        }
        for room in rooms { status(room, run) }
    }

    // MARK: Calls

    /// Calls a process.
    /// - Parameters:
    ///   - room: the room, which gets no other call meanwhile.
    ///   - stores: true if it stores something new, for which the clocks of the node and the database must agree.
    ///   - done: gets the result, or `.shuttingDown` if the process ends before.
    func call<Answer: Sendable>(
        _ run: NodeRun, _ room: Int?, stores: Bool = false, _ body: @escaping @Sendable (Broker) async throws -> Answer,
        done: @escaping @Sendable (Result<Answer, any Error>) -> Void
    ) {
        guard let broker = run.broker else { return }
        let (database, machine) = (world.database, run.machine)
        let lead = machine.lead - database.lead
        let number = state.withLock { state in
            state.count += 1
            if let room { state.rooms[room]?.isBusy = true }
            return state.count
        }
        let end: @Sendable (Result<Answer, any Error>) -> Void = { [self] result in
            let isOpen = state.withLock { state in
                guard state.calls.removeValue(forKey: number) != nil else { return false }
                if let room { state.rooms[room]?.isBusy = false }
                return true
            }
            if isOpen { done(result) }
            // If it has changed, nobody knows which clocks the call met.
            if stores, lead.magnitude > Self.clockAgreementMs, lead == machine.lead - database.lead, case .success = result {
                world.story.fail("\(run.node.name) has stored something while its clock and the database's differ by \(lead) ms")
            }
        }
        state.withLock { $0.calls[number] = (run, { end(.failure(BrokerError.shuttingDown)) }) }
        time.after(1 + chance.upTo(20)) {
            run.machine.deliver {
                _ = Task(executorPreference: run.loop) {
                    let result: Result<Answer, any Error>
                    do { result = .success(try await body(broker)) } catch { result = .failure(error) }
                    // The answer of a process that was killed never arrives. What it did may be done nevertheless.
                    end(run.gate.isDead ? .failure(BrokerError.shuttingDown) : result)
                }
            }
        }
    }

    /// A process has ended: its sockets are broken, and its calls get no answer.
    func ended(_ run: NodeRun) {
        let lost = state.withLock { state in
            state.calls.filter { $0.value.run === run }.sorted { $0.key < $1.key }.map(\.value.lost)
        }
        for end in lost { end() }
        reconnect(from: run)
    }

    /// Phones notice that a process is gone or answers nothing, and go to another.
    func reconnect(from run: NodeRun) {
        let now = time.now
        let phones = state.withLock { state in
            var found: [(room: Int, slot: Int, socket: UInt64, isAwake: Bool)] = []
            for room in state.rooms.keys.sorted() {
                for slot in 0..<2 {
                    guard let side = state.rooms[room]?.sides[slot], let socket = side.socket, socket.run === run else {
                        continue
                    }
                    found.append((room, slot, socket.number, side.phone.isAwake))
                    state.lose(room, slot, now)
                }
            }
            return found
        }
        for (room, slot, socket, isAwake) in phones {
            run.sockets.end(socket, isDeliberate: false)
            // An app that is suspended doesn't come back.
            if !isAwake { continue }
            time.after(500 + chance.upTo(4_000)) { [self] in
                guard let next = ready().first(where: { $0 !== run }) ?? ready().first else { return }
                arrive(room, slot, next)
            }
        }
    }

    func isRetryable(_ error: any Error) -> Bool {
        guard let error = BrokerError(thrown: error) else { return false }
        return error.status >= 500 || error.status == 429
    }

    /// Handles an error of a room's call.
    /// - Returns: true if it may be done nevertheless.
    @discardableResult private func note(_ error: any Error, _ what: String, _ room: Int, _ run: NodeRun) -> Bool {
        count("\(what) refused")
        if isRetryable(error) { return true }
        let now = time.now
        let isThere = state.withLock { state in
            guard let room = state.rooms[room], room.isClosed == .no else { return false }
            let isWrong = [-1, run.machine.number].contains { now < state.wrongTimes[$0] ?? 0 }
            return now + (isWrong ? Self.clockSlackMs : Self.callSlackMs) < room.expires
        }
        // A room that must be there is there, for its members.
        if isThere { world.story.fail("\(what) in room \(room) at \(run.node.name): \(error)") }
        return false
    }

    /// The last bytes of all tokens, and of all subscriptions.
    static let endsOfTokens = [[UInt8](repeating: 7, count: 24), [UInt8](repeating: 8, count: 24)]

    /// About a third are subscriptions, if the process takes them.
    func newToken(_ run: NodeRun) -> [UInt8] {
        let number = state.withLock { state in
            state.count += 1
            return state.count
        }
        let isSubscription = run.takesSubscriptions && chance.upTo(3) == 0
        return [UInt8](bigEndian: UInt64(number)) + Self.endsOfTokens[isSubscription ? 1 : 0]
    }

    static func isSubscription(_ token: [UInt8]) -> Bool { token.last == 8 }

    func address(of token: [UInt8]) throws -> PushAddress {
        guard Self.isSubscription(token) else { return .test(try Secret(copying: token.span)) }
        return try world.webPush.address(token, at: .test(addressSize: .anyService, webPush: world.webPush))
    }

    /// - Parameters:
    ///   - seconds: the life of the room. Nil: some time.
    ///   - vigil: what happens in the room, in which nobody else acts then.
    func create(_ run: NodeRun, seconds: UInt64? = nil, vigil: (@Sendable (_ room: Int) -> Void)? = nil) {
        let (code, token) = (Array("code-\(facts.nextNumber())".utf8), newToken(run))
        let life = Int(seconds ?? world.pace.lifeSeconds(chance))
        call(run, nil, stores: true) { [self] broker in
            try await broker.rooms.create(
                CreateRoom(
                    joinid: code, lifeSeconds: life, codeLifeSeconds: life, client: Facts.creator,
                    address: try address(of: token)), from: Self.address)
        } done: { [self] result in
            switch result {
            case .failure(let error):
                count("create refused")
                if !isRetryable(error) { world.story.fail("create at \(run.node.name): \(error)") }
            case .success(let membership):
                count("create")
                let number = facts.nextNumber()
                facts.sealed(membership.ref)
                let now = time.now
                state.withLock { state in
                    var room = Room(number: number, id: membership.room, code: code, expires: membership.expires)
                    room.sides[0].token = token
                    room.sides[0].tokenSince = now
                    room.isVigil = vigil != nil
                    state.rooms[number] = room
                    state.owners[token] = (number, 0)
                }
                world.story.tell("room \(number) made at \(run.node.name), for \(life) s")
                vigil?(number)
                // A look shortly before the end. A node whose clock is ahead may show the room as over already.
                let left = membership.expires - min(membership.expires, now)
                time.after(left - min(left, Self.callSlackMs + 1_000 + chance.upTo(40_000))) { [self] in
                    let isFree = state.withLock { state in state.rooms[number].map { !$0.isBusy && $0.isClosed == .no } }
                    if isFree == true, let run = someRun() { status(number, run) }
                }
            }
        }
    }

    func accept(_ room: Int, _ run: NodeRun) {
        guard let (code, isAccepted) = state.withLock({ $0.rooms[room].map { ($0.code, $0.isAccepted) } }), isAccepted == .no
        else { return }
        let token = newToken(run)
        call(run, room, stores: true) { [self] broker in
            try await broker.rooms.accept(
                AcceptRoom(joinid: code, client: Facts.joiner, address: try address(of: token)),
                from: Self.address)
        } done: { [self] result in
            let now = time.now
            switch result {
            case .failure(let error):
                if note(error, "accept", room, run) {
                    change(room) { $0.isAccepted = .unknown }
                    change(room, 1) { $0.isTokenKnown = false }
                }
            case .success(let membership):
                count("accept")
                facts.sealed(membership.ref)
                state.withLock { $0.owners[token] = (room, 1) }
                change(room) { $0.isAccepted = .yes }
                change(room, 1) { ($0.token, $0.isTokenKnown, $0.tokenSince) = (token, true, now) }
                world.story.tell("room \(room) accepted at \(run.node.name)")
            }
        }
    }

    func caller(_ room: Int, _ slot: Int) -> Caller? {
        state.withLock { state in
            guard let room = state.rooms[room], slot == 0 || room.isAccepted == .yes else { return nil }
            return Caller(room: room.id, client: room.sides[slot].client, member: nil)
        }
    }

    func change(_ room: Int, _ body: (inout Room) -> Void) {
        state.withLock { state in
            if var found = state.rooms[room] {
                body(&found)
                state.rooms[room] = found
            }
        }
    }

    func change(_ room: Int, _ slot: Int, _ body: (inout Side) -> Void) { change(room) { body(&$0.sides[slot]) } }

    // MARK: Presence

    func arrive(_ room: Int, _ slot: Int, _ run: NodeRun) {
        guard let caller = caller(room, slot), let side = state.withLock({ $0.rooms[room]?.sides[slot] }), side.socket == nil,
            !side.isJoining, state.withLock({ $0.rooms[room]?.isBusy == false && !$0.isQuiet })
        else { return }
        let socket = run.sockets.open(side.phone)
        change(room, slot) { $0.isJoining = true }
        side.phone.isAwake = true
        call(run, room) { broker in
            try await broker.rooms.join(caller, socket: socket) { run.sockets.isOpen(socket) }
        } done: { [self] result in
            let now = time.now
            change(room, slot) { ($0.isJoining, $0.maybePresent) = (false, now) }
            switch result {
            case .failure(let error):
                run.sockets.end(socket, isDeliberate: false)
                note(error, "join", room, run)
            case .success(nil): run.sockets.end(socket, isDeliberate: false)
            case .success(let joined?):
                count("join")
                change(room, slot) { ($0.socket, $0.presentSince) = ((run, socket), now) }
                world.story.tell("room \(room) side \(slot) joined at \(run.node.name): \(joined.delivery.rawValue)")
                if joined.delivery == .queued { knocked(room, 1 - slot) }
                watch(room, slot, run, socket)
                watchVigil(room, slot, socket, since: now)
                if state.withLock({ $0.rooms[room]?.isVigil }) != true, let visit = world.pace.visit(chance) {
                    time.after(visit) { [self] in depart(room, slot, from: socket) }
                }
            }
        }
    }

    /// - Parameter number: the socket. Nil: that which the side has.
    func depart(_ room: Int, _ slot: Int, from number: UInt64? = nil, isDeliberate: Bool? = nil) {
        let now = time.now
        guard let socket = state.withLock({ $0.rooms[room]?.sides[slot].socket }), socket.number == number ?? socket.number else {
            return
        }
        state.withLock { $0.lose(room, slot, now) }
        socket.run.sockets.end(socket.number, isDeliberate: isDeliberate ?? (chance.upTo(2) == 0))
        world.story.tell("room \(room) side \(slot) left")
    }

    func suspend(_ room: Int, _ slot: Int) {
        let now = time.now
        change(room, slot) { [world] side in
            guard side.socket != nil, side.phone.isAwake else { return }
            side.phone.isAwake = false
            world.story.tell("room \(room) side \(slot) is suspended")
            (side.presentSince, side.maybePresent) = (nil, now)
        }
    }

    /// Only the phone knows that it is awake, so its app connects anew, as clients do.
    private func awake(_ room: Int, _ slot: Int) {
        guard let side = state.withLock({ $0.rooms[room]?.sides[slot] }), side.socket != nil, !side.phone.isAwake else { return }
        let now = time.now
        change(room, slot) { ($0.phone.isAwake, $0.maybePresent) = (true, now) }
        world.story.tell("room \(room) side \(slot) is awake again")
        time.after(chance.upTo(1_000)) { [self] in
            depart(room, slot)
            let runs = ready()
            if !runs.isEmpty { arrive(room, slot, chance.pick(runs)) }
        }
    }

    func report(_ room: Int, _ slot: Int, _ run: NodeRun, leaving: Bool? = nil) {
        guard let caller = caller(room, slot) else { return }
        let leaving = leaving ?? (chance.upTo(3) == 0)
        if leaving { change(room, slot) { $0.presentSince = nil } }
        call(run, room) { broker in
            try await broker.rooms.report(caller, leaving: leaving)
        } done: { [self] result in
            let now = time.now
            // A join may have been answered meanwhile, and either may have come first.
            change(room, slot) { if leaving { $0.presentSince = nil } else { $0.maybePresent = now } }
            switch result {
            case .failure(let error): note(error, "report", room, run)
            case .success(let delivery):
                count("report")
                world.story.tell(
                    "room \(room) side \(slot) reports at \(run.node.name), leaving \(leaving): \(delivery.rawValue)")
                if delivery == .queued { knocked(room, 1 - slot) }
                if !leaving { watchReport(room, slot, since: now) }
            }
        }
    }

    // MARK: Tokens

    private func replaceToken(_ room: Int, _ slot: Int, _ run: NodeRun) {
        guard let caller = caller(room, slot) else { return }
        let token = newToken(run)
        // From now on either may be in use.
        change(room, slot) { $0.isTokenKnown = false }
        state.withLock { $0.owners[token] = (room, slot) }
        call(run, room, stores: true) { [self] broker in
            try await broker.rooms.replaceToken(caller, with: try address(of: token))
        } done: { [self] result in
            let now = time.now
            switch result {
            case .failure(let error): note(error, "replace token", room, run)
            case .success(let replaced):
                count("replace token")
                facts.sealed(replaced.ref)
                change(room, slot) { ($0.token, $0.isTokenKnown, $0.tokenSince) = (token, true, now) }
            }
        }
    }

    private func withdrawToken(_ room: Int, _ slot: Int, _ run: NodeRun) {
        guard let caller = caller(room, slot) else { return }
        change(room, slot) { $0.isTokenKnown = false }
        call(run, room) { broker in
            try await broker.rooms.withdrawToken(caller)
        } done: { [self] result in
            let now = time.now
            switch result {
            case .failure(let error): note(error, "withdraw token", room, run)
            case .success:
                count("withdraw token")
                change(room, slot) { ($0.token, $0.isTokenKnown, $0.tokenSince) = (nil, true, now) }
            }
        }
    }

    func close(_ room: Int, _ run: NodeRun) {
        guard let (id, wasOpen) = state.withLock({ state in state.rooms[room].map { ($0.id, $0.isClosed == .no) } }) else {
            return
        }
        change(room) { $0.isClosed = .unknown }
        call(run, room) { broker in
            try await broker.rooms.close(id)
        } done: { [self] result in
            switch result {
            case .failure(let error):
                if isRetryable(error) { return }
                // Nobody else had closed it.
                if wasOpen { change(room) { $0.isClosed = .no } }
                note(error, "close", room, run)
                change(room) { $0.isClosed = .yes }
            case .success:
                count("close")
                let now = time.now
                change(room) { ($0.isClosed, $0.closedAt) = (.yes, now) }
                world.story.tell("room \(room) closed at \(run.node.name)")
            }
        }
    }

    // MARK: Checks

    /// A room must be as its callers know it.
    func status(_ room: Int, _ run: NodeRun) {
        guard let before = state.withLock({ $0.rooms[room] }) else { return }
        call(run, room) { broker in
            try await broker.rooms.status(before.id)
        } done: { [self] result in
            switch result {
            case .failure(let error): note(error, "status", room, run)
            case .success(let status):
                count("status")
                // An accept that got no answer is over by now, because a room has one call at a time. It may still come after a kill.
                if before.isAccepted == .yes, !status.accepted {
                    world.story.fail("room \(room) at \(run.node.name) is not accepted any more")
                }
                for (slot, hasToken) in [status.creatorHasToken, status.joinerHasToken].enumerated() {
                    let side = before.sides[slot]
                    guard side.isTokenKnown, slot == 0 || before.isAccepted == .yes else { continue }
                    guard state.withLock({ $0.rooms[room]?.sides[slot].isTokenKnown }) == true else { continue }
                    if (side.token != nil) != hasToken {
                        world.story.fail("room \(room) side \(slot) at \(run.node.name) has a token: \(hasToken)")
                    }
                }
            }
        }
    }

    /// A caller was told that a push is queued.
    private func knocked(_ room: Int, _ slot: Int) {
        count("knock")
        facts.queued()
        let now = time.now
        let side = state.withLock { $0.rooms[room]?.sides[slot] }
        guard let side, side.isTokenKnown, let token = side.token else { return }
        let knock = Knock(room: room, slot: slot, token: token, at: now)
        time.after(3_000) { [self] in
            guard isCalm(from: now - 40_000) else { return count("knock in a storm") }
            expectPush(knock, "in three seconds")
        }
        // The pushes of a node that is gone are another one's once its term is over.
        time.after(45_000) { [self] in
            if world.story.isServed(from: now - 40_000, to: time.now) { expectPush(knock, "in 45 seconds") }
        }
        time.after(Self.attemptsMs + 10_000) { [self] in if isCalm(from: now + 90_000) { expectPush(knock, "before its end") } }
    }

    func isCalm(from: UInt64) -> Bool { world.story.isCalm(from: from, to: time.now) }

    /// Apple must have seen this push, unless it was not wanted any more.
    private func expectPush(_ knock: Knock, _ when: String) {
        let isMissing = state.withLock { state in
            guard let room = state.rooms[knock.room], room.isClosed == .no, time.now + Self.clockSlackMs < room.expires else {
                return false
            }
            let side = room.sides[knock.slot]
            guard side.isTokenKnown, side.token == knock.token, !side.isJoining, side.presentSince == nil,
                side.maybePresent < knock.at
            else { return false }
            return state.seen[knock.token] ?? 0 < knock.at
        }
        if isMissing { world.story.fail("room \(knock.room) side \(knock.slot) was acknowledged a push and got none \(when)") }
    }

    /// A process has learned that a push is delivered. Unless it ends or hangs before it can write that down, the log must say so.
    func delivered(_ apnsID: String, by run: NodeRun) {
        let now = time.now
        let isNew = state.withLock { state in
            defer { state.delivered[apnsID] = now }
            return state.delivered[apnsID] == nil
        }
        if isNew { settle(run, stops: run.machine.stops) }
    }

    private func settle(_ run: NodeRun, stops: Int) {
        time.after(20_000) { [self] in
            if run.gate.isDead || run.machine.stops > stops { return }
            if isCalm(from: time.now - 20_000) { facts.delivered() } else { settle(run, stops: stops) }
        }
    }

    /// Checks, a minute after a side has arrived, that its absent peer got a push.
    private func watch(_ room: Int, _ slot: Int, _ run: NodeRun, _ socket: UInt64) {
        let start = time.now
        time.after(60_000) { [self] in
            guard isCalm(from: start - 60_000) else { return count("wait in a storm") }
            count("wait in calm")
            let isMissing = state.withLock { state in
                guard let room = state.rooms[room], room.isClosed == .no, time.now + Self.clockSlackMs < room.expires else {
                    return false
                }
                let (side, peer) = (room.sides[slot], room.sides[1 - slot])
                guard let own = side.socket, own.run === run, own.number == socket, let since = side.presentSince, since <= start,
                    peer.socket == nil, !peer.isJoining, peer.maybePresent + Self.reportMs < start, peer.isTokenKnown,
                    let token = peer.token, peer.tokenSince < start, slot == 1 || room.isAccepted == .yes
                else { return false }
                // The throttle lets one push through in half a minute.
                return state.seen[token] ?? 0 < start - 40_000
            }
            if isMissing { world.story.fail("room \(room) side \(slot) has waited for a minute, and its peer got no push") }
        }
    }

    /// A service has seen a push.
    func saw(_ sighting: SimulatedServices.Sighting, mayPurge: Bool) {
        count("push")
        let now = time.now
        let fault: String? = state.withLock { state in
            // Another attempt rings nobody earlier.
            let isRepeated = state.pushes[sighting.token]?[sighting.deadline] == sighting.apnsID
            if !isRepeated { state.seen[sighting.token] = now }
            guard let (number, slot) = state.owners[sighting.token], let room = state.rooms[number] else { return nil }
            if mayPurge { state.rooms[number]?.sides[slot].isTokenKnown = false }
            let known = state.pushes[sighting.token]?[sighting.deadline]
            state.pushes[sighting.token, default: [:]][sighting.deadline] = sighting.apnsID
            // Attempts end with the room, so two of its last pushes may have one end.
            if let known, known != sighting.apnsID, sighting.deadline < room.expires {
                return "a push to room \(number) side \(slot) has two ids: \(known) and \(sighting.apnsID)"
            }
            let isWrong = [-1, sighting.machine].contains { now < state.wrongTimes[$0] ?? 0 }
            if let end = sighting.keptUntil, end > room.expires + (isWrong ? Self.clockSlackMs : Self.callSlackMs) {
                return "a service may keep a message to room \(number) side \(slot) for longer than the room lives"
            }
            // The services' clocks are right. In calm times those of nodes and database are, too.
            if let end = sighting.keptUntil, end + 10_000 < now, !isRepeated, world.story.isCalm(from: now, to: now) {
                return "a message to room \(number) side \(slot) has ended \(now - end) ms before it is sent"
            }
            if now > room.expires + Self.clockSlackMs {
                return "room \(number) side \(slot) was pushed to after the end of its life"
            }
            if let closed = room.closedAt, closed + Self.newsMs < now, world.story.isCalm(from: now - 40_000, to: now) {
                return "room \(number) side \(slot) was pushed to \(now - closed) ms after its end was acknowledged"
            }
            // Nobody looks who is there between two attempts of a courier.
            if isRepeated { return nil }
            let side = room.sides[slot]
            guard let since = side.presentSince, since + Self.termMs < now, let socket = side.socket,
                socket.run.sockets.isOpen(socket.number)
            else { return nil }
            return world.story.isCalm(from: now - 40_000, to: now)
                ? "room \(number) side \(slot) was pushed to, although present for \(now - since) ms" : nil
        }
        let owner = state.withLock { $0.owners[sighting.token] }
        let left = Int64(sighting.deadline) - Int64(now)
        world.story.tell(
            "node-\(sighting.machine + 1) pushes to room \(owner?.room ?? -1) side \(owner?.slot ?? -1), \(left) ms before its end"
        )
        if let fault { world.story.fail(fault) }
    }

    private static let address = SocketAddress.v4(0xc633_6401, port: 9)
}

extension DeploymentLife.State {
    /// A side has no socket any more.
    mutating func lose(_ room: Int, _ slot: Int, _ now: UInt64) {
        guard rooms[room]?.sides[slot].socket != nil else { return }
        rooms[room]?.sides[slot].socket = nil
        rooms[room]?.sides[slot].presentSince = nil
        rooms[room]?.sides[slot].maybePresent = now
    }
}

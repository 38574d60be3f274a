import Broker
import Courier
import EventLoop
import Sealing
import Vocabulary

// Who is there, who waits, and which pushes must come or must not.
extension Life {
    /// How long a push may take that has nothing to wait for: five seconds of grace or two of a probe, and one for all else.
    private static let ringMs: UInt64 = 6_000
    /// How long a queued push is tried.
    static let jobMs: UInt64 = 125_000

    /// One of a room's people opens the app for a while.
    func visit(_ number: Int, _ slot: UInt8) {
        guard let meeting = meetings[number], slot == 1 || meeting.isAccepted, run != nil, !isEvening else { return }
        let stay = 3_000 + chance.upTo(chance.upTo(2) == 0 ? 20_000 : 300_000)
        if chance.upTo(4) == 0 { return report(number, slot, stay: stay) }
        // At most two sockets a side.
        guard meeting[slot].sockets.count < 2 else { return }
        let socket = UInt64(self.number())
        comes(number, slot)
        meetings[number]?[slot].sockets.append(Meeting.Socket(number: socket))
        let caller = meeting.caller(slot)
        ask("side \(slot) of room \(number) joins, socket \(socket)") { run in
            try await run.broker.rooms.join(caller, socket: socket, isOpen: { true })
        } _: { life, answer in
            guard case .done(let joined?) = answer else {
                if case .refused(.roomNotFound) = answer { return life.ended(number, meeting.ends, "a join") }
                if case .refused(let error) = answer {
                    life.chronicle.fail("a join in room \(number) was refused: \(error.code)")
                }
                return life.drop(socket, number, slot, isDeliberate: false)
            }
            guard let place = life.meetings[number]?[slot].sockets.firstIndex(where: { $0.number == socket }) else { return }
            life.meetings[number]?[slot].sockets[place].isJoined = true
            // The app may have been suspended meanwhile.
            if life.meetings[number]?[slot].sockets[place].isLiving == true {
                life.meetings[number]?[slot].sockets[place].since = life.machine.monotonic
                life.arrived(number, slot, joined.delivery)
            }
        }
        later(stay) { $0.endVisit(socket, number, slot) }
    }

    private func endVisit(_ socket: UInt64, _ number: Int, _ slot: UInt8) {
        guard let meeting = meetings[number], meeting[slot].sockets.contains(where: { $0.number == socket }) else { return }
        switch chance.upTo(6) {
        case 0, 1:
            drop(socket, number, slot, isDeliberate: true)
            // Somebody looks once more.
            if chance.upTo(3) == 0 { later(1_000 + chance.upTo(5_000)) { $0.visit(number, slot) } }
        case 2: drop(socket, number, slot, isDeliberate: false)
        default:
            // The phone suspends the app. Later the connection breaks, or the app goes on.
            suspend(number, slot)
            let isBroken = chance.upTo(3) > 0
            later(chance.upTo(chance.upTo(2) == 0 ? 20_000 : 1_800_000)) { life in
                if isBroken { life.drop(socket, number, slot, isDeliberate: false) } else { life.goOn(number, slot) }
            }
        }
    }

    private func suspend(_ number: Int, _ slot: UInt8) {
        chronicle.add("side \(slot) of room \(number) is suspended")
        for place in meetings[number]![slot].sockets.indices {
            meetings[number]![slot].sockets[place].isLiving = false
            meetings[number]![slot].sockets[place].since = nil
        }
        meetings[number]![slot].suspendedAt = machine.monotonic
        endWait(number, slot.peer)
    }

    /// A suspended app answers again, which nobody learns before the next ping.
    private func goOn(_ number: Int, _ slot: UInt8) {
        guard let meeting = meetings[number] else { return }
        chronicle.add("side \(slot) of room \(number) answers again")
        for place in meeting[slot].sockets.indices { meetings[number]![slot].sockets[place].isLiving = true }
        comes(number, slot)
        // It ends some time.
        for socket in meeting[slot].sockets {
            later(chance.upTo(120_000)) { $0.drop(socket.number, number, slot, isDeliberate: true) }
        }
    }

    func drop(_ socket: UInt64, _ number: Int, _ slot: UInt8, isDeliberate: Bool) {
        guard let side = meetings[number]?[slot], let ended = side.sockets.first(where: { $0.number == socket }), let run else {
            return
        }
        chronicle.add("side \(slot) of room \(number) \(isDeliberate ? "leaves" : "breaks"), socket \(socket)")
        meetings[number]?[slot].sockets.removeAll { $0.number == socket }
        let presence = run.broker.presence
        let since = side.presentSince ?? side.suspendedAt
        let now = machine.monotonic
        Task(executorPreference: loop) {
            await presence.leave(socket: socket, isDeliberate: isDeliberate)
            let wasSure = ended.isJoined && !ended.hasLeft
            await self.dropped(number, slot, isDeliberate: isDeliberate, wasSure: wasSure, since: since, now)
        }
    }

    private func dropped(_ number: Int, _ slot: UInt8, isDeliberate: Bool, wasSure: Bool, since: UInt64, _ now: UInt64) {
        guard let meeting = meetings[number] else { return }
        if meeting[slot].isSilent { endWait(number, slot.peer) }
        if isDeliberate { return endWait(number, slot) }
        // Whoever is present waits for the one whose connection broke.
        guard wasSure, meeting[slot].isSilent, let there = meeting[slot.peer].presentSince, there + 10_000 < now else { return }
        wait(number, slot, "its connection broke at \(now)", since: min(since, now))
    }

    private func report(_ number: Int, _ slot: UInt8, stay: UInt64) {
        guard let meeting = meetings[number], !meeting.isBusy else { return }
        let caller = meeting.caller(slot)
        comes(number, slot)
        meetings[number]?.isBusy = true
        let began = machine.monotonic
        ask("side \(slot) of room \(number) reports") { run in
            try await run.broker.rooms.report(caller, leaving: false)
        } _: {
            life, answer in
            life.meetings[number]?.isBusy = false
            switch answer {
            case .done(let delivery):
                life.meetings[number]?[slot].reportedUntil = began + 45_000
                life.arrived(number, slot, delivery, reportedAt: began)
            case .unknown: life.meetings[number]?[slot].reportedUntil = life.machine.monotonic + 45_000
            case .refused(.roomNotFound): life.ended(number, meeting.ends, "a report")
            case .refused(let error): life.chronicle.fail("a report in room \(number) was refused: \(error.code)")
            }
        }
        meetings[number]?[slot].reportedUntil = began + 47_000
        if chance.upTo(2) == 0 { later(min(stay, 40_000)) { $0.reportLeaving(number, slot) } }
    }

    private func reportLeaving(_ number: Int, _ slot: UInt8) {
        guard let meeting = meetings[number] else { return }
        let caller = meeting.caller(slot)
        endWait(number, slot.peer)
        for place in meeting[slot].sockets.indices {
            (meetings[number]![slot].sockets[place].since, meetings[number]![slot].sockets[place].hasLeft) = (nil, true)
        }
        ask("side \(slot) of room \(number) reports that it leaves") { run in
            try await run.broker.rooms.report(caller, leaving: true)
        } _: { life, answer in
            life.endWait(number, slot)
            life.endWait(number, slot.peer)
            switch answer {
            case .done: life.meetings[number]?[slot].reportedUntil = 0
            case .unknown: break
            case .refused(.roomNotFound): life.ended(number, meeting.ends, "a leave")
            case .refused(let error): life.chronicle.fail("a leave in room \(number) was refused: \(error.code)")
            }
        }
    }

    // MARK: Waiting

    /// A side's arrival was acknowledged. Its peer is rung if it is silent.
    /// - Parameter reportedAt: nil for a socket.
    private func arrived(_ number: Int, _ slot: UInt8, _ delivery: Delivery?, reportedAt: UInt64? = nil) {
        comes(number, slot)
        guard let meeting = meetings[number] else { return }
        chronicle.add("side \(slot) of room \(number) is there: \(delivery?.rawValue ?? "nothing")")
        let peer = meeting[slot.peer]
        if delivery == .queued { acknowledged(number, slot.peer) }
        if delivery == .noToken, meeting.isAccepted, meeting.isSure, peer.isTokenSure, let token = peer.token,
            tokens[token]?.goneAt == nil, brokerTime + 60_000 < meeting.ends, isCalm(60_000)
        {
            chronicle.fail("the answer is no_token, and side \(slot.peer) of room \(number) has token \(token)")
        }
        // A report alone is not believed for long enough if there is more to wait for than a grace.
        if reportedAt != nil, peer.reportedUntil > machine.monotonic || terms.slotMs > 0 || delivery == .throttled { return }
        wait(
            number, slot.peer, "side \(slot) has come, \(delivery?.rawValue ?? "no") delivery", since: machine.monotonic, delivery
        )
    }

    /// Somebody waits for a silent side, so it must be rung.
    private func wait(_ number: Int, _ slot: UInt8, _ why: String, since: UInt64, _ delivery: Delivery? = nil) {
        guard let meeting = meetings[number], meeting.isAccepted, meeting.isSure, isCalm(2_000) else { return }
        let side = meeting[slot]
        guard let token = side.token, side.isTokenSure, side.isSilent, tokens[token]?.goneAt == nil, isServed(token),
            !services.hasUnderWay(token),
            waits[token] == nil, brokerTime + 200_000 < meeting.expires
        else { return }
        let now = machine.monotonic
        // It may have been rung before the answer came.
        if let last = tokens[token]?.pushes.last?.at, last >= since { return }
        var deadline = max(now, side.reportedUntil) + Self.ringMs
        // A slot and a throttle are counted in broker time, which may go half as fast.
        deadline += 2 * terms.slotMs
        if now < startedAt + 40_000, meeting.run != runs { deadline = max(deadline, startedAt + 40_000 + Self.ringMs) }
        let last = max(tokens[token]?.pushes.last?.at ?? 0, side.knockedAt ?? 0)
        // A knock that nobody was told of may be the last one.
        if delivery == .throttled || !isCalm(2 * terms.throttleMs + 60_000)
            || last > 0 && last + 2 * terms.throttleMs + 2 * terms.slotMs > now
        {
            deadline += 2 * terms.throttleMs + 10_000
        }
        // A report of the side that waits may lapse before that.
        if meeting[slot.peer].presentSince == nil, deadline > now + 40_000 { return }
        waits[token] = Due(what: "room \(number), side \(slot): \(why)", deadline: deadline, isDurable: false)
        // Rules are looked at then.
        later(deadline - now + 1) { _ in }
    }

    /// A side is coming, so that it need not be rung any more.
    private func comes(_ number: Int, _ slot: UInt8) {
        guard let token = meetings[number]?[slot].token else { return }
        (waits[token], dues[token]) = (nil, nil)
    }

    func endWait(_ number: Int, _ slot: UInt8) {
        guard let token = meetings[number]?[slot].token else { return }
        waits[token] = nil
    }

    /// A caller was told that a push to this side is queued.
    private func acknowledged(_ number: Int, _ slot: UInt8) {
        guard let meeting = meetings[number], let token = meeting[slot].token, meeting[slot].isTokenSure else { return }
        let now = machine.monotonic
        meetings[number]?[slot].knockedAt = now
        // It may have left by now. A side that is there by any sign may make it needless.
        guard meeting[slot].isSilent, meeting[slot].reportedUntil < now, brokerTime + 300_000 < meeting.ends else { return }
        expectPush(token, "a knock at side \(slot) of room \(number) was acknowledged")
    }

    /// A push was acknowledged, and must come even if the broker is restarted.
    /// - Parameter ms: how long it is tried.
    func expectPush(_ token: Int, _ what: String, ms: UInt64 = Life.jobMs) {
        let now = machine.monotonic
        // Nobody can send to an app that is not configured any more.
        guard isServed(token) else { return }
        // It may have come before its answer.
        if let last = tokens[token]?.pushes.last?.at, last + 5_000 > now { return }
        dues[token, default: []].append(Due(what: what, deadline: now + ms + 2 * terms.slotMs, isDurable: true))
        later(ms + 2 * terms.slotMs + 1) { _ in }
    }

    // MARK: Push services

    /// A push comes to a service. Called by it.
    func pushed(_ number: Int, _ push: Push) {
        figures.pushes += 1
        let now = machine.monotonic
        guard let token = tokens[number] else { return chronicle.fail("a push to the unknown token \(number)") }
        chronicle.add("push to token \(number), \(push.apnsID.prefix(8))")
        if let gone = token.goneAt, gone < now, !token.hasLastPush || gone + 300_000 < now {
            chronicle.fail("a push to token \(number), which was destroyed \(now - gone) ms ago")
        }
        if let expires = token.expires, brokerTime > expires { chronicle.fail("a push to token \(number), which has expired") }
        if number > 0,
            token.app.map({ $0 != app }) == true
                || push.address.destination != .apns(AppID(bundleID: Self.apps[app]), .production)
        {
            chronicle.fail("a push to token \(number) for an app that is not configured or not its app")
        }
        if !token.pushes.contains(where: { $0.apnsID == push.apnsID }) { checkID(token, push, now) }
        if number > 0 { checkEnd(token, push) }
        // Nobody looks who is there between two attempts of a courier.
        let isRepeated = messages[push.apnsID]?.run == runs
        if case .side(let room, let slot) = token.holder, let meeting = meetings[room], meeting[slot].token == number, !isRepeated
        {
            if let since = meeting[slot].presentSince, since + 3_000 < now {
                chronicle.fail("a push to side \(slot) of room \(room), which has been there for \(now - since) ms")
            }
        }
        waits[number] = nil
        dues[number] = nil
    }

    /// A message comes to a Web Push service. Called by it.
    func received(_ number: Int, _ message: SimulatedWebPush.Message, _ reply: SimulatedWebPush.Reply) {
        figures.messages += 1
        pushed(number, message.push)
        chronicle.add("the service answers \(reply)")
        let next = WebPushAttempt(message, reply, run: runs, at: machine.monotonic)
        // In another run nobody knows whether the last answer was recorded.
        if let last = messages[message.push.apnsID], last.run == runs, let fault = last.fault(ofRepeat: next) {
            chronicle.fail("a message to token \(number) \(fault)")
        }
        messages[message.push.apnsID] = next
        let template = String(decoding: message.text, as: UTF8.self)
        if message.push.type == .background || message.push.type == .liveactivity || !template.contains(#""title":""#) {
            chronicle.fail("a message to token \(number) shows nothing: \(template)")
        }
        // While the store's threads set the clock, the end may be from before that.
        guard isCalm(1), let token = tokens[number] else { return }
        let most: UInt64 =
            switch (token.holder, message.push.type) {
            case (.side, _): 120
            case (.device, .voip): 30
            case (.device, _): 3_600
            }
        let left = token.expires.map { ($0 - min($0, brokerTime)) / 1_000 } ?? .max
        if message.ttlS > min(most, left) {
            chronicle.fail("a service may keep a message to token \(number) for \(message.ttlS) s; it ends in \(left) s")
        }
    }

    private func checkID(_ token: Token, _ push: Push, _ now: UInt64) {
        if case .side = token.holder, let last = token.pushes.last, last.at + 10_000 > now, wasFresh(last.at) {
            chronicle.fail("token \(token.number) was pushed to under two apns-ids within \(now - last.at) ms")
        }
        // Broker time, which the throttle counts, can run a quarter faster.
        if case .side = token.holder, let last = token.pushes.last, services.hasTaken(last.apnsID),
            isCalm(now - last.at + 60_000),
            now < last.at + terms.throttleMs / 2
        {
            chronicle.fail("token \(token.number) was pushed to \(now - last.at) ms after the push before")
        }
        if case .device = token.holder {
            let payload = String(decoding: push.payload, as: UTF8.self)
            // Each request and each call has a name of its own. Live Activities repeat theirs.
            if push.type == .voip || push.type == .alert && (payload.contains("requestId") || payload.contains("questionId")) {
                let key = "\(token.number) \(payload)"
                if let other = onlyIDs[key], other != push.apnsID {
                    chronicle.fail("one push to token \(token.number) has two apns-ids")
                }
                onlyIDs[key] = push.apnsID
            }
        }
        tokens[token.number]?.pushes.append((push.apnsID, now))
        if token.pushes.count > 20 { tokens[token.number]?.pushes.removeFirst() }
    }

    /// By the machine's clock Apple must not keep a push for longer than its policy says, or than its token lives, and must not drop it at once. The
    /// broker knows no other clock.
    private func checkEnd(_ token: Token, _ push: Push) {
        guard let endS = push.expirationS else { return chronicle.fail("a push to token \(token.number) has no end") }
        // While the store's threads set the clock, the end may be from before that.
        guard isCalm(1) else { return }
        let most: Int64 =
            switch (token.holder, push.type) {
            case (.side, _): 120_000
            case (.device, .voip): 30_000
            case (.device, _): 3_600_000
            }
        let left = Int64(clamping: endS) * 1_000 - Int64(machine.wall)
        let leftAtApple = left + clockError
        if left > most + 2_000 {
            chronicle.fail("Apple may keep a push to token \(token.number) for \(leftAtApple) ms, and \(most) are promised")
        }
        // The last attempts may come a little late.
        if left < -10_000 { chronicle.fail("a push to token \(token.number) has ended \(-left) ms before it is sent") }
        if let expires = token.expires, left + Int64(brokerTime) > Int64(expires) + 2_000 {
            chronicle.fail("Apple may keep a push to token \(token.number) for \(leftAtApple) ms, beyond the token's end")
        }
    }

    /// Returns true if neither a start nor a clock step delayed this push. Another may follow a delayed one closely.
    private func wasFresh(_ time: UInt64) -> Bool {
        (time < startedAt ? previousStart : startedAt) + 125_000 < time && steppedAt + 300_000 < time
    }
}

extension UInt8 {
    /// The other side of a room.
    fileprivate var peer: UInt8 { 3 - self }
}

// The edge.
extension Life: RoomSockets {
    func send(_ socket: UInt64, _ event: RoomEvent) async {
        guard let (number, slot) = side(of: socket) else { return }
        switch event {
        case .peerLeft(.queued?): acknowledged(number, slot.peer)
        case .roomClosed:
            guard let meeting = meetings[number] else { return }
            let isBusy = meeting.isBusy
            meetings[number]?[slot].sockets.removeAll { $0.number == socket }
            // A close may be under way.
            if !isBusy, meeting.isSure, max(brokerTime, highestTime) < meeting.ends {
                chronicle.fail("socket \(socket) was told that room \(number) is closed")
            }
        default: break
        }
    }

    func ping(_ socket: UInt64, _ number: UInt64) async {
        guard let (room, slot) = side(of: socket), let run,
            meetings[room]?[slot].sockets.first(where: { $0.number == socket })?.isLiving == true
        else { return }
        let presence = run.broker.presence
        loop.after(chance.upTo(2) == 0 ? 0 : chance.upTo(1_900)) {
            _ = Task(executorPreference: self.loop) { await self.pong(socket, number, presence) }
        }
    }

    /// An app that was suspended meanwhile does not answer.
    private func pong(_ socket: UInt64, _ number: UInt64, _ presence: Presence) async {
        guard let (room, slot) = side(of: socket),
            meetings[room]?[slot].sockets.first(where: { $0.number == socket })?.isLiving == true
        else { return }
        await presence.pong(socket: socket, number: number)
    }

    func close(_ socket: UInt64) async {
        if let (number, _) = side(of: socket) { chronicle.fail("socket \(socket) of room \(number) was closed") }
    }

    private func side(of socket: UInt64) -> (room: Int, slot: UInt8)? {
        for (number, meeting) in meetings {
            for slot: UInt8 in [1, 2] where meeting[slot].sockets.contains(where: { $0.number == socket }) {
                return (number, slot)
            }
        }
        return nil
    }
}

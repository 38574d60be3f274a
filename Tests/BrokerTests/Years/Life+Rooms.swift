import Broker
import Ledger
import Linux
import Policy
import Sealing
import Vocabulary

// Rooms, and the phones of their two sides.
extension Life {
    static let address = SocketAddress.v4(0xc633_6401, port: 9)
    /// All tokens of a life begin with these bytes, so that none can be overlooked in a file.
    static let mark: [UInt8] = [0xd3, 0x91, 0x7a, 0x0c, 0xe4, 0x58, 0xb6, 0x2f, 0x85, 0x1d, 0xc7, 0x3e]

    /// - Parameter number: negative for a subscription, in whose endpoint and `auth` these bytes are.
    static func bytes(ofToken number: Int) -> [UInt8] {
        mark + [UInt8](bigEndian: UInt64(bitPattern: Int64(number))) + [UInt8](repeating: 0x5a, count: 12)
    }

    static func number(of token: Secret) -> Int { token.withBytes { Int($0.bigEndian64(at: mark.count)) } }
    static func number(ofSubscription id: [UInt8]) -> Int { Int(Int64(bitPattern: id.span.bigEndian64(at: mark.count))) }

    static func secret(_ number: Int) -> Secret? { try? Secret(copying: bytes(ofToken: number).span) }

    /// The token's address at the app that is configured now, or that of its subscription.
    static func pushAddress(_ token: Int, _ run: SimulatedBroker.Run) throws -> PushAddress {
        if token < 0, let webPush = run.webPush { return try webPush.address(bytes(ofToken: token), at: run.broker.settings) }
        guard let secret = secret(token) else { throw BrokerError.shuttingDown }
        return try run.broker.settings.address(of: secret, .alert)
    }

    /// About a third of all tokens are subscriptions.
    func newToken(isAtApple: Bool = false, _ holder: (Int) -> Token.Holder) -> Int {
        let isSubscription = !isAtApple && takesSubscriptions && chance.upTo(3) == 0
        let number = isSubscription ? -number() : number()
        tokens[number] = Token(number: number, holder: holder(number))
        return number
    }

    /// True if pushes to this token can be sent: to any subscription, and to tokens of the app that is configured.
    func isServed(_ token: Int) -> Bool { token < 0 || tokens[token]?.app == app }

    /// A seal was acknowledged. The log must have it by the next midnight, and its purge by the midnight after its end.
    func sealed(_ number: Int, _ ref: Ref?, expires: UInt64) {
        guard let ref, tokens[number] != nil else { return chronicle.fail("token \(number) was sealed without a ref") }
        tokens[number]?.ref = ref
        tokens[number]?.expires = expires
        tokens[number]?.app = app
        (tokens[number]!.sealedAt, tokens[number]!.log, tokens[number]!.pushes) = (brokerTime, logs, [])
        let day = timing.daySeconds * 1_000
        let until = (expires / day + 1) * day
        // A batch may come two minutes and a window late. What is due is only looked at after ten calm minutes.
        let slack: UInt64 = 240_000
        follower.expect(ref.sealedID(untilMs: until), "seal of token \(number)", due: (brokerTime / day + 1) * day + slack)
        follower.expect(ref.purgeID(untilMs: until), "purge of token \(number)", due: until + slack)
    }

    /// The end of a token was acknowledged, or may have happened.
    func gone(_ number: Int?, isSure: Bool = true) {
        guard let number else { return }
        (dues[number], waits[number]) = (nil, nil)
        guard isSure, tokens[number]?.goneAt == nil else { return }
        tokens[number]?.goneAt = machine.monotonic
    }

    /// A service has called a token gone, so it may be purged from now on.
    func doubt(_ number: Int) {
        (dues[number], waits[number]) = (nil, nil)
        switch tokens[number]?.holder {
        case .side(let room, let slot)?: if meetings[room]?[slot].token == number { meetings[room]?[slot].isTokenSure = false }
        case .device(let device)?: devices[device]?.isSure = false
        case nil: break
        }
    }

    // MARK: Making and ending

    func makeRoom() {
        let number = number()
        let life = chance.life(from: machine.wall) * (chance.upTo(3) == 0 ? Int(1 + chance.upTo(60)) : 1)
        let seconds = min(life, 604_800)
        let codeSeconds = chance.upTo(3) == 0 ? min(seconds, Int(10 + chance.upTo(600))) : min(seconds, 86_400)
        let code = chance.upTo(3) == 0 ? String(100_000 + number % 900_000) : "code-\(number)"
        let token = chance.upTo(8) == 0 ? nil : newToken { _ in .side(room: number, slot: 1) }
        let client = Array("creator-\(number)".utf8)
        let sendsMember = chance.upTo(2) == 0
        ask("room \(number) for \(seconds) s, its code for \(codeSeconds) s") { run in
            try await run.broker.rooms.create(
                CreateRoom(
                    joinid: Array(code.utf8), lifeSeconds: seconds, codeLifeSeconds: codeSeconds, client: client,
                    address: try token.map { try Self.pushAddress($0, run) }), from: Self.address)
        } _: { life, answer in
            switch answer {
            case .done(let made):
                var meeting = Meeting(
                    number: number, id: made.room, code: Array(code.utf8), expires: made.expires,
                    codeExpires: made.joinExpires ?? made.expires, run: life.runs)
                meeting.creator.client = client
                (meeting.creator.member, meeting.creator.sendsMember) = (made.member, sendsMember)
                meeting.creator.token = token
                life.meetings[number] = meeting
                if let token { life.sealed(token, made.ref, expires: made.expires) }
                life.remember(made.room, made.member, expires: made.expires)
                life.go(on: number, seconds)
            case .unknown:
                let until = life.brokerTime + UInt64(seconds) * 1_000 + 5_000
                life.doubts.append((.room, until))
                if token != nil { life.doubts.append((.token, until)) }
            case .refused(let error): life.chronicle.fail("room \(number) was refused: \(error.code)")
            }
        }
    }

    /// From now on no file may have the capabilities of this room.
    func remember(_ room: RoomID, _ member: MemberSecret?, expires: UInt64) {
        let day = figuresDay + 9
        // The first bytes are those of the room's end, which rows have too.
        search.add(room.secret.withBytes { span in (9..<32).map { span[$0] } }, "a room id", until: day)
        if let member { search.add(member.secret.withBytes { span in (0..<32).map { span[$0] } }, "a member secret", until: day) }
    }

    var figuresDay: UInt64 { machine.monotonic / 86_400_000 }

    /// The plan of the two people in a new room.
    private func go(on number: Int, _ seconds: Int) {
        let length = UInt64(min(seconds, 86_400)) * 1_000
        later(chance.upTo(min(20_000, length))) { $0.visit(number, 1) }
        if chance.upTo(6) > 0 {
            later(500 + chance.upTo(min(90_000, length))) { life in life.accept(number) }
        }
        for _ in 0..<chance.upTo(5) {
            later(chance.upTo(length)) { $0.visit(number, UInt8(1 + $0.chance.upTo(2))) }
        }
        for _ in 0..<chance.upTo(4) { later(chance.upTo(length)) { $0.change(number) } }
        if chance.upTo(4) == 0 { later(chance.upTo(length)) { $0.close(number) } }
        later(length + chance.upTo(120_000)) { $0.look(number) }
    }

    func accept(_ number: Int) {
        guard let meeting = meetings[number], !meeting.isAccepted, !meeting.isBusy, meeting.isSure else { return }
        meetings[number]?.isBusy = true
        let token = chance.upTo(8) == 0 ? nil : newToken { _ in .side(room: number, slot: 2) }
        let client = Array("joiner-\(number)".utf8)
        let sendsMember = chance.upTo(2) == 0
        ask("accept room \(number)") { run in
            try await run.broker.rooms.accept(
                AcceptRoom(joinid: meeting.code, client: client, address: try token.map { try Self.pushAddress($0, run) }),
                from: Self.address)
        } _: { life, answer in
            life.meetings[number]?.isBusy = false
            switch answer {
            case .done(let made):
                life.meetings[number]?.acceptedAt = life.machine.monotonic
                life.meetings[number]?.joiner = Meeting.Side(
                    client: client, member: made.member, sendsMember: sendsMember, token: token)
                if let token { life.sealed(token, made.ref, expires: made.expires) }
                life.remember(made.room, made.member, expires: made.expires)
                life.later(life.chance.upTo(4_000)) { $0.visit(number, 2) }
            case .unknown:
                // The room may live longer than its code, and have another token.
                life.meetings[number]?.isSure = false
                life.doubts.append((.room, meeting.expires))
                if token != nil { life.doubts.append((.token, meeting.expires)) }
            case .refused(.roomNotFound): life.ended(number, meeting.codeExpires, "an accept")
            case .refused(let error): life.chronicle.fail("accept of room \(number) was refused: \(error.code)")
            }
        }
    }

    func close(_ number: Int) {
        guard let meeting = meetings[number], !meeting.isBusy else { return }
        meetings[number]?.isBusy = true
        ask("close room \(number)") { run in
            try await run.broker.rooms.close(meeting.id)
        } _: { life, answer in
            life.meetings[number]?.isBusy = false
            switch answer {
            case .done:
                for slot: UInt8 in [1, 2] { life.gone(life.meetings[number]?[slot].token) }
                life.meetings[number] = nil
            case .unknown:
                life.meetings[number]?.isSure = false
                for slot: UInt8 in [1, 2] { life.gone(life.meetings[number]?[slot].token, isSure: false) }
            case .refused(.roomNotFound): life.ended(number, meeting.ends, "a close")
            case .refused(let error): life.chronicle.fail("close of room \(number) was refused: \(error.code)")
            }
        }
    }

    /// The broker says that a room is not there any more.
    func ended(_ number: Int, _ ends: UInt64, _ what: String) {
        guard let meeting = meetings[number] else { return }
        if meeting.isSure, max(brokerTime, highestTime) < ends {
            chronicle.fail("\(what) did not find room \(number), which ends at \(ends)")
        }
        for slot: UInt8 in [1, 2] { gone(meeting[slot].token, isSure: false) }
        meetings[number] = nil
    }

    /// Reads a room's status, and compares it with what was acknowledged.
    func look(_ number: Int) {
        guard let meeting = meetings[number], !meeting.isBusy else { return }
        meetings[number]?.isBusy = true
        ask("look at room \(number)") { run in
            try await run.broker.rooms.status(meeting.id)
        } _: { life, answer in
            life.meetings[number]?.isBusy = false
            guard let now = life.meetings[number] else { return }
            switch answer {
            case .done(let status):
                if now.isSure, status.accepted != now.isAccepted || status.expires != now.expires {
                    life.chronicle.fail("room \(number) is not as it was acknowledged: \(status)")
                }
                if now.isSure, now.creator.isTokenSure, status.creatorHasToken != (now.creator.token != nil) {
                    life.chronicle.fail("room \(number): creatorHasToken is \(status.creatorHasToken)")
                }
                if now.isSure, now.joiner.isTokenSure, status.joinerHasToken != (now.joiner.token != nil) {
                    life.chronicle.fail("room \(number): joinerHasToken is \(status.joinerHasToken)")
                }
                let before = life.machine.monotonic - 3_000
                for (slot, isPresent) in [(1, status.creatorPresent), (2, status.joinerPresent)] as [(UInt8, Bool)] {
                    if let since = now[slot].presentSince, since < before, !isPresent {
                        life.chronicle.fail("room \(number): side \(slot) answers, and counts as absent")
                    }
                }
            case .unknown: break
            case .refused(.roomNotFound): life.ended(number, now.ends, "a look")
            case .refused(let error): life.chronicle.fail("a look at room \(number) was refused: \(error.code)")
            }
        }
    }

    // MARK: Tokens

    /// Replaces or withdraws a side's token.
    func change(_ number: Int) {
        guard let meeting = meetings[number], !meeting.isBusy else { return }
        let slot: UInt8 = meeting.isAccepted ? UInt8(1 + chance.upTo(2)) : 1
        meetings[number]?.isBusy = true
        let old = meeting[slot].token
        let caller = meeting.caller(slot)
        if chance.upTo(3) == 0 {
            ask("withdraw the token of room \(number), side \(slot)") { run in
                try await run.broker.rooms.withdrawToken(caller)
            } _: {
                life, answer in
                life.meetings[number]?.isBusy = false
                switch answer {
                case .done(let count):
                    if meeting[slot].isTokenSure, meeting.isSure, count != (old == nil ? 0 : 1) {
                        // Apple may have called it gone meanwhile.
                        if life.meetings[number]?[slot].isTokenSure == true {
                            life.chronicle.fail("\(count) tokens were withdrawn")
                        }
                    }
                    life.gone(old)
                    life.meetings[number]?[slot].token = nil
                    life.meetings[number]?[slot].isTokenSure = true
                case .unknown:
                    life.gone(old, isSure: false)
                    life.meetings[number]?[slot].isTokenSure = false
                case .refused(.roomNotFound): life.ended(number, meeting.ends, "a withdrawal")
                case .refused(let error): life.chronicle.fail("a withdrawal in room \(number) was refused: \(error.code)")
                }
            }
            return
        }
        let new = newToken { _ in .side(room: number, slot: slot) }
        ask("replace the token of room \(number), side \(slot), by \(new)") { run in
            try await run.broker.rooms.replaceToken(caller, with: try Self.pushAddress(new, run))
        } _: { life, answer in
            life.meetings[number]?.isBusy = false
            switch answer {
            case .done(let made):
                life.gone(old)
                life.meetings[number]?[slot].token = new
                life.meetings[number]?[slot].isTokenSure = true
                life.sealed(new, made.ref, expires: made.expires)
            case .unknown:
                life.gone(old, isSure: false)
                life.meetings[number]?[slot].isTokenSure = false
                life.doubts.append((.token, meeting.expires))
            case .refused(.roomNotFound): life.ended(number, meeting.ends, "a replacement")
            // Six in ten minutes are allowed, and three apps share a side's quota here at most.
            case .refused(let error): life.chronicle.fail("a replacement in room \(number) was refused: \(error.code)")
            }
        }
    }

    /// Somebody who knows the room id, but is no member, wants to speak for a side.
    func intrude(_ number: Int) {
        guard let meeting = meetings[number], !meeting.isBusy, meeting.isSure else { return }
        var caller = Caller(room: meeting.id, client: Array("intruder".utf8), member: nil)
        // The other side's secret, or none.
        if chance.upTo(2) == 0, meeting.isAccepted {
            caller = Caller(room: meeting.id, client: meeting.creator.client, member: meeting.joiner.member)
        }
        ask("somebody intrudes on room \(number)", isHonest: false) { [caller] run in
            try await run.broker.rooms.withdrawToken(caller)
        } _: { life, answer in
            switch answer {
            case .done: life.chronicle.fail("an intruder on room \(number) was let in")
            case .refused(.roomNotFound), .refused(.notAMember), .refused(.memberRequired), .unknown: break
            case .refused(let error): life.chronicle.fail("an intruder on room \(number) was refused with \(error.code)")
            }
        }
    }
}

import Broker
import Sealing
import Vocabulary

// Apps with accounts: a companion with approvals and Live Activities, a monitor, calls.
extension Life {
    private static let users = 3
    private static let everything: DevicePreferences = [.enabled, .start, .complete, .failed, .paused, .milestone]
    private static let backEnd = Principal(user: Array("back end".utf8), isBackEnd: true, expiresMs: .max)

    private static func name(_ user: Int) -> [UInt8] { Array("user-\(user)".utf8) }
    private static func principal(_ user: Int) -> Principal { Principal(user: name(user), isBackEnd: false, expiresMs: .max) }
    private static func session(_ user: Int) -> [UInt8] { Array("session-\(user)".utf8) }
    private static func printer(_ user: Int) -> [UInt8] { Array("printer-\(user)".utf8) }

    /// Something that a user, a phone or a back end does.
    func someApp() {
        let user = Int(chance.upTo(UInt64(Self.users)))
        guard run != nil, busyUsers.insert(user).inserted else { return }
        switch chance.upTo(22) {
        case ..<5: register(user)
        case 5: unregister(user)
        case ..<10: askApproval(user)
        case ..<14: event(user)
        case ..<17: print(user)
        case ..<19: claim(user)
        default: ring(user)
        }
    }

    private func sure(_ kind: Device.Kind, _ user: Int) -> [Device] {
        devices.values.filter { $0.kind == kind && $0.user == user && $0.isSure && brokerTime + 300_000 < $0.expires }
            .sorted { $0.token < $1.token }
    }

    /// A call for this user has ended.
    private func done<Value: Sendable>(_ user: Int, _ answer: Answer<Value>, _ what: String) -> Value? {
        busyUsers.remove(user)
        switch answer {
        case .done(let value): return value
        case .unknown: return nil
        case .refused(let error):
            chronicle.fail("\(what) was refused: \(error.code)")
            return nil
        }
    }

    // MARK: Registrations

    private func register(_ user: Int) {
        let kind = chance.pick(Device.Kind.allCases)
        let own = devices.values.filter { $0.kind == kind && $0.user == user }.sorted { $0.token < $1.token }
        // A device registers again now and then, and at most three of a kind are used.
        let again = own.count >= 3 || !own.isEmpty && chance.upTo(3) == 0 ? chance.pick(own).token : nil
        let token = again ?? newToken(isAtApple: kind == .activity) { .device($0) }
        ask("register the \(kind) of user \(user), token \(token)") { run in
            let principal = Self.principal(user)
            let address = try Self.pushAddress(token, run)
            switch kind {
            case .companion:
                return try await run.apps.companion!.registerDevice(principal, address: address)
            case .activity:
                return try await run.apps.companion!.registerActivity(
                    principal, address: address, activity: Array("activity-\(token)".utf8), session: Self.session(user),
                    previous: nil)
            case .monitor:
                let made = try await run.apps.monitor!.register(
                    principal, address: address, printer: Self.printer(user))
                _ = try await run.apps.monitor!.set(principal, device: made.id, adding: Self.everything, removing: [])
                return made
            case .phone:
                return try await run.apps.calls!.register(
                    principal, user: Self.name(user), address: address)
            }
        } _: { life, answer in
            let latest = life.brokerTime + 40 * 86_400_000
            guard let made = life.done(user, answer, "a registration") else {
                life.devices[token]?.isSure = false
                life.tokens[token]?.app = nil
                life.tokens[token]?.expires = latest
                return life.doubts.append((.registration, latest))
            }
            life.tokens[token]?.app = life.app
            life.devices[token] = Device(kind: kind, user: user, token: token, id: made.id, expires: made.expires)
            life.tokens[token]?.goneAt = nil
            life.tokens[token]?.hasLastPush = false
            // An unchanged one keeps its ref, and the log has it already.
            if life.tokens[token]?.ref != made.ref { life.sealed(token, made.ref, expires: made.expires) }
        }
    }

    private func unregister(_ user: Int) {
        let own = devices.values.filter { $0.user == user && $0.isSure }.sorted { $0.token < $1.token }
        guard !own.isEmpty else {
            busyUsers.remove(user)
            return
        }
        let device = chance.pick(own)
        ask("delete the \(device.kind) of user \(user), token \(device.token)") { run in
            switch device.kind {
            case .companion, .activity: _ = try await run.apps.companion!.delete(Self.principal(user), registration: device.id)
            case .monitor: try await run.apps.monitor!.delete(Self.principal(user), device: device.id)
            case .phone:
                _ = try await run.apps.calls!.delete(
                    Self.principal(user), user: Self.name(user), token: try Self.pushAddress(device.token, run).device)
            }
        } _: { life, answer in
            guard life.done(user, answer, "a deletion") != nil else {
                life.devices[device.token]?.isSure = false
                return life.gone(device.token, isSure: false)
            }
            life.devices[device.token] = nil
            life.gone(device.token)
        }
    }

    /// Devices that were acknowledged get a push.
    private func expect(_ devices: [Device], _ pushes: Int, _ what: String, ms: UInt64) {
        let left = devices.filter { self.devices[$0.token]?.isSure == true }
        if pushes < left.count { chronicle.fail("\(what) is pushed to \(pushes) of \(left.count) devices") }
        for device in left { expectPush(device.token, what, ms: ms) }
    }

    // MARK: Companion

    private func event(_ user: Int) {
        let event: CompanionEvent =
            switch chance.upTo(5) {
            case 0: .question
            case 1: .complete(success: chance.upTo(2) == 0)
            case 2: .state("processing")
            default: .progress(SessionProgress(completed: Int(chance.upTo(9)), total: 9))
            }
        let alerted = sure(.companion, user)
        let ending = devices.values.filter { $0.kind == .activity && $0.user == user }.map(\.token)
        ask("event \(event) for user \(user)") { run in
            try await run.apps.companion!.take(
                event, of: Self.name(user), session: Self.session(user), eventID: nil, from: Self.backEnd)
        } _: { life, answer in
            let receipt = life.done(user, answer, "an event")
            switch event {
            case .question: if let receipt { life.expect(alerted, receipt.pushes, "a question", ms: Self.jobMs) }
            case .complete:
                // The last push to each of the session's activities destroys its token.
                for token in ending {
                    life.devices[token]?.isSure = false
                    if receipt == nil { continue }
                    life.tokens[token]?.hasLastPush = true
                    life.devices[token] = nil
                    life.gone(token)
                }
                if let receipt { life.expect(alerted, receipt.pushes, "an end", ms: Self.jobMs) }
            default: break
            }
        }
    }

    /// A user goes on at another device. The one before gets a silent push, unless it is a browser.
    private func claim(_ user: Int) {
        let devices = sure(.companion, user)
        guard !devices.isEmpty else {
            busyUsers.remove(user)
            return
        }
        let token = chance.pick(devices).token
        ask("user \(user) goes on at token \(token)") { run in
            try await run.apps.companion!.claim(
                Self.principal(user), of: nil, session: Self.session(user), device: Array("client-\(token)".utf8), type: .ios,
                token: try Self.pushAddress(token, run).device, charging: nil)
        } _: { life, answer in
            _ = life.done(user, answer, "a claim")
        }
    }

    private func askApproval(_ user: Int) {
        let alerted = sure(.companion, user)
        let now = machine.monotonic
        ask("an approval of user \(user)") { run in
            try await run.apps.companion!.take(
                .approvalRequest, of: Self.name(user), session: Self.session(user), eventID: nil, from: Self.backEnd)
        } _: { life, answer in
            guard let receipt = life.done(user, answer, "a request"), let request = receipt.request, let due = receipt.expires
            else {
                return
            }
            life.approvals[request] = ApprovalStory(user: user, due: due, askedAt: now)
            life.expect(alerted, receipt.pushes, "an approval", ms: 60_000)
            switch life.chance.upTo(4) {
            case 0, 1: life.later(2_000 + life.chance.upTo(50_000)) { $0.answer(request, life.chance.upTo(2) == 0) }
            case 2: life.later(2_000 + life.chance.upTo(50_000)) { $0.withdraw(request) }
            default: break
            }
            life.later(75_000) { $0.lookAtApproval(request) }
            life.later(1_000) { $0.answerForAnother(request) }
        }
    }

    private func answer(_ request: RequestID, _ approved: Bool) {
        guard let story = approvals[request] else { return }
        endAlerts(story.user)
        ask("user \(story.user) answers an approval with \(approved)") { run in
            try await run.apps.companion!.respond(
                Self.principal(story.user), request: RequestName(id: request), approved: approved, excluding: nil)
        } _: { life, answer in
            switch answer {
            case .done(true):
                if life.approvals[request]?.answer != nil { life.chronicle.fail("an approval was answered twice") }
                life.approvals[request]?.answer = approved
                // The same answer again, as a second phone would give it.
                life.later(1_000) { $0.answerAgain(request, !approved) }
            case .done(false):
                if story.isSure, life.approvals[request]?.isTold == false, max(life.brokerTime, life.highestTime) < story.due {
                    life.chronicle.fail("an approval could not be answered before its end")
                }
            case .unknown: life.approvals[request]?.isSure = false
            case .refused(let error): life.chronicle.fail("an answer was refused: \(error.code)")
            }
        }
    }

    /// Another user knows the request's id.
    private func answerForAnother(_ request: RequestID) {
        guard let story = approvals[request] else { return }
        ask("another user answers an approval of user \(story.user)") { run in
            try await run.apps.companion!.respond(
                Self.principal((story.user + 1) % Self.users), request: RequestName(id: request), approved: true, excluding: nil)
        } _: { life, answer in
            if case .done(true) = answer { life.chronicle.fail("another user has answered an approval") }
        }
    }

    private func answerAgain(_ request: RequestID, _ approved: Bool) {
        guard let story = approvals[request] else { return }
        ask("a second answer to an approval of user \(story.user)") { run in
            try await run.apps.companion!.respond(
                Self.principal(story.user), request: RequestName(id: request), approved: approved, excluding: nil)
        } _: { life, answer in
            if case .done(true) = answer { life.chronicle.fail("an approval was answered twice") }
        }
    }

    private func withdraw(_ request: RequestID) {
        guard let story = approvals[request] else { return }
        endAlerts(story.user)
        approvals[request]?.isSure = false
        ask("an approval of user \(story.user) is withdrawn") { run in
            try await run.apps.companion!.clearApproval(Self.backEnd, request: RequestName(id: request), excluding: nil)
        } _: { life, answer in
            if case .refused(let error) = answer { life.chronicle.fail("a withdrawal was refused: \(error.code)") }
        }
    }

    /// A push that asks for an approval need not come once it has ended.
    private func endAlerts(_ user: Int) {
        for device in devices.values where device.kind == .companion && device.user == user { dues[device.token] = nil }
    }

    /// An approval ends when it is due, whatever happens to the broker.
    private func lookAtApproval(_ request: RequestID) {
        guard let story = approvals[request] else { return }
        guard brokerTime > story.due + 10_000, isCalm(30_000) else { return later(60_000) { $0.lookAtApproval(request) } }
        endAlerts(story.user)
        ask("look at an approval of user \(story.user)") { run in
            try await run.apps.companion!.approval(Self.backEnd, request: RequestName(id: request))
        } _: { life, answer in
            guard let story = life.approvals.removeValue(forKey: request), case .done(let found) = answer else { return }
            guard let found else {
                if story.due + 500_000 > max(life.brokerTime, life.highestTime) {
                    life.chronicle.fail("an approval was forgotten early")
                }
                return
            }
            switch (found.state, story.answer) {
            case (.pending, _): life.chronicle.fail("an approval is pending after its end")
            case (.approved, true), (.denied, false): break
            // Nobody has answered, so far as is known.
            case (.approved, nil), (.denied, nil):
                if story.isSure { life.chronicle.fail("an approval that nobody answered is \(found.state)") }
            case (_, nil): break
            default: life.chronicle.fail("an approval was answered with \(story.answer!), and is \(found.state)")
            }
            if found.state == .timedOut, !story.isTold, life.startedAt < story.askedAt,
                life.isCalm(life.machine.monotonic - story.askedAt)
            {
                life.chronicle.fail("nobody was told that an approval timed out")
            }
        }
    }

    // MARK: Monitor and calls

    private func print(_ user: Int) {
        let event: PrinterEvent =
            switch chance.upTo(3) {
            case 0: .status(from: .idle, to: .running)
            case 1: .status(from: .running, to: .complete)
            default: .progress(Int(chance.upTo(101)))
            }
        let watching = sure(.monitor, user)
        ask("printer \(user): \(event)") { run in
            try await run.apps.monitor!.take(event, of: Self.printer(user), eventID: nil, from: Self.backEnd)
        } _: { life, answer in
            if let (news, receipt) = life.done(user, answer, "a printer's event"), news != nil {
                life.expect(watching, receipt.pushes, "a printer's news", ms: Self.jobMs)
            }
        }
    }

    private func ring(_ user: Int) {
        let phones = sure(.phone, user)
        let call = CallInvitation(
            session: Array("call-\(number())".utf8), caller: Self.name((user + 1) % Self.users), receiver: Self.name(user),
            media: .audio)
        ask("a call to user \(user)") { run in
            try await run.apps.calls!.ring(call)
        } _: { life, answer in
            if let receipt = life.done(user, answer, "a call") { life.expect(phones, receipt.rang, "a call", ms: 30_000) }
        }
    }
}

extension Life: CompanionSockets {
    func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
        if receiver.isBackEnd { return }
        if case .approvalRequest = message { return }
        if let request = message.end { approvals[request]?.isTold = true }
    }
}

extension CompanionMessage {
    /// The approval that has ended.
    fileprivate var end: RequestID? {
        switch self {
        case .approvalResponse(let request, _, _), .approvalTimeout(let request, _), .approvalWithdrawn(let request, _): request
        case .approvalRequest, .progress, .state: nil
        }
    }
}

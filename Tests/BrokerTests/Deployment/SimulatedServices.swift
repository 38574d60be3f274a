import Courier
import EventLoop
import Sealing
import Synchronization
import Vocabulary

/// Apple's push service and those of Web Push, as all nodes see them. They note each attempt.
final class SimulatedServices: Sendable {
    struct Sighting: Sendable {
        let apnsID: String
        let token: [UInt8]
        /// The end of the broker's attempts, unix ms. It tells two pushes to one token apart, except the last ones of a room.
        let deadline: UInt64
        /// True time, unix ms.
        let at: UInt64
        let machine: Int
        /// Until when its service may keep it, in true time, unix ms. Nil if it must not keep it at all.
        let keptUntil: UInt64?
    }

    private struct State {
        var isAway = false
        /// The times to an answer, ms.
        var slowness: ClosedRange<UInt64> = 5...300
        /// Of 100 new tokens, how many belong to apps that are gone.
        var gone: UInt64 = 0
        var isGone: [[UInt8]: Bool] = [:]
        var missing = MissingSubscriptions()
        /// The pushes that a service has taken.
        var accepted: Set<String> = []
    }

    private let time: SimulatedTime
    private let chance: Chance
    private let state = Mutex(State())
    private let seen = Mutex<@Sendable (Sighting, _ mayPurge: Bool) -> Void> { _, _ in }
    private let messages = Mutex<[String: WebPushAttempt]>([:])
    private let story: Story
    private let answered = Mutex<@Sendable (_ apnsID: String, NodeRun) -> Void> { _, _ in }

    init(_ time: SimulatedTime, _ chance: Chance, _ story: Story) {
        (self.time, self.chance, self.story) = (time, chance, story)
    }

    /// How many pushes the services have taken.
    var accepted: Int { state.withLock(\.accepted.count) }

    /// Calls `action` at each attempt that reaches a service.
    func whenSeen(_ action: @escaping @Sendable (Sighting, _ mayPurge: Bool) -> Void) { seen.withLock { $0 = action } }

    /// Calls `action` at each answer that a process gets which says that a push is delivered.
    func whenAnswered(_ action: @escaping @Sendable (_ apnsID: String, NodeRun) -> Void) { answered.withLock { $0 = action } }
    func tell(_ apnsID: String, to run: NodeRun) { answered.withLock(\.self)(apnsID, run) }

    func set(isAway: Bool) { state.withLock { $0.isAway = isAway } }
    func set(slowness: ClosedRange<UInt64>) { state.withLock { $0.slowness = slowness } }
    func set(gone: UInt64) { state.withLock { $0.gone = gone } }

    /// - Returns: nil if Apple can't be reached.
    fileprivate func take(_ push: Push, from machine: Int) -> (afterMs: UInt64, Outcome)? {
        let token = push.address.token.withBytes { bytes in bytes.indices.map { bytes[$0] } }
        let (isAway, slowness) = state.withLock { ($0.isAway, $0.slowness) }
        if isAway { return nil }
        let isGone = isGone(token)
        // Gone before it was sealed: it has come back since.
        let isOld = isGone && chance.upTo(4) == 0
        note(
            push, token, machine, mayPurge: isGone && !isOld, isTaken: !isGone, keptUntil: push.expirationS.map { $0 * 1_000 })
        let moment = isOld ? 1 : time.now + 600_000
        return (
            slowness.lowerBound + chance.upTo(UInt64(slowness.count)),
            isGone ? .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: moment)) : .delivered
        )
    }

    /// Returns the answer of a Web Push service.
    func take(_ message: SimulatedWebPush.Message) -> (afterMs: UInt64, SimulatedWebPush.Reply) {
        let (isAway, slowness) = state.withLock { ($0.isAway, $0.slowness) }
        if isAway { return (1_000, .lost) }
        let reply: SimulatedWebPush.Reply =
            switch chance.upTo(20) {
            case _ where isGone(message.id): .status(410)
            case 0: .status(503)
            case 1: .status(429, fields: "retry-after: \(1 + chance.upTo(20))\r\n")
            case 2: .lost
            case 3: .status(404)
            case 4: .status(chance.pick([302, 403, 413]))
            default: .status(201)
            }
        let mayPurge = state.withLock { $0.missing.mayPurge(message, after: reply, now: time.now) }
        note(
            message.push, message.id, message.process, mayPurge: mayPurge, isTaken: reply.isTaken,
            keptUntil: time.now + message.ttlS * 1_000)
        let next = WebPushAttempt(message, reply, run: 0, at: time.now)
        let last = messages.withLock { messages in
            defer { messages[message.push.apnsID] = next }
            return messages[message.push.apnsID]
        }
        // After a fault another process may send the message again, without knowing the last answer.
        if let last, let fault = last.fault(ofRepeat: next), story.isCalm(from: last.at - 40_000, to: time.now) {
            story.fail("a message \(fault)")
        }
        return (5 + chance.upTo(min(slowness.upperBound, 9_000)), reply)
    }

    private func isGone(_ token: [UInt8]) -> Bool {
        state.withLock { state in
            let isGone = state.isGone[token] ?? (chance.upTo(100) < state.gone)
            state.isGone[token] = isGone
            return isGone
        }
    }

    private func note(
        _ push: Push, _ token: [UInt8], _ machine: Int, mayPurge: Bool, isTaken: Bool, keptUntil: UInt64?
    ) {
        if isTaken { state.withLock { _ = $0.accepted.insert(push.apnsID) } }
        let sighting = Sighting(
            apnsID: push.apnsID, token: token, deadline: push.deadlineMs, at: time.now, machine: machine,
            keptUntil: keptUntil)
        seen.withLock(\.self)(sighting, mayPurge)
    }
}

/// Takes the pushes of one process to their services. It tries again while Apple is away, as the courier does.
final class SimulatedCourier: PushSender {
    private let loop: EventLoop
    private let services: SimulatedServices
    private let webPush: SimulatedWebPush.Process
    private let machine: Int
    private let brokerTime: @Sendable () -> UInt64
    private let delivered: @Sendable (_ apnsID: String) -> Void
    private let isStopped = Flag()

    private static let pauseMs: UInt64 = 1_000

    /// - Parameter delivered: called when the process learns that a push is delivered.
    init(
        _ loop: EventLoop, _ services: SimulatedServices, _ webPush: SimulatedWebPush.Process, _ machine: Int,
        brokerTime: @escaping @Sendable () -> UInt64,
        delivered: @escaping @Sendable (_ apnsID: String) -> Void
    ) {
        (self.loop, self.services, self.webPush, self.machine) = (loop, services, webPush, machine)
        (self.brokerTime, self.delivered) = (brokerTime, delivered)
    }

    func send(_ push: Push) async -> Outcome {
        if case .webPush = push.address.destination { return await sendMessage(push) }
        while !isStopped.isSet {
            if !push.isWanted() { return .failed(status: 0, reason: .revoked, verdict: .keep) }
            if brokerTime() >= push.deadlineMs { return .failed(status: 0, reason: .late, verdict: .keep) }
            guard let (wait, outcome) = services.take(push, from: machine) else {
                try? await loop.sleep(Self.pauseMs)
                continue
            }
            try? await loop.sleep(wait)
            if isStopped.isSet { break }
            if outcome == .delivered { delivered(push.apnsID) }
            return outcome
        }
        return .failed(status: 0, reason: .stopped, verdict: .keep)
    }

    private func sendMessage(_ push: Push) async -> Outcome {
        var attempts = SimulatedWebPush.Process.Attempts(push: push)
        while !isStopped.isSet {
            if !push.isWanted() { return .failed(status: 0, reason: .revoked, verdict: .keep) }
            if brokerTime() >= push.deadlineMs { return attempts.late }
            let (wait, next) = await webPush.attempt(&attempts)
            try? await loop.sleep(wait)
            if isStopped.isSet { break }
            switch next {
            case .again(let delay): try? await loop.sleep(delay)
            case .end(let outcome):
                if outcome == .delivered { delivered(push.apnsID) }
                return outcome
            }
        }
        return .failed(status: 0, reason: .stopped, verdict: .keep)
    }

    func stop() { isStopped.set(true) }
}

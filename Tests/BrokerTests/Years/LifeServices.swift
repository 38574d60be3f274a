import Courier
import HTTP1
import Sealing
import Synchronization
import Vocabulary

/// The push services of a life, Apple and Web Push, in one of several moods.
final class LifeServices: Sendable {
    enum Mood: CaseIterable {
        case fine, slow, away, refusesKey
        /// Calls tokens gone, long after the push came.
        case late410
    }

    private struct State {
        var life: Life?
        var mood = Mood.fine
        /// Until when a push to each token may be under way, on the monotonic clock.
        var underWay: [Int: UInt64] = [:]
        /// The pushes since the last settled night that a service accepts, unless their deadline comes first.
        var accepted: Set<String> = []
        /// The pushes that it accepts at once, and when, on the monotonic clock.
        var acceptedAtOnce: [String: UInt64] = [:]
        var missing = MissingSubscriptions()
    }

    private let chance: Chance
    private let machine: MachineClock
    private let state = Mutex(State())

    init(seed: UInt64, _ machine: MachineClock) { (chance, self.machine) = (Chance(seed: seed), machine) }

    func serve(_ life: Life?) { state.withLock { $0.life = life } }
    func end() { state.withLock { $0.mood = .fine } }

    var mood: Mood {
        get { state.withLock { $0.mood } }
        set { state.withLock { $0.mood = newValue } }
    }

    /// True while a push to this token may be tried again, or has no answer.
    func hasUnderWay(_ token: Int) -> Bool { state.withLock { $0.underWay[token, default: 0] > machine.monotonic } }

    /// True if a service accepted this push at once since the last settled night.
    func hasTaken(_ apnsID: String) -> Bool { state.withLock { $0.acceptedAtOnce[apnsID] != nil } }

    /// The broker may not have learned how the pushes of the last `ms` ended.
    func doubt(last ms: UInt64) {
        state.withLock { state in
            let since = machine.monotonic - min(ms, machine.monotonic)
            state.acceptedAtOnce = state.acceptedAtOnce.filter { $0.value < since }
        }
    }

    /// How many pushes since the last settled night the log must have as delivered, at least and at most.
    var delivered: ClosedRange<Int> { state.withLock { $0.acceptedAtOnce.count...$0.accepted.count } }

    /// Counts anew: all pushes so far are in the log.
    func settle() { state.withLock { ($0.accepted, $0.acceptedAtOnce) = ([], [:]) } }

    /// Returns how a push to Apple ends. Called on the life's loop.
    func take(_ push: Push) -> (afterMs: UInt64, Outcome) {
        let token = Life.number(of: push.address.token)
        let (life, mood) = state.withLock { ($0.life, $0.mood) }
        life?.assumeIsolated { $0.pushed(token, push) }
        let (wait, outcome) = answer(mood)
        if case .failed(_, _, .purge(let moment)) = outcome, moment != 1 { life?.assumeIsolated { $0.doubt(token) } }
        note(push, token, busyForMs: wait, isTaken: outcome == .delivered, isAtOnce: wait < 1_000)
        return (wait, outcome)
    }

    /// Returns the answer of a Web Push service. Called on the life's loop.
    func take(_ message: SimulatedWebPush.Message) -> (afterMs: UInt64, SimulatedWebPush.Reply) {
        let token = Life.number(ofSubscription: message.id)
        let (life, mood) = state.withLock { ($0.life, $0.mood) }
        let (wait, reply) = answer(message, mood)
        life?.assumeIsolated { $0.received(token, message, reply) }
        let mayPurge = state.withLock { $0.missing.mayPurge(message, after: reply, now: machine.monotonic) }
        if mayPurge { life?.assumeIsolated { $0.doubt(token) } }
        // No wait between two attempts is longer than a minute.
        note(
            message.push, token, busyForMs: wait + (reply.isRetryable ? 61_000 : 0), isTaken: reply.isTaken,
            isAtOnce: reply.isTaken && wait < 1_000)
        return (wait, reply)
    }

    private func note(_ push: Push, _ token: Int, busyForMs busy: UInt64, isTaken: Bool, isAtOnce: Bool) {
        let left = state.withLock(\.life)?.assumeIsolated { Int64(push.deadlineMs) - Int64($0.brokerTime) } ?? 0
        state.withLock { state in
            let now = machine.monotonic
            if state.underWay.count > 100 { state.underWay = state.underWay.filter { $0.value > now } }
            // The outcome is recorded a little later.
            state.underWay[token] = now + busy + 1_000
            if isTaken { state.accepted.insert(push.apnsID) }
            // Otherwise its deadline may come first.
            state.acceptedAtOnce[push.apnsID] = isTaken && isAtOnce && left > 3_000 ? now : nil
        }
    }

    private func answer(
        _ message: SimulatedWebPush.Message, _ mood: Mood
    ) -> (afterMs: UInt64, SimulatedWebPush.Reply) {
        switch mood {
        case .slow where chance.upTo(3) > 0: return (1_000 + chance.upTo(8_000), .status(201))
        case .away: return (5_000 + chance.upTo(5_000), .lost)
        case .refusesKey: return (300, .status(403))
        case .late410 where chance.upTo(2) == 0: return (chance.upTo(9_000), .status(410))
        case .fine, .slow, .late410: break
        }
        // A user who has left stays away.
        if state.withLock({ $0.missing.has(message) }), chance.upTo(3) > 0 { return (200, .status(404)) }
        let reply: SimulatedWebPush.Reply =
            switch chance.upTo(40) {
            case 0: .status(410)
            case 1, 2: .status(404)
            case 3: .status(429, fields: "retry-after: \(1 + chance.upTo(60))\r\n")
            case 4: .status(406, fields: "retry-after: \(HTTPDate.text(machine.wall / 1_000 + chance.upTo(30)))\r\n")
            case 5: .status(503)
            case 6: .lost
            case 7: .status(chance.pick([400, 413, 302]))
            case 8: .status(403)
            case 9: .status(201, fields: "x-wns-status: dropped\r\n")
            default: .status(201)
            }
        return (20 + chance.upTo(500), reply)
    }

    private func answer(_ mood: Mood) -> (UInt64, Outcome) {
        let gone = Outcome.failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: machine.wall))
        switch mood {
        case .slow where chance.upTo(3) > 0: return (1_000 + chance.upTo(110_000), .delivered)
        case .away: return (119_500, .failed(status: 0, reason: .unreachable, verdict: .keep))
        case .refusesKey: return (300, .failed(status: 403, reason: .invalidProviderToken, verdict: .configuration))
        case .late410 where chance.upTo(2) == 0:
            return (
                30_000 + chance.upTo(80_000),
                .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: machine.wall - chance.upTo(100_000)))
            )
        case .fine, .slow, .late410: break
        }
        switch chance.upTo(40) {
        case 0: return (200, gone)
        // A moment before any token was sealed.
        case 1: return (200, .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: 1)))
        case 2: return (200, .failed(status: 400, reason: .badDeviceToken, verdict: .purge(ifSealedBefore: nil)))
        case 3: return (2_000, .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
        default: return (20 + chance.upTo(500), .delivered)
        }
    }
}

import Courier
import Sealing
import Synchronization
import Vocabulary

/// Apple in a life, in one of several moods.
final class LifeApple: Sendable {
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
        /// The pushes that Apple accepts, unless their deadline comes first.
        var accepted: Set<String> = []
        /// The pushes that it accepts at once, and when, on the monotonic clock.
        var acceptedAtOnce: [String: UInt64] = [:]
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

    /// True while Apple has not answered a push to this token.
    func hasUnderWay(_ token: Int) -> Bool { state.withLock { $0.underWay[token, default: 0] > machine.monotonic } }

    /// The broker may not have learned how the pushes of the last `ms` ended.
    func doubt(last ms: UInt64) {
        state.withLock { state in
            let since = machine.monotonic - min(ms, machine.monotonic)
            state.acceptedAtOnce = state.acceptedAtOnce.filter { $0.value < since }
        }
    }

    /// How many pushes the log must have as delivered, at least and at most.
    var delivered: ClosedRange<Int> { state.withLock { $0.acceptedAtOnce.count...$0.accepted.count } }

    /// Returns how a push ends. Called on the life's loop.
    func take(_ push: Push) -> (afterMs: UInt64, Outcome) {
        let token = Life.number(of: push.address.token)
        let (life, mood) = state.withLock { ($0.life, $0.mood) }
        life?.assumeIsolated { $0.pushed(token, push) }
        let left = life?.assumeIsolated { Int64(push.deadlineMs) - Int64($0.brokerTime) } ?? 0
        let (wait, outcome) = answer(mood)
        if case .failed(_, _, .purge(let moment)) = outcome, moment != 1 { life?.assumeIsolated { $0.doubt(token) } }
        state.withLock { state in
            let now = machine.monotonic
            if state.underWay.count > 100 { state.underWay = state.underWay.filter { $0.value > now } }
            // The outcome is recorded a little later.
            state.underWay[token] = now + wait + 1_000
            if outcome == .delivered { state.accepted.insert(push.apnsID) }
            // Otherwise its deadline may come first.
            let isAtOnce = outcome == .delivered && wait < 1_000 && left > 3_000
            state.acceptedAtOnce[push.apnsID] = isAtOnce ? now : nil
        }
        return (wait, outcome)
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

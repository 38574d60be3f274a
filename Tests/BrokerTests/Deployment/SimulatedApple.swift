import Courier
import EventLoop
import Sealing
import Synchronization
import Vocabulary

/// Apple's push service as all nodes see it. It notes each attempt.
final class SimulatedApple: Sendable {
    struct Sighting: Sendable {
        let apnsID: String
        let token: [UInt8]
        /// The end of the broker's attempts, unix ms. It tells two pushes to one token apart, except the last ones of a room.
        let deadline: UInt64
        /// True time, unix ms.
        let at: UInt64
        let machine: Int
    }

    private struct State {
        var isAway = false
        /// The longest time to an answer, ms.
        var slowness: UInt64 = 300
        /// Of 100 new tokens, how many belong to apps that are gone.
        var gone: UInt64 = 0
        var isGone: [[UInt8]: Bool] = [:]
    }

    private let time: SimulatedTime
    private let chance: Chance
    private let state = Mutex(State())
    private let seen = Mutex<@Sendable (Sighting, _ isRefused: Bool) -> Void> { _, _ in }
    private let answered = Mutex<@Sendable (_ apnsID: String, NodeRun) -> Void> { _, _ in }

    init(_ time: SimulatedTime, _ chance: Chance) { (self.time, self.chance) = (time, chance) }

    /// Calls `action` at each attempt that reaches Apple.
    func whenSeen(_ action: @escaping @Sendable (Sighting, _ isRefused: Bool) -> Void) { seen.withLock { $0 = action } }

    /// Calls `action` at each answer that a process gets which says that a push is delivered.
    func whenAnswered(_ action: @escaping @Sendable (_ apnsID: String, NodeRun) -> Void) { answered.withLock { $0 = action } }
    func tell(_ apnsID: String, to run: NodeRun) { answered.withLock(\.self)(apnsID, run) }

    func set(isAway: Bool) { state.withLock { $0.isAway = isAway } }
    func set(slowness: UInt64) { state.withLock { $0.slowness = slowness } }
    func set(gone: UInt64) { state.withLock { $0.gone = gone } }

    /// - Returns: nil if Apple can't be reached.
    fileprivate func take(_ push: Push, from machine: Int) -> (afterMs: UInt64, Outcome)? {
        let token = push.address.token.withBytes { bytes in bytes.indices.map { bytes[$0] } }
        let (isAway, slowness, gone) = state.withLock { ($0.isAway, $0.slowness, $0.gone) }
        if isAway { return nil }
        let isGone = state.withLock { state in
            let isGone = state.isGone[token] ?? (chance.upTo(100) < gone)
            state.isGone[token] = isGone
            return isGone
        }
        let sighting = Sighting(
            apnsID: push.apnsID, token: token, deadline: push.deadlineMs, at: time.now, machine: machine)
        seen.withLock(\.self)(sighting, isGone)
        let wait = 5 + chance.upTo(slowness)
        let outcome: Outcome =
            isGone ? .failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: time.now + 600_000)) : .delivered
        return (wait, outcome)
    }
}

/// Takes the pushes of one process to Apple. It tries again while Apple is away, as the courier does.
final class SimulatedCourier: PushSender {
    private let loop: EventLoop
    private let apple: SimulatedApple
    private let machine: Int
    private let brokerTime: @Sendable () -> UInt64
    private let delivered: @Sendable (_ apnsID: String) -> Void
    private let isStopped = Flag()

    private static let pauseMs: UInt64 = 1_000

    /// - Parameter delivered: called when the process learns that a push is delivered.
    init(
        _ loop: EventLoop, _ apple: SimulatedApple, _ machine: Int, brokerTime: @escaping @Sendable () -> UInt64,
        delivered: @escaping @Sendable (_ apnsID: String) -> Void
    ) {
        (self.loop, self.apple, self.machine, self.brokerTime) = (loop, apple, machine, brokerTime)
        self.delivered = delivered
    }

    func send(_ push: Push) async -> Outcome {
        while !isStopped.isSet {
            if !push.isWanted() { return .failed(status: 0, reason: .revoked, verdict: .keep) }
            if brokerTime() >= push.deadlineMs { return .failed(status: 0, reason: .late, verdict: .keep) }
            guard let (wait, outcome) = apple.take(push, from: machine) else {
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

    func stop() { isStopped.set(true) }
}

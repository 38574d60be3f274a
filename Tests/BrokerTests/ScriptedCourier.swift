import Courier
import EventLoop
import Synchronization
import Vocabulary

/// Stands in for courier and Apple: a script says how each push ends, and after how long.
final class ScriptedCourier: PushSender {
    private struct State {
        var number = 0
        var underWay: [Int: CheckedContinuation<Outcome, Never>] = [:]
        var isStopped = false
    }

    private let loop: EventLoop
    private let script: @Sendable (Push) -> (afterMs: UInt64, Outcome)
    /// By which pushes are too late, whatever the script says. Nil: none is.
    private let deadlineClock: (@Sendable () -> UInt64)?
    private let state = Mutex(State())

    init(
        loop: EventLoop, deadlineClock: (@Sendable () -> UInt64)? = nil,
        script: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome)
    ) {
        self.loop = loop
        self.script = script
        self.deadlineClock = deadlineClock
    }

    func send(_ push: Push) async -> Outcome {
        let (wait, outcome) = script(push)
        return await withCheckedContinuation { continuation in
            let number: Int? = state.withLock { state in
                if state.isStopped { return nil }
                state.number += 1
                state.underWay[state.number] = continuation
                return state.number
            }
            guard let number else { return continuation.resume(returning: Self.stopped) }
            end(push, outcome, afterMs: wait, number)
        }
    }

    /// The deadline may pass while the machine sleeps, so it is looked at every second.
    private func end(_ push: Push, _ outcome: Outcome, afterMs wait: UInt64, _ number: Int) {
        let next = deadlineClock == nil ? wait : min(wait, 1_000)
        loop.after(next) {
            var end: Outcome?
            if let clock = self.deadlineClock, clock() >= push.deadlineMs {
                end = .failed(status: 0, reason: .late, verdict: .keep)
            } else if next == wait {
                // As the courier asks before each attempt: an answer to one that was made comes all the same.
                end = outcome == .delivered || push.isWanted() ? outcome : Self.revoked
            }
            guard let end else { return self.end(push, outcome, afterMs: wait - next, number) }
            self.state.withLock { $0.underWay.removeValue(forKey: number) }?.resume(returning: end)
        }
    }

    func stop() {
        let underWay = state.withLock { state in
            defer { state.underWay = [:] }
            state.isStopped = true
            return state.underWay.sorted { $0.key < $1.key }.map(\.value)
        }
        for push in underWay { push.resume(returning: Self.stopped) }
    }

    private static let revoked = Outcome.failed(status: 0, reason: .revoked, verdict: .keep)
    private static let stopped = Outcome.failed(status: 0, reason: .stopped, verdict: .keep)
}

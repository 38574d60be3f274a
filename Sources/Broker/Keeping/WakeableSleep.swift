import EventLoop
import Synchronization

/// A sleep that can end early. At most one task sleeps at a time.
final class WakeableSleep: Sendable {
    private let loop: EventLoop
    private let sleeping = Mutex<(timer: TimerID, continuation: CheckedContinuation<Void, Never>)?>(nil)

    init(_ loop: EventLoop) { self.loop = loop }

    /// Returns after `ms`, or at the next `wake`. Must be called on the loop.
    func sleep(_ ms: UInt64) async {
        await withCheckedContinuation { continuation in
            let timer = loop.after(ms) { self.wake() }
            sleeping.withLock { $0 = (timer, continuation) }
        }
    }

    /// Ends the sleep. Does nothing if no task sleeps. Must be called on the loop.
    func wake() {
        guard let (timer, continuation) = sleeping.withLock({ $0.take() }) else { return }
        loop.cancel(timer)
        continuation.resume()
    }
}

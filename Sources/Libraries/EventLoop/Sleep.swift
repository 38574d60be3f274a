import Synchronization

extension EventLoop {
    /// Suspends the calling task for `ms`, on any executor.
    /// - Throws: `CancellationError` at once if the task is cancelled.
    public func sleep(_ ms: UInt64) async throws(CancellationError) {
        let sleeper = Sleeper(loop: self)
        await withTaskCancellationHandler {
            await withCheckedContinuation { sleeper.begin($0, ms) }
        } onCancel: {
            sleeper.end()
        }
        if Task.isCancelled { throw CancellationError() }
    }

    /// Suspends a task of the loop until the next turn, so that long work doesn't delay other events.
    public func nextTurn() async {
        await withCheckedContinuation { continuation in atEndOfTurn { continuation.resume() } }
    }

    /// Runs `work` on the loop, at once if this is its thread.
    fileprivate func perform(_ work: @escaping @Sendable () -> Void) {
        if isCurrent { work() } else { submit(work) }
    }
}

/// One sleep. The timer or the cancellation resumes the task, whichever is first.
private final class Sleeper: Sendable {
    private enum State {
        case idle
        case waiting(CheckedContinuation<Void, Never>, TimerID?)
        case ended
    }

    private let loop: EventLoop
    private let state = Mutex(State.idle)

    init(loop: EventLoop) { self.loop = loop }

    func begin(_ continuation: CheckedContinuation<Void, Never>, _ ms: UInt64) {
        let cancelled = state.withLock { state in
            if case .ended = state { return true }
            state = .waiting(continuation, nil)
            return false
        }
        if cancelled { return continuation.resume() }
        loop.perform { [self] in
            let timer = loop.after(ms) { self.end() }
            let cancelled = state.withLock { state in
                guard case .waiting(let continuation, _) = state else { return true }
                state = .waiting(continuation, timer)
                return false
            }
            if cancelled { loop.cancel(timer) }
        }
    }

    func end() {
        let before = state.withLock { state in
            defer { state = .ended }
            return state
        }
        guard case .waiting(let continuation, let timer) = before else { return }
        continuation.resume()
        if let timer { loop.perform { [loop] in loop.cancel(timer) } }
    }
}

import EventLoop
import Linux

/// The signals that a service waits for. They are blocked before the first thread starts (`Mayfly.main`).
actor ServiceSignals: LoopActor {
    nonisolated let loop: EventLoop
    private var stop: CheckedContinuation<Void, Never>?

    init(loop: EventLoop) { self.loop = loop }

    /// Calls the action at each SIGHUP.
    func onHangUp(_ action: @escaping @Sendable () async -> Void) throws(Errno) {
        try loop.onSignal(.hangup) { Task { await action() } }
    }

    /// Returns at SIGTERM or SIGINT. The second one ends the process at once.
    func waitForStop() async {
        await withCheckedContinuation { continuation in
            stop = continuation
            for signal in [Signal.terminate, .interrupt] {
                try? loop.onSignal(signal) { self.assumeIsolated { $0.stopRequested() } }
            }
        }
    }

    private func stopRequested() {
        guard let stop else {
            Terminal.log("stopped at once after a second signal")
            Terminal.exit(1)
        }
        self.stop = nil
        stop.resume()
    }
}

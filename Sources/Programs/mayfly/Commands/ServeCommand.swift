import Broker
import EventLoop
import Linux

/// `mayfly serve`: runs the broker.
enum ServeCommand {
    static let keys = Setting.allCases.filter { $0.group != .simulator }

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    "usage: mayfly serve [FLAGS]\nEach flag can also be set in the environment, under the name in brackets.", keys
                ))
        }
        let notifier = try ServiceNotifier.take()
        let activated = try ActivatedListeners.take()
        let configuration = try Configuration(words, keys: keys)
        guard configuration.operands.isEmpty else { throw UsageError("serve accepts flags only") }
        try ServiceLog.use(configuration)
        let service = try await Service.start(try ServiceSettings(configuration, activated), WaitingReport(notifier))
        let signals = ServiceSignals(loop: service.loop)
        try await signals.onHangUp { await service.reload() }
        Terminal.log("ready: apps at \(service.address), operator at \(service.operatorAddress)")
        report("READY=1", "STATUS=Serving apps at \(service.address), the operator at \(service.operatorAddress)", to: notifier)
        await Watchdog(loop: service.loop, notifier: notifier)?.run()
        await signals.waitForStop()
        report("STOPPING=1", "STATUS=Answering open requests", to: notifier)
        Terminal.log("stopping: answering open requests for ten seconds at most. Signal again to stop at once")
        await service.stop()
        Terminal.log("stopped")
    }

    private static func report(_ state: String, _ status: String, to notifier: ServiceNotifier) {
        do throws(Errno) {
            try notifier.notify(state, status)
        } catch {
            Terminal.log(.warning, "the service manager can't be told \(state): \(error)")
        }
    }
}

/// Reports to the service manager that the broker's event loop runs, twice as often as it wants to know.
actor Watchdog: LoopActor {
    nonisolated let loop: EventLoop
    private let notifier: ServiceNotifier
    private let periodMs: UInt64
    private var isFailing = false

    /// Returns nil if the service manager doesn't watch this process.
    init?(loop: EventLoop, notifier: ServiceNotifier) {
        guard let limit = notifier.watchdogMs else { return nil }
        (self.loop, self.notifier, periodMs) = (loop, notifier, max(1, limit / 2))
    }

    /// Reports now and then forever. The manager restarts a broker that doesn't.
    func run() {
        do throws(Errno) {
            // The manager may have missed the first READY=1, whose message isn't waited for.
            try notifier.notify("READY=1", "WATCHDOG=1")
            isFailing = false
        } catch {
            if !isFailing { Terminal.log(.warning, "the service manager can't be told WATCHDOG=1: \(error)") }
            isFailing = true
        }
        loop.after(periodMs) { self.run() }
    }
}

/// Waits for signals. They are blocked before the first thread starts (`Mayfly.main`).
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
            ProcessControl.exit(1)
        }
        self.stop = nil
        stop.resume()
    }
}

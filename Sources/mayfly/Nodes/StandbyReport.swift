import EventLoop
import Linux

/// Tells the service manager about a node that stands by, and stops it at a signal.
struct StandbyReport: Sendable {
    private let notifier: ServiceNotifier?

    init(_ notifier: ServiceNotifier? = nil) { self.notifier = notifier }

    /// - Parameter loop: runs until the node serves.
    func begin(on loop: EventLoop) async {
        loop.submit {
            for signal in [Signal.terminate, .interrupt] {
                try? loop.onSignal(signal) {
                    Terminal.log("stopped")
                    ProcessControl.exit(0)
                }
            }
        }
        guard let notifier else { return }
        try? notifier.notify("READY=1", "STATUS=Standing by")
        await Watchdog(loop: loop, notifier: notifier)?.run()
    }
}

import EventLoop
import Linux

/// Reports a node that waits for keys or the lease to the service manager. A signal stops that node.
struct WaitingReport: Sendable {
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
        try? notifier.notify("READY=1", "STATUS=Waiting for keys or the lease")
        await Watchdog(loop: loop, notifier: notifier)?.run()
    }
}

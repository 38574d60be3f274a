#if canImport(UIKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import UIKit

    /// Calls closures for what UIKit posts on the main thread, as long as it lives.
    final class NotificationObservers {
        private var observers: [any NSObjectProtocol] = []

        func add(_ name: Notification.Name, _ run: @escaping @MainActor @Sendable () -> Void) {
            // Without a queue the closure runs before the post returns, which `willTerminate` needs.
            observers.append(
                NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { _ in
                    MainActor.assumeIsolated(run)
                })
        }

        deinit {
            for observer in observers { NotificationCenter.default.removeObserver(observer) }
        }
    }
#endif

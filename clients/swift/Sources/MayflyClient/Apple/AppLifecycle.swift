#if canImport(UIKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import UIKit
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// Suspends a connection when the app goes to the background, ends it with the app, and resumes it when the app returns. Keep it as long as
    /// the connection.
    ///
    /// Compiled on iOS only, and not for app extensions.
    @available(iOSApplicationExtension, unavailable)
    @MainActor
    public final class AppLifecycle {
        private let connection: any LiveConnection
        private let observers = NotificationObservers()
        private var assertion = UIBackgroundTaskIdentifier.invalid

        /// - Parameter connection: a ``RoomSession`` or a ``SessionFeed``.
        public init(_ connection: any LiveConnection) {
            self.connection = connection
            observers.add(UIApplication.didEnterBackgroundNotification) { [weak self] in self?.didEnterBackground() }
            observers.add(UIApplication.willEnterForegroundNotification) { [weak self] in self?.willEnterForeground() }
            observers.add(UIApplication.willTerminateNotification) { [weak self] in self?.willTerminate() }
            // iOS also starts apps in the background, where nobody looks at a chat.
            if UIApplication.shared.applicationState == .background { didEnterBackground() }
        }

        private func didEnterBackground() {
            // iOS suspends the app within seconds. The assertion keeps it running until the broker knows.
            end(assertion)
            let assertion = UIApplication.shared.beginBackgroundTask(withName: "Mayfly disconnects") { [weak self] in
                // iOS ends an app that still has an assertion when its time is up.
                if let self { end(self.assertion) }
            }
            self.assertion = assertion
            Task {
                await connection.suspend()
                // Not a later one: the app may have returned and left again meanwhile.
                end(assertion)
            }
        }

        private func end(_ ended: UIBackgroundTaskIdentifier) {
            guard ended != .invalid, ended == assertion else { return }
            UIApplication.shared.endBackgroundTask(ended)
            assertion = .invalid
        }

        private func willEnterForeground() {
            Task { await connection.resume() }
        }

        private func willTerminate() {
            // The process ends when this returns, so it has to wait.
            let left = DispatchSemaphore(value: 0)
            Task.detached { [connection] in
                await connection.leave()
                left.signal()
            }
            _ = left.wait(timeout: .now() + 2)
        }
    }
#endif

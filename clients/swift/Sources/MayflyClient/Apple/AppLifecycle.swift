#if canImport(UIKit) && os(iOS)
    import UIKit

    /// Leaves the room when the app goes to the background or ends, and joins again when it returns. Keep it as long as the session.
    ///
    /// Compiled on iOS only, and not for app extensions.
    @available(iOSApplicationExtension, unavailable)
    @MainActor
    public final class AppLifecycle: NSObject {
        private let session: RoomSession

        public init(_ session: RoomSession) {
            self.session = session
            super.init()
            let center = NotificationCenter.default
            center.addObserver(
                self, selector: #selector(didEnterBackground), name: UIApplication.didEnterBackgroundNotification, object: nil)
            center.addObserver(
                self, selector: #selector(willEnterForeground), name: UIApplication.willEnterForegroundNotification, object: nil)
            center.addObserver(
                self, selector: #selector(willTerminate), name: UIApplication.willTerminateNotification, object: nil)
            // iOS also starts apps in the background, where nobody looks at a chat.
            if UIApplication.shared.applicationState == .background { didEnterBackground() }
        }

        @objc private func didEnterBackground() {
            // iOS suspends the app within seconds. The assertion keeps it running until the broker knows.
            let application = UIApplication.shared
            let assertion = application.beginBackgroundTask(withName: "Mayfly leaves the room", expirationHandler: nil)
            Task {
                await session.suspend()
                application.endBackgroundTask(assertion)
            }
        }

        @objc private func willEnterForeground() {
            Task { await session.resume() }
        }

        @objc private func willTerminate() {
            // The process ends when this returns, so it has to wait.
            let left = DispatchSemaphore(value: 0)
            Task.detached { [session] in
                await session.leave()
                left.signal()
            }
            _ = left.wait(timeout: .now() + 2)
        }
    }
#endif

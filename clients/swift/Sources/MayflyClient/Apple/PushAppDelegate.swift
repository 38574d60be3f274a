#if canImport(UIKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import UIKit
    import UserNotifications

    /// The delegate of an app with pushes: asks Apple for a token at each launch, and passes on what iOS reports. Override what the app needs.
    ///
    /// Use a subclass as the app's delegate, in SwiftUI with `UIApplicationDelegateAdaptor`. All methods are called on the main actor. After a cold start
    /// iOS reports the tap that started the app soon after the launch. Compiled on iOS only, and not for app extensions.
    @available(iOSApplicationExtension, unavailable)
    @MainActor
    open class PushAppDelegate: NSObject, UIApplicationDelegate, UNUserNotificationCenterDelegate {
        public let permission = NotificationPermission()

        private let observers = NotificationObservers()

        public override init() {
            super.init()
            observers.add(UIApplication.willEnterForegroundNotification) { [weak self] in self?.returned() }
        }

        // MARK: For the app

        /// The app's kinds of notifications with buttons.
        open var categories: Set<UNNotificationCategory> { [] }

        /// The app starts, also in the background. Load what is kept.
        open func launched() {}

        /// The app returns to the foreground. Pushes came meanwhile, and not all of them were reported.
        open func returned() {}

        /// Apple gave this phone a token. It may be a new one.
        open func registered(_ deviceToken: Data) async {}

        /// Apple gave no token, for instance without a network. The next launch asks again.
        open func registrationFailed(_ error: any Error) {}

        /// A push came while the app is open. Return `[]` for what the user sees already.
        open func presentation(of push: ReceivedPush) async -> UNNotificationPresentationOptions {
            [.banner, .list, .sound, .badge]
        }

        /// The user tapped a notification or one of its buttons. Return soon: iOS suspends an app that it started for a button.
        ///
        /// - Parameter action: the button's identifier, or `UNNotificationDefaultActionIdentifier` for a tap.
        open func opened(_ push: ReceivedPush, action: String) async {}

        /// A push with `content-available` came, also in the background. Needs the background mode `remote-notification`. Return whether it changed anything.
        open func received(_ push: ReceivedPush) async -> Bool { false }

        // MARK: From iOS

        open func application(
            _ application: UIApplication, didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]?
        ) -> Bool {
            let center = UNUserNotificationCenter.current()
            // A tap that started the app is reported only to a delegate that is there before the launch ends.
            center.delegate = self
            center.setNotificationCategories(categories)
            launched()
            // Needs no permission. Without one Apple gives a token, too, and shows nothing.
            application.registerForRemoteNotifications()
            return true
        }

        open func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken deviceToken: Data) {
            Task { await registered(deviceToken) }
        }

        open func application(_ application: UIApplication, didFailToRegisterForRemoteNotificationsWithError error: any Error) {
            registrationFailed(error)
        }

        open func application(
            _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
        ) async -> UIBackgroundFetchResult {
            await received(ReceivedPush(userInfo)) ? .newData : .noData
        }

        // These have completion handlers, since UIKit wants them called on the main thread, and the async methods may end on another one.

        public nonisolated func userNotificationCenter(
            _ center: UNUserNotificationCenter, willPresent notification: UNNotification,
            withCompletionHandler completionHandler: @escaping (UNNotificationPresentationOptions) -> Void
        ) {
            let (push, done) = (ReceivedPush(notification.request), Completion(run: completionHandler))
            Task { @MainActor in done.run(await presentation(of: push)) }
        }

        public nonisolated func userNotificationCenter(
            _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse,
            withCompletionHandler completionHandler: @escaping () -> Void
        ) {
            let (push, action) = (ReceivedPush(response.notification.request), response.actionIdentifier)
            let done = Completion<Void>(run: { completionHandler() })
            Task { @MainActor in
                await opened(push, action: action)
                done.run(())
            }
        }

        /// A handler of Apple's that is called once, on the main thread.
        private struct Completion<Value>: @unchecked Sendable { let run: (Value) -> Void }
    }
#endif

#if canImport(UIKit) && os(iOS)
    import MayflyClient
    import UIKit
    import UserNotifications

    /// The iOS side of the app. Compiled on iOS only: an app has this instead of `Main.swift`.
    @MainActor
    final class AppDelegate: NSObject, UIApplicationDelegate, UNUserNotificationCenterDelegate {
        private let client = try! Client(baseURL: URL(string: "https://push.example.org")!, environment: .production)
        private lazy var chats = Chats(client: client, storage: ChatKeychain(), show: { _ in })

        func application(
            _ application: UIApplication, didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]?
        ) -> Bool {
            UNUserNotificationCenter.current().delegate = self
            Task { await chats.load() }
            application.registerForRemoteNotifications()
            return true
        }

        func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken token: Data) {
            Task { await chats.register(token) }
        }

        nonisolated func userNotificationCenter(
            _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse
        ) async {
            // Only the handle crosses to the main actor: `userInfo` is not Sendable.
            guard let handle = response.notification.request.content.userInfo["roomId"] as? String else { return }
            await chats.tapped(payload: ["roomId": handle])
        }
    }
#endif

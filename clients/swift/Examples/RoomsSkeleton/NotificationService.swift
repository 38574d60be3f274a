#if os(iOS)
    import MayflyClient
    import UserNotifications

    /// The app's notification service extension, a target of its own. Compiled on iOS only.
    final class NotificationService: UNNotificationServiceExtension {
        override func didReceive(
            _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
        ) {
            // Without them the notification is shown as it came.
            let rooms = (try? ChatKeychain().known()) ?? []
            show(RoomNotification.content(for: request, rooms: rooms))
        }
    }
#endif

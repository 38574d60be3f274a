#if os(iOS)
    import Mayfly
    import UserNotifications

    /// The app's notification service extension, a target of its own. Compiled on iOS only.
    final class NotificationService: UNNotificationServiceExtension {
        override func didReceive(
            _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
        ) {
            let rooms = ChatKeychain.load().map { (room: $0.room, nickname: $0.nickname) }
            show(RoomNotification.content(for: request, rooms: rooms))
        }
    }
#endif

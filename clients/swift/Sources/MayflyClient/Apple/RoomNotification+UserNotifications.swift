#if canImport(UserNotifications)
    import UserNotifications

    extension RoomNotification {
        /// Returns what a notification service extension shows: the nickname as title, one thread for each room. An unknown push stays as it came.
        ///
        /// Compiled on Apple's systems only.
        public static func content(
            for request: UNNotificationRequest, rooms: [(room: Room, nickname: String)]
        ) -> UNNotificationContent {
            guard let notification = RoomNotification(payload: request.content.userInfo, rooms: rooms),
                let content = request.content.mutableCopy() as? UNMutableNotificationContent
            else { return request.content }
            content.title = notification.nickname
            content.threadIdentifier = notification.threadIdentifier
            return content
        }
    }
#endif

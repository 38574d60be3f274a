#if canImport(UserNotifications) || MAYFLY_APPLE_STUBS
    import UserNotifications
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    // What notification service extensions show. An unknown push stays as it came. Compiled on Apple's systems only.

    extension RoomNotification {
        /// Returns the notification with the nickname as title, and one thread for each room.
        public static func content(
            for request: UNNotificationRequest, rooms: [(room: Room, nickname: String)]
        ) -> UNNotificationContent {
            guard let notification = RoomNotification(payload: request.content.userInfo, rooms: rooms) else {
                return request.content
            }
            return request.content.changed {
                $0.title = notification.nickname
                $0.threadIdentifier = notification.threadIdentifier
            }
        }
    }

    extension CompanionNotification {
        /// Returns the notification with the session's name below the title, and one thread for each session.
        ///
        /// - Parameter name: the phone's name of a session.
        public static func content(
            for request: UNNotificationRequest, sessions: HandleTable, name: (_ sessionID: String) -> String?
        ) -> UNNotificationContent {
            guard let notification = CompanionNotification(payload: request.content.userInfo, sessions: sessions),
                let session = notification.sessionID, let name = name(session)
            else { return request.content }
            return request.content.changed {
                $0.subtitle = name
                $0.threadIdentifier = notification.threadIdentifier
            }
        }
    }

    extension MonitorNotification {
        /// Returns the notification with the printer's name below the title, and one thread for each printer.
        ///
        /// - Parameter name: the phone's name of a printer.
        public static func content(
            for request: UNNotificationRequest, printers: HandleTable, name: (_ printer: String) -> String?
        ) -> UNNotificationContent {
            guard let notification = MonitorNotification(payload: request.content.userInfo, printers: printers),
                let name = name(notification.printer)
            else { return request.content }
            return request.content.changed {
                $0.subtitle = name
                $0.threadIdentifier = notification.threadIdentifier
            }
        }
    }

    extension UNNotificationContent {
        fileprivate func changed(_ change: (UNMutableNotificationContent) -> Void) -> UNNotificationContent {
            guard let content = mutableCopy() as? UNMutableNotificationContent else { return self }
            change(content)
            return content
        }
    }
#endif

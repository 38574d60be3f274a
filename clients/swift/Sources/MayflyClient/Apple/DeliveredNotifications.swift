#if canImport(UserNotifications) || MAYFLY_APPLE_STUBS
    import UserNotifications
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// What the phone shows of this app. Compiled on Apple's systems only.
    public enum DeliveredNotifications {
        /// Removes notifications, and sets the badge to the number of those that are left. Returns how many it removed.
        ///
        /// - Parameter isGone: gets the `userInfo` of each.
        @discardableResult
        public static func remove(where isGone: @Sendable ([AnyHashable: Any]) -> Bool) async -> Int {
            let center = UNUserNotificationCenter.current()
            let shown = await center.deliveredNotifications().map(\.request)
            let gone = shown.filter { isGone($0.content.userInfo) }.map(\.identifier)
            center.removeDeliveredNotifications(withIdentifiers: gone)
            // Read again: a badge of 0 removes all notifications, also one that came since.
            let left = await center.deliveredNotifications().count { !isGone($0.request.content.userInfo) }
            // Always set the badge: iOS keeps it when a notification is tapped.
            // Fails without permission for badges, which is harmless.
            try? await center.setBadgeCount(left)
            return gone.count
        }
    }

    extension RoomNotification {
        /// Removes the notifications of a room, such as when the user opens it.
        public static func clear(_ room: Room) async {
            guard let handle = room.handle else { return }
            await DeliveredNotifications.remove { $0["roomId"] as? String == handle }
        }
    }

    extension CompanionNotification {
        /// Handles a clearing push. Returns whether it removed anything.
        @discardableResult
        public func clearScreen() async -> Bool { await DeliveredNotifications.remove { clears($0) } > 0 }

        /// Removes an approval's notification, such as after this phone answered it: the broker sends its clearing push to the others only.
        public static func clearApproval(_ requestID: String) async {
            await DeliveredNotifications.remove { $0["requestId"] as? String == requestID }
        }

        /// Handles the clearing pushes that came while no app ran. Call it at the launch and when the app returns to the foreground.
        public static func clearScreen(sessions: HandleTable) async {
            let clearing = await UNUserNotificationCenter.current().deliveredNotifications()
                .compactMap { CompanionNotification(payload: $0.request.content.userInfo, sessions: sessions) }
                .filter(\.isClearing)
            await DeliveredNotifications.remove { shown in clearing.contains { $0.clears(shown) } }
        }
    }
#endif

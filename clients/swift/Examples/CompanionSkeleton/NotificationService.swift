import MayflyClient
import UserNotifications

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// The app's notification service extension, in Xcode a target of its own.
nonisolated final class NotificationService: UNNotificationServiceExtension {
    private let storage: any Storage

    init(storage: any Storage) {
        self.storage = storage
        super.init()
    }

    convenience override init() { self.init(storage: CompanionMemory.keychain) }

    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler show: @escaping (UNNotificationContent) -> Void
    ) {
        // Without it the notification is shown as it came.
        guard let memory = try? Kept<CompanionMemory>.load(from: storage) else { return show(request.content) }
        show(CompanionNotification.content(for: request, sessions: memory.sessions) { memory.names[$0] })
    }
}

#if canImport(UIKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import Observation
    import UIKit
    import UserNotifications

    /// Whether this app may show notifications. Views follow ``status``, which the user may change in Settings at any time.
    ///
    /// Compiled on iOS only, and not for app extensions.
    @available(iOSApplicationExtension, unavailable)
    @MainActor
    @Observable
    public final class NotificationPermission {
        public private(set) var status = UNAuthorizationStatus.notDetermined
        @ObservationIgnored private let observers = NotificationObservers()

        /// Doesn't prompt the user. Reads the status in the background.
        public init() {
            observers.add(UIApplication.willEnterForegroundNotification) { [weak self] in self?.readSoon() }
            readSoon()
        }

        /// Whether notifications are shown, also if only quietly.
        public var isGranted: Bool { [.authorized, .provisional, .ephemeral].contains(status) }

        /// Asks the user. iOS shows its question once; later calls return the answer at once.
        ///
        /// Call it where the user sees why, such as after the first room, and not at the launch.
        /// - Parameter options: with `.provisional` iOS asks nobody, and shows notifications quietly.
        /// - Throws: what `UNUserNotificationCenter` throws.
        @discardableResult
        public func ask(_ options: UNAuthorizationOptions = [.alert, .sound, .badge]) async throws -> Bool {
            let isGranted = try await Self.request(options)
            await refresh()
            return isGranted
        }

        /// Reads the status again.
        public func refresh() async { status = await Self.current() }

        /// Opens the app's notifications in Settings, where a user who refused can change it.
        public func openSettings() {
            if let url = URL(string: UIApplication.openNotificationSettingsURLString) { UIApplication.shared.open(url) }
        }

        private func readSoon() {
            Task { await refresh() }
        }

        // The values of UserNotifications are not Sendable, so they stay off the main actor.

        private nonisolated static func current() async -> UNAuthorizationStatus {
            await UNUserNotificationCenter.current().notificationSettings().authorizationStatus
        }

        private nonisolated static func request(_ options: UNAuthorizationOptions) async throws -> Bool {
            try await UNUserNotificationCenter.current().requestAuthorization(options: options)
        }
    }
#endif

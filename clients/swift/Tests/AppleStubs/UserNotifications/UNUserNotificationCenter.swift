import Foundation

// Stands for Apple's UserNotifications on Linux. What begins with `stub` plays iOS. As in Apple's SDK, the classes are not Sendable.

public enum UNAuthorizationStatus: Int, Sendable { case notDetermined, denied, authorized, provisional, ephemeral }

public struct UNAuthorizationOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let badge = UNAuthorizationOptions(rawValue: 1 << 0)
    public static let sound = UNAuthorizationOptions(rawValue: 1 << 1)
    public static let alert = UNAuthorizationOptions(rawValue: 1 << 2)
    public static let provisional = UNAuthorizationOptions(rawValue: 1 << 6)
}

public struct UNNotificationPresentationOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let badge = UNNotificationPresentationOptions(rawValue: 1 << 0)
    public static let sound = UNNotificationPresentationOptions(rawValue: 1 << 1)
    public static let list = UNNotificationPresentationOptions(rawValue: 1 << 3)
    public static let banner = UNNotificationPresentationOptions(rawValue: 1 << 4)
}

open class UNNotificationSettings: NSObject {
    public let authorizationStatus: UNAuthorizationStatus
    init(_ status: UNAuthorizationStatus) { authorizationStatus = status }
}

/// Apple's methods are optional, and called on any thread.
public protocol UNUserNotificationCenterDelegate: NSObjectProtocol {
    func userNotificationCenter(
        _ center: UNUserNotificationCenter, willPresent notification: UNNotification,
        withCompletionHandler completionHandler: @escaping (UNNotificationPresentationOptions) -> Void)
    func userNotificationCenter(
        _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse,
        withCompletionHandler completionHandler: @escaping () -> Void)
}

extension UNUserNotificationCenterDelegate {
    public func userNotificationCenter(
        _ center: UNUserNotificationCenter, willPresent notification: UNNotification,
        withCompletionHandler completionHandler: @escaping (UNNotificationPresentationOptions) -> Void
    ) { completionHandler([]) }
    public func userNotificationCenter(
        _ center: UNUserNotificationCenter, didReceive response: UNNotificationResponse,
        withCompletionHandler completionHandler: @escaping () -> Void
    ) { completionHandler() }
}

open class UNUserNotificationCenter: NSObject {
    open class func current() -> UNUserNotificationCenter { stubCurrent }
    nonisolated(unsafe) private static let stubCurrent = UNUserNotificationCenter()

    public weak var delegate: (any UNUserNotificationCenterDelegate)?

    open func requestAuthorization(options: UNAuthorizationOptions = []) async throws -> Bool {
        stub.withLock {
            $0.questions += 1
            // iOS asks the user once.
            if $0.status == .notDetermined { $0.status = options.contains(.provisional) ? .provisional : $0.answer }
            return $0.status != .denied
        }
    }

    open func notificationSettings() async -> UNNotificationSettings { UNNotificationSettings(stub.withLock { $0.status }) }

    open func setNotificationCategories(_ categories: Set<UNNotificationCategory>) {
        stub.withLock { $0.categories = categories }
    }

    /// Without a trigger iOS shows it at once.
    open func add(_ request: UNNotificationRequest) async throws { stubDeliver(request) }

    open func deliveredNotifications() async -> [UNNotification] { stub.withLock { $0.delivered } }

    open func removeDeliveredNotifications(withIdentifiers identifiers: [String]) {
        stub.withLock { state in state.delivered.removeAll { identifiers.contains($0.request.identifier) } }
    }

    open func removeAllDeliveredNotifications() { stub.withLock { $0.delivered = [] } }

    open func setBadgeCount(_ newBadgeCount: Int) async throws {
        stub.withLock {
            $0.badge = newBadgeCount
            // iOS empties the Notification Center of an app whose badge is set to 0.
            if newBadgeCount == 0 { $0.delivered = [] }
        }
    }

    // MARK: What plays iOS

    public struct Stub {
        /// The user's setting, and what the user answers when asked.
        public var status = UNAuthorizationStatus.notDetermined
        public var answer = UNAuthorizationStatus.authorized
        public var questions = 0
        public var badge = 0
        public var categories: Set<UNNotificationCategory> = []
        public var delivered: [UNNotification] = []
        public init() {}
    }

    public let stub = StubState(Stub())

    /// A notification replaces the one with its identifier, which is the collapse id of its push.
    public func stubDeliver(_ request: UNNotificationRequest) {
        let notification = UNNotification(stub: request)
        stub.withLock { state in
            state.delivered.removeAll { $0.request.identifier == request.identifier }
            state.delivered.append(notification)
            if let badge = request.content.badge { state.badge = badge.intValue }
        }
    }
}

/// A value behind a lock.
public final class StubState<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value
    public init(_ value: Value) { self.value = value }

    public func withLock<Result>(_ body: (inout Value) throws -> Result) rethrows -> Result {
        try lock.withLock { try body(&value) }
    }
}

@_exported import Foundation

// Stands for Apple's UIKit on Linux: the declarations that the client and the examples use, as Apple documents them. What begins with `stub` plays iOS.

@MainActor
open class UIResponder: NSObject {}

@MainActor
open class UIApplication: UIResponder {
    public struct LaunchOptionsKey: RawRepresentable, Hashable, Sendable {
        public var rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public static let remoteNotification = LaunchOptionsKey(rawValue: "UIApplicationLaunchOptionsRemoteNotificationKey")
    }

    public struct OpenExternalURLOptionsKey: RawRepresentable, Hashable, Sendable {
        public var rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
    }

    public enum State: Int, Sendable { case active, inactive, background }

    open class var shared: UIApplication { stubShared }
    private static let stubShared = UIApplication()

    public weak var delegate: (any UIApplicationDelegate)?
    open var applicationState: State { stubState }
    open var isRegisteredForRemoteNotifications: Bool { stubRegistrations > 0 }

    open func registerForRemoteNotifications() {
        stubRegistrations += 1
        stubAnswerRegistration()
    }

    open func unregisterForRemoteNotifications() { stubRegistrations = 0 }

    open func beginBackgroundTask(
        withName taskName: String?, expirationHandler handler: (@MainActor @Sendable () -> Void)? = nil
    ) -> UIBackgroundTaskIdentifier {
        stubTasks += 1
        let task = UIBackgroundTaskIdentifier(rawValue: stubTasks)
        stubRunningTasks.insert(task)
        stubHandlers[task] = handler
        return task
    }

    open func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) { stubRunningTasks.remove(identifier) }

    open func open(
        _ url: URL, options: [OpenExternalURLOptionsKey: Any] = [:],
        completionHandler completion: (@MainActor @Sendable (Bool) -> Void)? = nil
    ) {
        stubOpened.append(url)
        completion?(true)
    }

    nonisolated public static let openNotificationSettingsURLString = "app-settings:notifications"
    nonisolated public static let didEnterBackgroundNotification = Notification.Name(
        "UIApplicationDidEnterBackgroundNotification")
    nonisolated public static let willEnterForegroundNotification = Notification.Name(
        "UIApplicationWillEnterForegroundNotification")
    nonisolated public static let didBecomeActiveNotification = Notification.Name("UIApplicationDidBecomeActiveNotification")
    nonisolated public static let willTerminateNotification = Notification.Name("UIApplicationWillTerminateNotification")

    // MARK: What plays iOS

    public var stubState = State.active
    public private(set) var stubRegistrations = 0
    public private(set) var stubRunningTasks: Set<UIBackgroundTaskIdentifier> = []
    private var stubHandlers: [UIBackgroundTaskIdentifier: @MainActor @Sendable () -> Void] = [:]
    public private(set) var stubOpened: [URL] = []
    private var stubTasks = 0
    /// What iOS answers to a registration. Nil: not yet.
    public var stubToken: Result<Data, any Error>? {
        didSet { if isRegisteredForRemoteNotifications { stubAnswerRegistration() } }
    }

    private func stubAnswerRegistration() {
        guard let stubToken else { return }
        // iOS answers later, on the main thread.
        Task { @MainActor in
            switch stubToken {
            case .success(let token): delegate?.application(self, didRegisterForRemoteNotificationsWithDeviceToken: token)
            case .failure(let error): delegate?.application(self, didFailToRegisterForRemoteNotificationsWithError: error)
            }
        }
    }

    public func stubEnterBackground() {
        stubState = .background
        NotificationCenter.default.post(name: Self.didEnterBackgroundNotification, object: self)
    }

    public func stubEnterForeground() {
        NotificationCenter.default.post(name: Self.willEnterForegroundNotification, object: self)
        stubState = .active
        NotificationCenter.default.post(name: Self.didBecomeActiveNotification, object: self)
    }

    /// The app's time in the background is over.
    public func stubExpireTasks() { for task in stubRunningTasks { stubHandlers[task]?() } }

    public func stubTerminate() { NotificationCenter.default.post(name: Self.willTerminateNotification, object: self) }
}

public struct UIBackgroundTaskIdentifier: RawRepresentable, Hashable, Sendable {
    public var rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }
    public static let invalid = UIBackgroundTaskIdentifier(rawValue: 0)
}

public enum UIBackgroundFetchResult: UInt, Sendable { case newData, noData, failed }

/// Apple's methods are optional. Here they have a body, so a test has to call a method to see that an app's is the one.
@MainActor
public protocol UIApplicationDelegate: NSObjectProtocol {
    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool
    func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken deviceToken: Data)
    func application(_ application: UIApplication, didFailToRegisterForRemoteNotificationsWithError error: any Error)
    func application(
        _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult
}

extension UIApplicationDelegate {
    public func application(
        _ application: UIApplication, didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool { true }
    public func application(_ application: UIApplication, didRegisterForRemoteNotificationsWithDeviceToken deviceToken: Data) {}
    public func application(_ application: UIApplication, didFailToRegisterForRemoteNotificationsWithError error: any Error) {}
    public func application(
        _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
    ) async -> UIBackgroundFetchResult { .noData }
}

// swift-format-ignore-file: AlwaysUseLowerCamelCase

import Foundation

public let UNNotificationDefaultActionIdentifier = "com.apple.UNNotificationDefaultActionIdentifier"
public let UNNotificationDismissActionIdentifier = "com.apple.UNNotificationDismissActionIdentifier"

open class UNNotificationContent: NSObject, NSCopying, NSMutableCopying {
    public fileprivate(set) var stub = Stub()

    open var title: String { stub.title }
    open var subtitle: String { stub.subtitle }
    open var body: String { stub.body }
    open var badge: NSNumber? { stub.badge }
    open var categoryIdentifier: String { stub.categoryIdentifier }
    open var threadIdentifier: String { stub.threadIdentifier }
    open var userInfo: [AnyHashable: Any] { stub.userInfo }

    open func copy(with zone: NSZone? = nil) -> Any { UNNotificationContent(stub) }
    open func mutableCopy(with zone: NSZone? = nil) -> Any { UNMutableNotificationContent(stub) }

    public struct Stub {
        public var title = "", subtitle = "", body = "", categoryIdentifier = "", threadIdentifier = ""
        public var badge: NSNumber?
        public var userInfo: [AnyHashable: Any] = [:]
    }

    public override init() {}
    fileprivate init(_ stub: Stub) { self.stub = stub }
}

open class UNMutableNotificationContent: UNNotificationContent {
    open override var title: String {
        get { stub.title }
        set { stub.title = newValue }
    }
    open override var subtitle: String {
        get { stub.subtitle }
        set { stub.subtitle = newValue }
    }
    open override var body: String {
        get { stub.body }
        set { stub.body = newValue }
    }
    open override var badge: NSNumber? {
        get { stub.badge }
        set { stub.badge = newValue }
    }
    open override var categoryIdentifier: String {
        get { stub.categoryIdentifier }
        set { stub.categoryIdentifier = newValue }
    }
    open override var threadIdentifier: String {
        get { stub.threadIdentifier }
        set { stub.threadIdentifier = newValue }
    }
    open override var userInfo: [AnyHashable: Any] {
        get { stub.userInfo }
        set { stub.userInfo = newValue }
    }
}

open class UNNotificationTrigger: NSObject {}

open class UNNotificationRequest: NSObject {
    public let identifier: String
    public let content: UNNotificationContent
    public let trigger: UNNotificationTrigger?

    public init(identifier: String, content: UNNotificationContent, trigger: UNNotificationTrigger?) {
        (self.identifier, self.content, self.trigger) = (identifier, content, trigger)
    }

    /// What iOS makes of a push's payload.
    public convenience init(stubIdentifier identifier: String, payload: [AnyHashable: Any]) {
        let content = UNMutableNotificationContent()
        let aps = payload["aps"] as? [String: Any] ?? [:]
        if let text = aps["alert"] as? String { content.body = text }
        if let alert = aps["alert"] as? [String: Any] {
            content.title = alert["title"] as? String ?? ""
            content.body = alert["body"] as? String ?? ""
        }
        content.badge = (aps["badge"] as? Int).map { NSNumber(value: $0) }
        content.categoryIdentifier = aps["category"] as? String ?? ""
        content.threadIdentifier = aps["thread-id"] as? String ?? ""
        content.userInfo = payload
        self.init(identifier: identifier, content: content, trigger: nil)
    }
}

open class UNNotification: NSObject {
    public let date = Date.now
    public let request: UNNotificationRequest
    public init(stub request: UNNotificationRequest) { self.request = request }
}

open class UNNotificationResponse: NSObject {
    public let notification: UNNotification
    public let actionIdentifier: String

    public init(stub notification: UNNotification, action: String = UNNotificationDefaultActionIdentifier) {
        (self.notification, actionIdentifier) = (notification, action)
    }
}

public struct UNNotificationActionOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let authenticationRequired = UNNotificationActionOptions(rawValue: 1 << 0)
    public static let destructive = UNNotificationActionOptions(rawValue: 1 << 1)
    public static let foreground = UNNotificationActionOptions(rawValue: 1 << 2)
}

open class UNNotificationAction: NSObject {
    public let identifier: String
    public let title: String
    public let options: UNNotificationActionOptions

    public init(identifier: String, title: String, options: UNNotificationActionOptions = []) {
        (self.identifier, self.title, self.options) = (identifier, title, options)
    }
}

public struct UNNotificationCategoryOptions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let customDismissAction = UNNotificationCategoryOptions(rawValue: 1 << 0)
}

open class UNNotificationCategory: NSObject {
    public let identifier: String
    public let actions: [UNNotificationAction]

    public init(
        identifier: String, actions: [UNNotificationAction], intentIdentifiers: [String],
        options: UNNotificationCategoryOptions = []
    ) {
        (self.identifier, self.actions) = (identifier, actions)
    }
}

open class UNNotificationServiceExtension: NSObject {
    public override init() {}
    open func didReceive(
        _ request: UNNotificationRequest, withContentHandler contentHandler: @escaping (UNNotificationContent) -> Void
    ) {}
    open func serviceExtensionTimeWillExpire() {}
}

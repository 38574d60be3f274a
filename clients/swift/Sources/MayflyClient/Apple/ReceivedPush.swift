#if canImport(UserNotifications) || MAYFLY_APPLE_STUBS
    import Foundation
    import UserNotifications

    /// A push as a value that may cross to another actor, unlike `userInfo`. Compiled on Apple's systems only.
    public struct ReceivedPush: Sendable {
        /// The identifier of the notification, which is the push's collapse id. Nil for a background push.
        public let identifier: String?
        private let json: Data

        /// - Parameter payload: `userInfo` of a notification or a background push.
        public init(_ payload: [AnyHashable: Any], identifier: String? = nil) {
            self.identifier = identifier
            // Apple parsed it from JSON, so it is JSON.
            let isJSON = JSONSerialization.isValidJSONObject(payload)
            json = (isJSON ? try? JSONSerialization.data(withJSONObject: payload) : nil) ?? Data("{}".utf8)
        }

        public init(_ request: UNNotificationRequest) { self.init(request.content.userInfo, identifier: request.identifier) }

        /// `userInfo` of the notification.
        public var payload: [AnyHashable: Any] { (try? JSONSerialization.jsonObject(with: json)) as? [String: Any] ?? [:] }
    }
#endif

import Sodium
import TLS
import Vocabulary

/// The settings of a deployment that sends Web Push messages.
public struct WebPushService: Sendable {
    /// The key in force, and while it is rotated the one before.
    public let keys: [VAPIDKey]
    /// `mailto:` or `https:`, for the operators of push services.
    public let contact: String
    /// The web app that opens when a notification is tapped: `https://` and a host, without a slash at the end.
    public let origin: String
    public let hosts: PushHosts

    public init(keys: [VAPIDKey], contact: String, origin: String, hosts: PushHosts) {
        precondition(!keys.isEmpty)
        (self.keys, self.contact, self.origin, self.hosts) = (keys, contact, origin, hosts)
    }

    /// The key that new subscriptions are made for.
    public var current: VAPIDKey { keys[0] }

    /// True if messages can be sent to subscriptions that were made for this key.
    public func has(key number: UInt8) -> Bool { keys.contains { $0.number == number } }
}

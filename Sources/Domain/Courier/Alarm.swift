public import Vocabulary
public import WebPush

/// A push service as alarms name it.
public enum PushService: Sendable, Equatable, CustomStringConvertible {
    case apns(PushEnvironment)
    /// A browser maker's Web Push service, or nil for any other one.
    case webPush(BrowserMaker?)

    public var description: String {
        switch self {
        case .apns(let environment): "APNs (\(environment))"
        case .webPush(let maker): maker.map { "Web Push (\($0.rawValue))" } ?? "Web Push"
        }
    }
}

/// A fault that an operator has to know about. Contains no token.
public enum Alarm: Sendable, Equatable, CustomStringConvertible {
    /// Apple rejects the provider because of its keys, certificate or topic.
    case configuration(PushService, topic: String, PushReason)
    /// Apple accepted a provider token only once it was dated further back.
    case clockAhead(PushService)
    /// No account can send such a push.
    case noAccount(PushEnvironment, topic: String, PushType)
    /// Apple rejects most tokens of a topic, or several in a row, so none is purged.
    case purgesStopped(PushService, topic: String)
    /// Apple can't be reached or trusted. `topic` is nil if that concerns all apps.
    case unreachable(PushService, topic: String?, String)
    /// Apple answered a push with this error until the deadline.
    case givenUp(PushService, topic: String, status: Int, PushReason)
    /// The peer accepts connections but answers no push.
    case unanswered(PushService, topic: String?)

    public var description: String {
        switch self {
        case .configuration(.webPush(let maker), _, let reason):
            "\(PushService.webPush(maker)) refuses this deployment: \(reason.rawValue). No subscription is deleted. Check --vapid-key, --vapid-contact and this machine's clock"
        case .configuration(let service, let topic, .expiredProviderToken):
            "\(service) reports an expired provider token for \(topic), but it is under an hour old here. This machine's clock is behind. Set it; no token is purged"
        case .configuration(let service, let topic, .invalidProviderToken):
            "\(service) refuses this provider for \(topic): InvalidProviderToken. No token is purged. Check key, key id and team id, and whether this machine's clock is ahead"
        case .clockAhead(let service):
            "\(service) accepts this provider's tokens only if they are dated \(ProviderToken.furtherBackdatedS / 60) minutes back. Set this machine's clock, which is ahead"
        case .configuration(let service, let topic, let reason):
            "\(service) refuses this provider for \(topic): \(reason.rawValue). No token is purged. Check key id, team id, key or certificate, and topic"
        case .noAccount(let environment, let topic, let type):
            "no APNs key or certificate is configured for \(type.rawValue) pushes to \(topic) (\(environment)), so they fail. No token is purged"
        case .purgesStopped(let service, let topic):
            "\(service) refuses every token for \(topic), so none is purged. Check the topic and the environment"
        case .unreachable(let service, let topic, let cause):
            "\(service) can't be reached\(Self.for(topic)): \(cause). Pushes wait until their deadlines. \(Self.whatToCheck)"
        case .givenUp(let service, let topic, let status, let reason):
            "\(service) has answered pushes to \(topic) with \(status) \(reason.rawValue) until their deadlines, so they fail. No token is purged. "
                + reason.explanation.remedy
        case .unanswered(let service, let topic):
            "\(service) can be reached but answers no push\(Self.for(topic)). They are repeated until their deadlines. \(Self.whatToCheck)"
        }
    }

    private static let whatToCheck = "Check this machine's clock and network, and any firewall, proxy or endpoint setting"

    private static func `for`(_ topic: String?) -> String { topic.map { " for " + $0 } ?? "" }

    /// Alarms of one kind are raised at most once a minute.
    var kind: String {
        switch self {
        case .configuration(let service, let topic, let reason): "configuration \(service) \(topic) \(reason.rawValue)"
        case .clockAhead(let service): "clock \(service)"
        case .noAccount(let environment, let topic, let type): "account \(environment) \(topic) \(type.rawValue)"
        case .purgesStopped(let service, let topic): "purges \(service) \(topic)"
        // A peer can't cause many of these: each is followed by a wait before the next connection attempt.
        case .unreachable(let service, let topic, let cause): "unreachable \(service) \(topic ?? "") \(cause)"
        case .givenUp(let service, let topic, let status, let reason):
            "given up \(service) \(topic) \(status) \(reason.rawValue)"
        case .unanswered(let service, let topic): "unanswered \(service) \(topic ?? "")"
        }
    }
}

public import Vocabulary

/// What an operator must know. Holds no token.
public enum Alarm: Sendable, Equatable, CustomStringConvertible {
    /// Apple refuses the provider: keys, certificate or topic.
    case configuration(PushEnvironment, topic: String, APNsReason)
    /// There is nothing to send such a push by.
    case noAccount(PushEnvironment, topic: String, PushType)
    /// Apple refuses one token of a topic after the other, or most; none of them is purged.
    case purgesStopped(PushEnvironment, topic: String)
    /// Apple can't be reached or not be trusted; for some apps where others have another key or certificate.
    case unreachable(PushEnvironment, topic: String?, String)
    /// Apple turned a push away with this again and again, until its deadline.
    case givenUp(PushEnvironment, topic: String, status: Int, APNsReason)
    /// Something takes connections and answers no push.
    case unanswered(PushEnvironment, topic: String?)

    public var description: String {
        switch self {
        case .configuration(let environment, let topic, .expiredProviderToken):
            "APNs (\(environment)) reports a new provider token for \(topic) as expired. Check this machine's clock"
        case .configuration(let environment, let topic, let reason):
            "APNs (\(environment)) refuses this provider for \(topic): \(reason.rawValue). No token is purged. Check key id, team id, key or certificate, and topic"
        case .noAccount(let environment, let topic, let type):
            "no APNs key or certificate is configured for \(type.rawValue) pushes to \(topic) (\(environment)), so they fail. No token is purged"
        case .purgesStopped(let environment, let topic):
            "APNs (\(environment)) refuses every token for \(topic), so none is purged. Check the topic and the environment"
        case .unreachable(let environment, let topic, let cause):
            "APNs (\(environment)) can't be reached\(Self.for(topic)): \(cause). Pushes wait until their deadlines. \(Self.whatToCheck)"
        case .givenUp(let environment, let topic, let status, let reason):
            "APNs (\(environment)) has answered pushes to \(topic) with \(status) \(reason.rawValue) until their deadlines, so they fail. No token is purged. "
                + reason.explanation.remedy
        case .unanswered(let environment, let topic):
            "APNs (\(environment)) can be reached but answers no push\(Self.for(topic)). They are repeated until their deadlines. \(Self.whatToCheck)"
        }
    }

    private static let whatToCheck = "Check this machine's clock and network, and any firewall, proxy or endpoint setting"

    private static func `for`(_ topic: String?) -> String { topic.map { " for " + $0 } ?? "" }

    /// Alarms of one kind are raised once a minute.
    var kind: String {
        switch self {
        case .configuration(let environment, let topic, let reason): "configuration \(environment) \(topic) \(reason.rawValue)"
        case .noAccount(let environment, let topic, let type): "account \(environment) \(topic) \(type.rawValue)"
        case .purgesStopped(let environment, let topic): "purges \(environment) \(topic)"
        // Few in a minute, whatever the peer makes up: each comes with a wait between two attempts to connect.
        case .unreachable(let environment, let topic, let cause): "unreachable \(environment) \(topic ?? "") \(cause)"
        case .givenUp(let environment, let topic, let status, let reason):
            "given up \(environment) \(topic) \(status) \(reason.rawValue)"
        case .unanswered(let environment, let topic): "unanswered \(environment) \(topic ?? "")"
        }
    }
}

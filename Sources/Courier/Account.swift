public import TLS

/// By what Apple knows the provider.
public enum Credential: Sendable {
    /// Signed by the key of a team: good for all its apps.
    case token(ProviderToken)
    /// Made for one app; shown in the TLS handshake.
    case certificate(ClientCertificate)
}

/// A provider's standing with Apple: for which apps, in which environments, and by what.
public struct Account: Sendable {
    public let credential: Credential
    /// Bundle ids, without a push type's suffix; nil: any.
    public let topics: Set<String>?
    public let environments: Set<Push.Environment>

    /// - Throws: `CourierError.noTopics`, or `.notInCertificate` for a certificate that lists topics, and one of these not.
    public init(
        _ credential: Credential, topics: Set<String>? = nil, environments: Set<Push.Environment> = Set(Push.Environment.allCases)
    ) throws(CourierError) {
        if let topics {
            guard !topics.isEmpty, !topics.contains("") else { throw .noTopics }
            if case .certificate(let certificate) = credential {
                let lacking = topics.subtracting(certificate.topics).min()
                if let lacking, !certificate.topics.isEmpty { throw .notInCertificate(lacking, listed: certificate.topics) }
            }
        }
        self.credential = credential
        self.topics = topics
        self.environments = environments
    }

    /// A team's key for all its apps, in both environments.
    public init(_ token: ProviderToken) {
        credential = .token(token)
        topics = nil
        environments = Set(Push.Environment.allCases)
    }

    /// Whether Apple takes this kind of push from it at all.
    public func takes(_ kind: Push.Kind) -> Bool {
        switch credential {
        case .token: true
        case .certificate: !kind.needsProviderToken
        }
    }

    /// Whether it can send this kind of push to this topic (with its kind's suffix) there.
    public func serves(_ topic: String, _ environment: Push.Environment, _ kind: Push.Kind) -> Bool {
        guard environments.contains(environment), takes(kind) else { return false }
        if case .certificate(let certificate) = credential, !certificate.topics.isEmpty, !certificate.topics.contains(topic) {
            return false
        }
        return topics?.contains(kind.bundleID(of: topic)) ?? true
    }

    /// For alarms: the first few.
    var topicNames: String {
        guard let topics else { return "all topics" }
        let (names, most) = (topics.sorted(), 5)
        return names.prefix(most).joined(separator: ", ") + (names.count > most ? " and \(names.count - most) more" : "")
    }
}

/// All the accounts a courier sends by.
public struct Accounts: Sendable {
    public let all: [Account]

    public init(_ all: [Account]) { self.all = all }

    /// The first one by which such a push can be sent; nil: there is none, and a token for it would be sealed in vain.
    public func account(for topic: String, _ environment: Push.Environment, _ kind: Push.Kind) -> Account? {
        index(topic, environment, kind).map { all[$0] }
    }

    func index(_ topic: String, _ environment: Push.Environment, _ kind: Push.Kind) -> Int? {
        all.firstIndex { $0.serves(topic, environment, kind) }
    }
}

extension Push.Kind {
    /// What its topics end in, after the app's bundle id ("Sending notification requests to APNs").
    public var topicSuffix: String {
        switch self {
        case .alert, .background: ""
        case .voip: ".voip"
        case .liveactivity: ".push-type.liveactivity"
        case .pushtotalk: ".voip-ptt"
        case .location: ".location-query"
        case .complication: ".complication"
        case .fileprovider: ".pushkit.fileprovider"
        case .widgets: ".push-type.widgets"
        case .controls: ".push-type.controls"
        }
    }

    /// Apple takes it from providers with a token only.
    public var needsProviderToken: Bool { self == .voip || self == .liveactivity || self == .location }

    /// A topic of this kind without its suffix.
    func bundleID(of topic: String) -> String {
        let suffix = topicSuffix
        return suffix.isEmpty || !topic.hasSuffix(suffix) ? topic : String(topic.dropLast(suffix.utf8.count))
    }
}

public import TLS
public import Vocabulary

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
    public let environments: Set<PushEnvironment>

    /// - Throws: `CourierError.noTopics`, or `.notInCertificate` for a certificate that lists topics, and one of these not.
    public init(
        _ credential: Credential, topics: Set<String>? = nil, environments: Set<PushEnvironment> = Set(PushEnvironment.allCases)
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
        environments = Set(PushEnvironment.allCases)
    }

    /// Whether Apple takes this type of push from it at all.
    public func takes(_ type: PushType) -> Bool {
        switch credential {
        case .token: true
        case .certificate: !type.needsProviderToken
        }
    }

    /// Whether it can send this type of push to this topic (with its type's suffix) there.
    public func serves(_ topic: String, _ environment: PushEnvironment, _ type: PushType) -> Bool {
        guard environments.contains(environment), takes(type) else { return false }
        if case .certificate(let certificate) = credential, !certificate.topics.isEmpty, !certificate.topics.contains(topic) {
            return false
        }
        return topics?.contains(type.bundleID(of: topic)) ?? true
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
    public func account(for topic: String, _ environment: PushEnvironment, _ type: PushType) -> Account? {
        index(topic, environment, type).map { all[$0] }
    }

    func index(_ topic: String, _ environment: PushEnvironment, _ type: PushType) -> Int? {
        all.indices.first { all[$0].serves(topic, environment, type) }
    }
}

extension PushType {
    /// A topic of this type without its suffix.
    func bundleID(of topic: String) -> String {
        let suffix = topicSuffix
        return suffix.isEmpty || !topic.hasSuffix(suffix) ? topic : String(topic.dropLast(suffix.utf8.count))
    }
}

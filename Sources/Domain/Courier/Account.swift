import Sealing
public import TLS
public import Vocabulary

/// How the provider authenticates with Apple.
public enum Credential: Sendable {
    /// Signed with a team's key. Valid for all of the team's apps.
    case token(ProviderToken)
    /// Issued for one app and presented in the TLS handshake.
    case certificate(ClientCertificate)
}

/// A credential with the apps and environments it is valid for.
public struct Account: Sendable {
    public let credential: Credential
    /// Bundle ids without a push type's suffix. Nil allows any.
    public let topics: Set<String>?
    public let environments: Set<PushEnvironment>

    /// - Throws: `CourierError.noTopics` if `topics` is empty; `.notInCertificate` if the certificate lists topics and one of `topics` is missing.
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

    /// Returns true if Apple accepts this type of push with this credential.
    public func takes(_ type: PushType) -> Bool {
        switch credential {
        case .token: true
        case .certificate: !type.needsProviderToken
        }
    }

    /// Returns true if the account can send this type of push to `topic`, which includes the type's suffix.
    public func serves(_ topic: String, _ environment: PushEnvironment, _ type: PushType) -> Bool {
        guard environments.contains(environment), takes(type) else { return false }
        if case .certificate(let certificate) = credential, !certificate.topics.isEmpty, !certificate.topics.contains(topic) {
            return false
        }
        return topics?.contains(type.bundleID(of: topic)) ?? true
    }

    /// The first few topics, for alarms.
    var topicNames: String {
        guard let topics else { return "all topics" }
        let (names, most) = (topics.sorted(), 5)
        return names.prefix(most).joined(separator: ", ") + (names.count > most ? " and \(names.count - most) more" : "")
    }
}

/// All accounts of a courier.
public struct Accounts: Sendable {
    public let all: [Account]
    private let bundleIDs: [AppID: String]

    /// - Parameter apps: bundle ids of apps that pushes may go to, beside those that the accounts list.
    public init(_ all: [Account], apps: Set<String> = []) {
        self.all = all
        let topics = all.reduce(into: apps) { $0.formUnion($1.topics ?? []) }
        bundleIDs = Dictionary(topics.map { (AppID(bundleID: $0), $0) }) { first, _ in first }
    }

    /// Returns an app's bundle id, or nil if neither an account nor `apps` lists it.
    public func bundleID(of app: AppID) -> String? { bundleIDs[app] }

    /// Returns the first account that can send such a push, or nil if none can. A token without an account must not be sealed.
    public func account(for topic: String, _ environment: PushEnvironment, _ type: PushType) -> Account? {
        index(topic, environment, type).map { all[$0] }
    }

    func index(_ topic: String, _ environment: PushEnvironment, _ type: PushType) -> Int? {
        all.indices.first { all[$0].serves(topic, environment, type) }
    }
}

extension PushType {
    /// Returns a topic of this type without the type's suffix.
    func bundleID(of topic: String) -> String {
        let suffix = topicSuffix
        return suffix.isEmpty || !topic.hasSuffix(suffix) ? topic : String(topic.dropLast(suffix.utf8.count))
    }
}

public import TLS

/// The two services of APNs.
public enum APNsEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}

/// A signing key of a team, with its apps and environments.
public struct ProviderKey: Sendable {
    public var keyID: String
    public var teamID: String
    public var publicKey: ES256.PublicKey
    /// The bundle ids of its apps.
    public var bundleIDs: [String]
    /// In other environments the key is refused with `BadEnvironmentKeyIdInToken`.
    public var environments: Set<APNsEnvironment>

    public init(
        keyID: String, teamID: String, publicKey: ES256.PublicKey, bundleIDs: [String],
        environments: Set<APNsEnvironment> = Set(APNsEnvironment.allCases)
    ) {
        self.keyID = keyID
        self.teamID = teamID
        self.publicKey = publicKey
        self.bundleIDs = bundleIDs
        self.environments = environments
    }
}

extension ProviderKey {
    /// The reason why a description was refused.
    public struct Malformed: Error, Equatable {
        public let explanation: String
    }

    /// Reads `{"keyID", "teamID", "key", "topics", "environments"?}`.
    /// - Parameter readKey: returns the PEM of the file in `key`: a public key, or a private one as downloaded from Apple.
    public init(json: [UInt8], readKey: (String) throws -> [UInt8]) throws {
        guard case .object(let members)? = JSON(parsing: json) else { throw Malformed(explanation: "it must be one JSON object") }
        if let unknown = members.keys.first(where: { !["keyID", "teamID", "key", "topics", "environments"].contains($0) }) {
            throw Malformed(explanation: "\(unknown) is not a field of an app")
        }
        guard case .string(let keyID)? = members["keyID"], case .string(let teamID)? = members["teamID"],
            case .string(let name)? = members["key"]
        else { throw Malformed(explanation: "keyID, teamID and key must be text") }
        guard let topics = Self.texts(members["topics"]), !topics.isEmpty else {
            throw Malformed(explanation: "topics must be a list of bundle ids")
        }
        var environments = Set(APNsEnvironment.allCases)
        if let listed = members["environments"] {
            let named = Self.texts(listed)?.map { APNsEnvironment(rawValue: $0 == "development" ? "sandbox" : $0) }
            guard let named, !named.isEmpty, !named.contains(nil) else {
                throw Malformed(explanation: "environments must be a list of production and sandbox")
            }
            environments = Set(named.compactMap { $0 })
        }
        self.init(
            keyID: keyID, teamID: teamID, publicKey: try Self.publicKey(try readKey(name)), bundleIDs: topics,
            environments: environments)
    }

    private static func texts(_ value: JSON?) -> [String]? {
        guard case .array(let items)? = value else { return nil }
        var texts: [String] = []
        for item in items {
            guard case .string(let text) = item, !text.isEmpty else { return nil }
            texts.append(text)
        }
        return texts
    }

    private static func publicKey(_ pem: [UInt8]) throws(TLSError) -> ES256.PublicKey {
        if let key = try? ES256.PublicKey(pem: pem.span) { return key }
        let text = try ES256.PrivateKey(pem: pem.span).publicKeyPEM()
        return try ES256.PublicKey(pem: text.span)
    }
}

/// A provider's client certificate. Source: Apple, "Establishing a certificate-based connection to APNs". The meaning of the extensions is
/// inferred from Apple's certificates.
struct PushCertificate: Equatable {
    /// True if the certificate is in date, from a known authority and has bundle ids.
    let isValid: Bool
    /// The user ids of its subject.
    let bundleIDs: [String]
    let environments: Set<APNsEnvironment>

    private static let marks: [(extension: String, environment: APNsEnvironment)] = [
        ("1.2.840.113635.100.6.3.1", .sandbox), ("1.2.840.113635.100.6.3.2", .production),
    ]

    init(_ certificate: PeerCertificate) {
        bundleIDs = certificate.userIDs
        isValid = certificate.fault == nil && !certificate.userIDs.isEmpty
        let marked = Self.marks.filter { certificate.extensions.contains($0.extension) }.map(\.environment)
        // Without a mark, a certificate is for both (ours).
        environments = marked.isEmpty ? Set(APNsEnvironment.allCases) : Set(marked)
    }
}

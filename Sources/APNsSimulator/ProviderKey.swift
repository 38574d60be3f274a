public import TLS

/// Apple's two services.
public enum APNsEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}

/// One signing key of one team, and what may be pushed with it.
public struct ProviderKey: Sendable {
    public var keyID: String
    public var teamID: String
    public var publicKey: ES256.PublicKey
    /// The apps it is for, by their bundle ids.
    public var bundleIDs: [String]
    /// In another one it is refused with `BadEnvironmentKeyIdInToken`.
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
    /// Why a description was refused.
    public struct Malformed: Error, Equatable {
        public let explanation: String
    }

    /// Reads `{"keyID", "teamID", "key", "topics", "environments"?}`.
    /// - Parameter readKey: the PEM behind the name in `key`: a public key, or the private one as Apple gives it out.
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

import API

/// The algorithm, keys and claims by which users' JWTs are verified.
struct JWTSettings {
    static let keys: [Key] = [.jwtAlgorithm, .jwtKey, .jwtJWKS, .jwtIssuer, .jwtAudience, .jwtUserClaim]

    let algorithm: JSONWebAlgorithm
    let source: JSONWebKeySource
    let issuer: String?
    let audience: String?
    let userClaim: String
    /// The setting of the key file, for errors.
    private let named: String

    /// Returns nil if none of the keys is set. Then only rooms are served.
    init?(_ configuration: Configuration) throws {
        guard let given = Self.keys.first(where: { configuration[$0] != nil }) else { return nil }
        guard configuration[.jwtAlgorithm] != nil else {
            throw configuration.invalid(
                given, "needs --jwt-algorithm: the broker never reads the algorithm from a JWT")
        }
        algorithm = try Self.algorithm(configuration)
        switch (try configuration.file(.jwtKey), try configuration.file(.jwtJWKS)) {
        case (let file?, nil): (source, named) = (.key(path: file.path), file.source)
        case (nil, let file?): (source, named) = (.keySet(path: file.path), file.source)
        case (nil, nil): throw configuration.invalid(.jwtAlgorithm, "needs --jwt-key or --jwt-jwks, the key that verifies JWTs")
        default: throw UsageError("--jwt-key and --jwt-jwks exclude each other: set one of them")
        }
        issuer = configuration[.jwtIssuer]
        audience = configuration[.jwtAudience]
        userClaim = try Self.userClaim(configuration)
    }

    static func userClaim(_ configuration: Configuration) throws -> String {
        guard let claim = configuration[.jwtUserClaim] else { return "sub" }
        // Errors show the claim's name, also in a header.
        let isPlain = claim.utf8.allSatisfy { 0x21...0x7e ~= $0 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }
        guard claim.utf8.count <= 128, isPlain else {
            throw configuration.invalid(
                .jwtUserClaim, "must be a claim's name: 1 to 128 visible ASCII characters without quote or backslash")
        }
        guard !["aud", "exp", "iat", "iss", "nbf", "scope", "scp"].contains(claim) else {
            throw configuration.invalid(.jwtUserClaim, "can't be \(claim): that claim has another meaning")
        }
        return claim
    }

    static func algorithm(_ configuration: Configuration) throws -> JSONWebAlgorithm {
        guard let algorithm = JSONWebAlgorithm(rawValue: try configuration.required(.jwtAlgorithm)) else {
            throw configuration.invalid(
                .jwtAlgorithm, "must be one of \(JSONWebAlgorithm.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        return algorithm
    }

    /// Reads the key file.
    func authenticator() throws -> Authenticator {
        try CommandFailed.naming(named) {
            try Authenticator(algorithm: algorithm, source: source, issuer: issuer, audience: audience, userClaim: userClaim)
        }
    }
}

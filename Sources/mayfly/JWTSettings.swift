import API

/// How users are known, read and checked before anything is opened.
struct JWTSettings {
    static let keys: [Key] = [.jwtAlgorithm, .jwtKey, .jwtJWKS, .jwtIssuer, .jwtAudience]

    let algorithm: JSONWebAlgorithm
    let source: JSONWebKeySource
    let issuer: String?
    let audience: String?
    /// What names the keys, for errors.
    private let named: String

    /// Nil where nothing of it is set: then only rooms are served.
    init?(_ configuration: Configuration) throws {
        guard let given = Self.keys.first(where: { configuration[$0] != nil }) else { return nil }
        guard configuration[.jwtAlgorithm] != nil else {
            throw UsageError(
                "--\(given.rawValue) (\(given.environment)) needs --jwt-algorithm: the one that JWTs are signed with is never taken from them"
            )
        }
        algorithm = try Self.algorithm(configuration)
        switch (configuration[.jwtKey], configuration[.jwtJWKS]) {
        case (let path?, nil): (source, named) = (.key(path: path), configuration.name(.jwtKey))
        case (nil, let path?): (source, named) = (.keySet(path: path), configuration.name(.jwtJWKS))
        case (nil, nil): throw UsageError("--jwt-algorithm needs --jwt-key or --jwt-jwks: what JWTs are verified by")
        default: throw UsageError("--jwt-key and --jwt-jwks are two ways to name keys: give one of them")
        }
        issuer = configuration[.jwtIssuer]
        audience = configuration[.jwtAudience]
    }

    static func algorithm(_ configuration: Configuration) throws -> JSONWebAlgorithm {
        guard let algorithm = JSONWebAlgorithm(rawValue: try configuration.required(.jwtAlgorithm)) else {
            throw UsageError("--jwt-algorithm takes \(JSONWebAlgorithm.allCases.map(\.rawValue).joined(separator: ", "))")
        }
        return algorithm
    }

    /// Reads the keys.
    func authenticator() throws -> Authenticator {
        do throws(JSONWebKeyError) {
            return try Authenticator(algorithm: algorithm, source: source, issuer: issuer, audience: audience)
        } catch { throw CheckFailed("mayfly: \(named): \(error)") }
    }
}

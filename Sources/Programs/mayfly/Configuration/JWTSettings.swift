import API
import Broker
import EventLoop
import HTTPServer
import TLS

/// The algorithm, keys and claims by which users' JWTs are verified.
struct JWTSettings {
    static let keys: [Setting] = [.jwtAlgorithm, .jwtKey, .jwtJWKS, .jwtIssuer, .jwtAudience, .jwtUserClaim]

    let algorithm: JSONWebAlgorithm
    let source: JSONWebKeySource
    let issuer: String?
    let audience: String?
    let userClaim: String
    /// The JWK set's URL. Never shown, because its query may contain a secret. Nil for a file.
    private let url: String?
    /// The setting of the keys, for errors.
    private let named: String

    static func areGiven(_ configuration: Configuration) -> Bool { keys.contains { configuration[$0] != nil } }

    /// Returns nil if none of the keys is set. Then only rooms are served.
    init?(_ configuration: Configuration) throws {
        guard let given = Self.keys.first(where: { configuration[$0] != nil }) else { return nil }
        guard configuration[.jwtAlgorithm] != nil else {
            throw configuration.invalid(
                given, "needs --jwt-algorithm: the broker never reads the algorithm from a JWT")
        }
        algorithm = try Self.algorithm(configuration)
        url = try Self.url(configuration, algorithm)
        switch (try configuration.file(.jwtKey), try url == nil ? configuration.file(.jwtJWKS) : nil, url) {
        case (let file?, nil, nil): (source, named) = (.key(path: file.path), file.source)
        case (nil, let file?, nil): (source, named) = (.keySet(path: file.path), file.source)
        case (nil, nil, _?): (source, named) = (.remote, configuration.name(.jwtJWKS))
        case (nil, nil, nil):
            throw configuration.invalid(.jwtAlgorithm, "needs --jwt-key or --jwt-jwks, the key that verifies JWTs")
        default: throw UsageError("--jwt-key and --jwt-jwks exclude each other: set one of them")
        }
        issuer = configuration[.jwtIssuer]
        audience = configuration[.jwtAudience]
        userClaim = try Self.userClaim(configuration)
    }

    /// Returns nil if the JWK set is in a file.
    private static func url(_ configuration: Configuration, _ algorithm: JSONWebAlgorithm) throws -> String? {
        guard let url = configuration[.jwtJWKS], url.contains("://") else { return nil }
        guard url.lowercased().hasPrefix("https://"), HTTPClient.accepts(url) else {
            throw configuration.invalid(
                .jwtJWKS, "must be a file, or a URL that begins with https://, in ASCII and without user name and password")
        }
        guard algorithm != .hs256 else {
            throw configuration.invalid(.jwtJWKS, "must be a file for HS256, whose key is a secret: no URL may serve it")
        }
        return url
    }

    static func userClaim(_ configuration: Configuration) throws -> String {
        let claim = configuration.value(.jwtUserClaim)
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

    /// Reads the key file, and warns of malformed keys. Reads nothing from a URL.
    func authenticator() throws -> Authenticator {
        let authenticator = try CommandFailed.naming(named) {
            try Authenticator(algorithm: algorithm, source: source, issuer: issuer, audience: audience, userClaim: userClaim)
        }
        if let warning = authenticator.warning { Terminal.log(.warning, warning) }
        return authenticator
    }

    /// The same, with the set from its URL.
    func completeAuthenticator() async throws -> Authenticator {
        let authenticator = try authenticator()
        guard url != nil else { return authenticator }
        let loop = try EventLoop(name: "jwks")
        try loop.start()
        defer { loop.stop() }
        do {
            let text = try await keySet(on: loop)()
            try authenticator.use(set: text.span)
        } catch { throw CommandFailed("\(named): the JWK set can't be read: \(error)") }
        if let warning = authenticator.warning { Terminal.log(.warning, warning) }
        return authenticator
    }

    /// The line of `mayfly check`.
    func check(isOffline: Bool) async throws -> String {
        if isOffline, url != nil { return "the keys for \(algorithm.rawValue) come from a URL, which was not asked" }
        return try await completeAuthenticator().keysText
    }

    /// Keeps the authenticator's keys equal to the set at the URL. Returns nil for a file.
    /// - Parameter loop: makes the loop that runs the client. Slow lookups and servers keep nothing else waiting there.
    func refresh(
        _ authenticator: Authenticator, _ metrics: Metrics, _ log: Logger, on loop: () throws -> EventLoop
    ) throws -> JSONWebKeyRefresh? {
        guard url != nil else { return nil }
        let loop = try loop()
        return JSONWebKeyRefresh(
            loop: loop, authenticator: authenticator, metrics: metrics, log: log, get: try keySet(on: loop))
    }

    /// Returns a function that gets the set's text. It follows no redirect, since that could lead to anybody's keys.
    private func keySet(on loop: EventLoop) throws -> JSONWebKeyRefresh.Get {
        let client = HTTPClient(loop: loop, tls: try TLSContext.client(trust: .system, alpn: ["http/1.1"]))
        let url = url ?? ""
        return {
            let answer = try await client.send(
                url,
                headers: [
                    .init("Accept", "application/jwk-set+json, application/json"), .init("User-Agent", "mayfly"),
                ],
                timeoutMs: JSONWebKeyRefresh.timeoutMs, maximumBytes: JSONWebKeyRefresh.largestSet)
            // The next reading is in minutes. Servers close idle connections before that.
            await client.close()
            switch answer.status {
            case 200: return answer.body
            case 300..<400: throw ClientError.redirected(answer.status)
            default: throw ClientError.refused(answer.status)
            }
        }
    }
}

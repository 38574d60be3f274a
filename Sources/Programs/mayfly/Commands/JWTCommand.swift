import API
import Broker
import Linux

/// `mayfly jwt`: makes a JWT for development, or checks one.
enum JWTCommand {
    private static let longestLifeS = 366 * 86_400
    private static let options: Set<String> = ["sub", "scope", "expires-in", "kid"]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, JWTSettings.keys, shortFlags: true)) }
        let configuration = try Configuration(
            words, keys: JWTSettings.keys, switches: ["verify"], options: options, shortFlags: true)
        guard configuration.operands.isEmpty else { throw UsageError("jwt accepts flags only") }
        if configuration.has("verify") { return try await verify(configuration) }
        guard configuration[.jwtJWKS] == nil || configuration[.jwtKey] != nil else {
            throw UsageError("jwt signs with one key: use --key, and --kid for its id")
        }
        let algorithm = try JWTSettings.algorithm(configuration)
        let path = try configuration.requiredFile(.jwtKey).path
        let signer = try CommandFailed.naming(configuration.name(.jwtKey)) {
            try JSONWebSigner(algorithm: algorithm, path: path)
        }
        let now = Clock.wallMs / 1_000
        let claims = JSONWebSigner.Claims(
            user: try user(configuration), userClaim: try JWTSettings.userClaim(configuration),
            scope: configuration.repeated["scope"]?.joined(separator: " "), issuer: configuration[.jwtIssuer],
            audience: configuration[.jwtAudience], issuedAtS: now, expiresAtS: now + (try life(configuration)))
        Terminal.out(try signer.token(claims, keyID: configuration.option("kid")))
    }

    /// Checks whether a broker with these settings accepts the JWT.
    private static func verify(_ configuration: Configuration) async throws {
        if let option = options.first(where: { configuration.repeated[$0] != nil }) {
            throw UsageError("--\(option) is for signing a JWT, not for --verify")
        }
        guard let settings = try JWTSettings(configuration) else {
            throw UsageError("jwt --verify needs --algorithm, and --key or --jwks")
        }
        let authenticator = try await settings.completeAuthenticator()
        let usage = "jwt --verify reads a JWT from the first line of standard input"
        guard var text = try Terminal.inputLine(limit: 65_536, usage), !text.isEmpty else { throw UsageError(usage) }
        defer { wipe(&text) }
        let principal: Principal
        do {
            principal = try authenticator.principal(of: text.span, nowMs: Clock.wallMs)
        } catch let error as BrokerError { throw CheckFailed("\(error.code): \(error.detail)") }
        Terminal.out(
            "good: the user is \(Terminal.quoted(String(decoding: principal.user, as: UTF8.self)))"
                + (principal.isBackEnd ? ", by a back end" : ""))
    }

    private static func user(_ configuration: Configuration) throws -> String {
        guard let user = try configuration.option("sub"), Principal.userRange.contains(user.utf8.count) else {
            throw UsageError("--sub is missing: a user's id of 1 to 128 bytes")
        }
        return user
    }

    private static func life(_ configuration: Configuration) throws -> UInt64 {
        guard let text = try configuration.option("expires-in") else { return 3_600 }
        guard let seconds = Int(text), (1...longestLifeS).contains(seconds) else {
            throw UsageError("--expires-in must be seconds, 1 to \(longestLifeS)")
        }
        return UInt64(seconds)
    }

    private static let usage = """
        usage: mayfly jwt --sub USER --algorithm A --key FILE [--scope broker.notify] [--expires-in SECONDS] [--kid ID] [--issuer I] [--audience A] [--user-claim NAME]
               mayfly jwt --verify --algorithm A (--key FILE | --jwks FILE-OR-URL) [--issuer I] [--audience A] [--user-claim NAME]
        Prints a JWT for development, as an app's login would sign it. It is a secret until it expires, by default in an hour. FILE contains
        the secret of HS256, or a private key in PEM. --scope broker.notify makes it a JWT of a back end, which may act for every user.
          --verify   check whether a broker with these settings accepts the JWT on standard input. FILE is the broker's
        """
}

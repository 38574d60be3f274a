import Broker
import FoundationEssentials
import Linux
import Sodium

@testable import API

/// JWTs: unsigned input, input as a signed header and claims, and key sets.
enum TokenFuzz {
    private static let now: UInt64 = 1_800_000_000_000
    private static let secret = Array("the fuzzed secret, which no one knows".utf8)
    private static let authenticator: Authenticator = {
        guard let folder = try? File.makeTemporaryFolder() else { fatalError("a folder for the secret") }
        defer { try? File.removeTree(folder) }
        let path = folder + "/secret"
        guard (try? File.write(path, secret.span, mode: 0o600)) != nil,
            let made = try? Authenticator(algorithm: .hs256, source: .key(path: path), issuer: nil, audience: nil)
        else { fatalError("an authenticator") }
        return made
    }()

    static func run(_ input: [UInt8]) {
        require(principal(input) == nil, "nobody signs without the secret")
        // A header up to a zero, then claims.
        let parts = input.split(separator: 0, maxSplits: 1, omittingEmptySubsequences: false)
        let claims = parts.count > 1 ? Array(parts[1]) : input
        let header = parts.count > 1 ? Array(parts[0]) : Array(#"{"alg":"HS256"}"#.utf8)
        if let principal = principal(signed(header, claims)) { check(principal, header, claims) }
        for algorithm in JSONWebAlgorithm.allCases { _ = try? JSONWebKeySet(input.span, for: algorithm) }
    }

    private static func principal(_ token: [UInt8]) -> Principal? { try? authenticator.principal(of: token.span, nowMs: now) }

    private static func signed(_ header: [UInt8], _ claims: [UInt8]) -> [UInt8] {
        let message = Array((Base64.url.encode(header.span) + "." + Base64.url.encode(claims.span)).utf8)
        let code = HMACSHA256.code(message.span, key: secret.span)
        return message + Array(("." + Base64.url.encode(code.span)).utf8)
    }

    /// Accepted claims equal Foundation's.
    private static func check(_ principal: Principal, _ header: [UInt8], _ claims: [UInt8]) {
        struct Header: Decodable { let alg: String }
        struct Claims: Decodable {
            let sub: String
            let exp: Double
        }
        guard let theirs = try? JSONDecoder().decode(Header.self, from: Data(header)), theirs.alg == "HS256",
            let said = try? JSONDecoder().decode(Claims.self, from: Data(claims))
        else { return require(FoundationValue.mayRefuse(header) || FoundationValue.mayRefuse(claims), "Foundation reads it too") }
        require(Array(said.sub.utf8) == principal.user && Principal.userRange.contains(principal.user.count), "the same user")
        require(Int(said.exp) + JSONWebClaims.leewaySeconds > Int(now / 1_000), "not expired")
    }
}

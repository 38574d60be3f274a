public import Broker
import HTTPServer
import Synchronization

/// Verifies JWTs with the configured algorithm, keys and claims. JWTs are neither logged nor kept.
public final class Authenticator: Sendable {
    private let algorithm: JSONWebAlgorithm
    private let claims: JSONWebClaims
    private let source: JSONWebKeySource
    private let state: Mutex<(keys: JSONWebKeySet, withdrawals: Int)>

    /// - Parameters:
    ///   - source: the file with the keys, read now and by `reload`.
    ///   - issuer: the required `iss`. Nil accepts any.
    ///   - audience: the audience that `aud` must contain. Nil refuses a JWT with `aud`.
    ///   - userClaim: the claim that names the user.
    public init(
        algorithm: JSONWebAlgorithm, source: JSONWebKeySource, issuer: String?, audience: String?, userClaim: String = "sub"
    ) throws(JSONWebKeyError) {
        self.algorithm = algorithm
        self.source = source
        claims = JSONWebClaims(
            issuer: issuer.map { Array($0.utf8) }, audience: audience.map { Array($0.utf8) }, userClaim: userClaim)
        state = Mutex((try source.load(for: algorithm), 0))
    }

    /// Reads the file again. If it is invalid, the previous keys stay in use.
    /// - Returns: how many of the previous keys were removed. JWTs of removed keys are no longer valid.
    @discardableResult public func reload() throws(JSONWebKeyError) -> (removed: Int, of: Int) {
        let new = try source.load(for: algorithm)
        return state.withLock { state in
            let before = state.keys.keys
            let removed = before.count { !new.keys.contains($0) }
            state = (new, state.withdrawals + (removed > 0 ? 1 : 0))
            return (removed, before.count)
        }
    }

    /// The number of reloads that removed a key. Callers that keep a principal read it before verifying the JWT.
    var withdrawals: Int { state.withLock { $0.withdrawals } }

    private var keys: JSONWebKeySet { state.withLock { $0.keys } }

    /// Text for the log: how many keys are in use, and which keys of a set aren't.
    public var keysText: String {
        let keys = keys
        let count = keys.keys.count == 1 ? "one key" : "\(keys.keys.count) keys"
        let rest = keys.skipped.isEmpty ? "" : "; not used: " + keys.skipped.joined(separator: ", ")
        return "\(count) for \(algorithm.rawValue) from \(source.path)\(rest)"
    }

    /// Verifies a JWT and returns its user.
    /// - Throws: `.invalidJWT` or `.jwtExpired`.
    public func principal(of token: Span<UInt8>, nowMs: UInt64) throws(BrokerError) -> Principal {
        let parts = try JSONWebToken(token)
        try parts.verify(token, algorithm: algorithm, keys: keys)
        return try parts.withClaims(token) { bytes throws(BrokerError) in try claims.principal(bytes, nowMs: nowMs) }
    }

    /// Verifies the bearer of a request.
    /// - Throws: `.noJWT`, `.invalidJWT` or `.jwtExpired`.
    func principal(_ request: HTTPRequest, nowMs: UInt64) throws(BrokerError) -> Principal {
        let found = try request.withBearer { token throws(BrokerError) in try self.principal(of: token, nowMs: nowMs) }
        guard let found else { throw .noJWT }
        return found
    }
}

extension HTTPRequest {
    /// Calls `use` with the bearer of `Authorization` (RFC 6750 section 2.1). Returns nil without one, or for another scheme. The engine
    /// refuses a second `Authorization`.
    func withBearer<Value, Failure: Error>(
        _ use: (Span<UInt8>) throws(Failure) -> Value
    ) throws(Failure) -> Value? {
        let found = try withHeader("authorization") { value throws(Failure) -> Value? in
            // The scheme's name is case-insensitive (RFC 9110 section 11.1).
            let scheme = Array("bearer ".utf8)
            guard value.count >= scheme.count, scheme.indices.allSatisfy({ value[$0] | 0x20 == scheme[$0] | 0x20 }) else {
                return nil
            }
            return try use(value.extracting(scheme.count..<value.count))
        }
        return found ?? nil
    }
}

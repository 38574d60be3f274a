public import Broker
import HTTPServer
import Synchronization

/// Who calls: finds the user in a JWT by the algorithm, keys and names of the configuration. The JWT is printed nowhere and kept nowhere.
public final class Authenticator: Sendable {
    public let algorithm: JSONWebAlgorithm
    private let claims: JSONWebClaims
    private let source: JSONWebKeySource
    private let state: Mutex<(keys: JSONWebKeySet, withdrawals: Int)>

    /// - Parameters:
    ///   - source: the file with the keys, read now and again by `reload`.
    ///   - issuer: what `iss` must be; nil where it may be anything. - audience: what `aud` must name; nil where there must be none.
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

    /// Reads the file again. If it is no good the keys stay as they are.
    /// - Returns: how many keys are gone of so many that were in use: whom one of them vouched for must show another JWT.
    @discardableResult public func reload() throws(JSONWebKeyError) -> (gone: Int, of: Int) {
        let new = try source.load(for: algorithm)
        return state.withLock { state in
            let before = state.keys.keys
            let gone = before.count { !new.keys.contains($0) }
            state = (new, state.withdrawals + (gone > 0 ? 1 : 0))
            return (gone, before.count)
        }
    }

    /// How often a reload took away a key that was in use. Whoever keeps a principal reads it before the JWT is verified.
    var withdrawals: Int { state.withLock { $0.withdrawals } }

    private var keys: JSONWebKeySet { state.withLock { $0.keys } }

    /// How many keys are in use, for people, and which of a set are not.
    public var keysText: String {
        let keys = keys
        let count = keys.keys.count == 1 ? "one key" : "\(keys.keys.count) keys"
        let rest = keys.passedOver.isEmpty ? "" : "; not used: " + keys.passedOver.joined(separator: ", ")
        return "\(count) for \(algorithm.rawValue) from \(source.path)\(rest)"
    }

    /// The caller whose JWT this is.
    /// - Throws: `.invalidJWT` and `.jwtExpired`.
    public func principal(of token: Span<UInt8>, nowMs: UInt64) throws(BrokerError) -> Principal {
        let parts = try JSONWebToken(token)
        try parts.verify(token, algorithm: algorithm, keys: keys)
        return try parts.withClaims(token) { bytes throws(BrokerError) in try claims.principal(bytes, nowMs: nowMs) }
    }
}

extension HTTPRequest {
    /// Calls `use` with the bearer of `Authorization` (RFC 6750 section 2.1); nil without one, or with another scheme. The engine refuses
    /// a second `Authorization`.
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

extension Authenticator {
    /// The caller.
    /// - Throws: `.noJWT`, `.invalidJWT` and `.jwtExpired`.
    func principal(_ request: HTTPRequest, nowMs: UInt64) throws(BrokerError) -> Principal {
        let found = try request.withBearer { token throws(BrokerError) in try self.principal(of: token, nowMs: nowMs) }
        guard let found else { throw .noJWT }
        return found
    }
}

public import Broker
import HTTPServer
import Synchronization

/// Verifies JWTs with the configured algorithm, keys and claims. JWTs are neither logged nor kept.
public final class Authenticator: Sendable {
    private struct State {
        /// The set that was read last. Nil if the URL has given none yet.
        var keys: JSONWebKeySet?
        var withdrawals = 0
        /// False while the URL is being read, and after a failed reading. An unknown key may then be in the newer set.
        var isCurrent: Bool
        var refresh: JSONWebKeyRefresh?
    }

    let algorithm: JSONWebAlgorithm
    private let claims: JSONWebClaims
    private let source: JSONWebKeySource
    private let state: Mutex<State>

    /// - Parameters:
    ///   - source: where the keys are. A file is read now and by `reload`.
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
        let keys = try source.load(for: algorithm)
        state = Mutex(State(keys: keys, isCurrent: keys != nil))
    }

    /// Reads the file again. If it is invalid, the previous keys stay in use. Does nothing for a URL.
    /// - Returns: how many of the previous keys were removed. JWTs of removed keys are no longer valid.
    @discardableResult public func reload() throws(JSONWebKeyError) -> (removed: Int, of: Int) {
        guard let new = try source.load(for: algorithm) else { return (0, 0) }
        return replace(by: new)
    }

    /// Uses these keys from now on.
    /// - Returns: how many of the previous keys were removed.
    @discardableResult func replace(by new: JSONWebKeySet) -> (removed: Int, of: Int) {
        state.withLock { state in
            let before = state.keys?.keys ?? []
            let removed = before.count { !new.keys.contains($0) }
            (state.keys, state.isCurrent) = (new, true)
            state.withdrawals += removed > 0 ? 1 : 0
            return (removed, before.count)
        }
    }

    /// Uses the JWK set in this text from now on.
    public func use(set text: Span<UInt8>) throws(JSONWebKeyError) { replace(by: try JSONWebKeySet(text, for: algorithm)) }

    /// The set at the URL is being read, or could not be read.
    func markStale() { state.withLock { $0.isCurrent = false } }

    /// Lets JWTs with unknown keys cause a refresh.
    func use(_ refresh: JSONWebKeyRefresh) { state.withLock { $0.refresh = refresh } }

    /// The number of reloads that removed a key. Callers that keep a principal read it before verifying the JWT.
    var withdrawals: Int { state.withLock { $0.withdrawals } }

    /// The set that was read last. Nil if the URL has given none yet.
    var keys: JSONWebKeySet? { state.withLock { $0.keys } }

    /// Text for the log: how many keys are in use, and which keys of a set are for other purposes.
    public var keysText: String {
        guard let keys else { return "no keys for \(algorithm.rawValue) yet" }
        let count = keys.keys.count == 1 ? "one key" : "\(keys.keys.count) keys"
        let rest = keys.skipped.isEmpty ? "" : "; not used: \(JSONWebKeySet.list(keys.skipped))"
        return "\(count) for \(algorithm.rawValue) from \(source.path ?? "the URL")\(rest)"
    }

    /// Text for the log after a reload, which removed some of the previous keys.
    public func reloadText(removed: Int, of before: Int) -> String {
        let end = removed == 0 ? "" : "; \(removed) of \(before) previous keys removed: every /ws/sessions is closed"
        return "jwt: \(keysText)\(end)"
    }

    /// A warning for the log about malformed keys of the set. Nil if there are none.
    public var warning: String? {
        guard let malformed = keys?.malformed, !malformed.isEmpty else { return nil }
        return "jwt: keys of the set are not used: \(JSONWebKeySet.list(malformed)). JWTs that they signed are refused"
    }

    /// Verifies a JWT and returns its user.
    /// - Throws: `.invalidJWT`, `.jwtExpired`, or `.keysUnavailable` if the key may be in a set that can't be read now.
    public func principal(of token: Span<UInt8>, nowMs: UInt64) throws -> Principal {
        let (keys, isCurrent) = state.withLock { ($0.keys, $0.isCurrent) }
        guard let keys else { throw BrokerError.keysUnavailable }
        let parts = try JSONWebToken(token)
        do {
            try parts.verify(token, algorithm: algorithm, keys: keys)
        } catch BrokerError.invalidJWT(.unknownKey) where !isCurrent {
            throw BrokerError.keysUnavailable
        }
        return try parts.withClaims(token) { bytes in try claims.principal(bytes, nowMs: nowMs) }
    }

    /// Verifies the bearer of a request. Reads the set at a URL again if it lacks the key.
    /// - Parameter nowMs: returns unix ms.
    /// - Throws: `.noJWT`, `.invalidJWT`, `.jwtExpired` or `.keysUnavailable`.
    func principal(_ request: HTTPRequest, nowMs: () -> UInt64) async throws -> Principal {
        do {
            return try bearer(request, nowMs: nowMs())
        } catch let error as BrokerError {
            guard await isWorthRetrying(error) else { throw error }
        }
        return try bearer(request, nowMs: nowMs())
    }

    private func bearer(_ request: HTTPRequest, nowMs: UInt64) throws -> Principal {
        // Without keys no caller is told that it lacks a JWT: it would ask its user to log in.
        guard keys != nil else { throw BrokerError.keysUnavailable }
        let found = try request.withBearer { token in try self.principal(of: token, nowMs: nowMs) }
        guard let found else { throw BrokerError.noJWT }
        return found
    }

    /// Waits for the set at the URL to be read again if the error says that it lacks a key.
    ///
    /// A request waits with its charges, so the shares of its network bound how many of a caller's can wait.
    /// - Returns: false if nothing was read.
    func isWorthRetrying(_ error: BrokerError) async -> Bool {
        guard error == .invalidJWT(.unknownKey) || error == .keysUnavailable,
            let refresh = state.withLock({ $0.refresh })
        else { return false }
        return await refresh.refreshForUnknownKey()
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

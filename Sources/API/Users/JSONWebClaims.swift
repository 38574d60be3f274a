import Broker
import JSON

/// What the claims of a JWT must say (RFC 7519 section 4.1), whoever signed them.
struct JSONWebClaims: Sendable {
    /// `iss`, if one is demanded.
    let issuer: [UInt8]?
    /// What `aud` must name. Without one, no JWT with an `aud` is for this broker (RFC 7519 section 4.1.3).
    let audience: [UInt8]?
    /// The claim that names the user.
    let userClaim: String

    init(issuer: [UInt8]?, audience: [UInt8]?, userClaim: String = "sub") {
        (self.issuer, self.audience, self.userClaim) = (issuer, audience, userClaim)
    }

    /// How far the clocks of whoever signs and of this machine may lie apart, in seconds.
    static let skewSeconds = 30
    static let backEndScope = Array("broker.notify".utf8)
    /// The end of the year 9999, the last that RFC 3339 can write.
    private static let latest = 253_402_300_799

    func principal(_ bytes: Span<UInt8>, nowMs: UInt64) throws(BrokerError) -> Principal {
        guard let claims = JSONObject(bytes) else { throw .invalidJWT(.malformed) }
        let end = try checkTimes(claims, bytes, nowMs: nowMs)
        if let issuer {
            guard let own = try? claims.bytes("iss", in: bytes), own == issuer else { throw .invalidJWT(.wrongIssuer) }
        }
        try checkAudience(claims, bytes)
        let user = try user(claims, bytes)
        let isBackEnd = try Self.words(claims, bytes).contains(Self.backEndScope)
        return Principal(user: user, isBackEnd: isBackEnd, expiresMs: UInt64(end) * 1_000)
    }

    private func user(_ claims: JSONObject, _ bytes: Span<UInt8>) throws(BrokerError) -> [UInt8] {
        if let user = try? claims.bytes(userClaim, in: bytes), Principal.userRange.contains(user.count) { return user }
        // `sub` is always text (RFC 7519 section 4.1.2). Claims of an app's own are often the row number of its user.
        if userClaim != "sub", let number = try? claims.integer(userClaim, in: bytes) { return Array(String(number).utf8) }
        throw .invalidJWT(.badUser(claim: userClaim))
    }

    /// - Returns: when it ends, unix seconds.
    private func checkTimes(_ claims: JSONObject, _ bytes: Span<UInt8>, nowMs: UInt64) throws(BrokerError) -> Int {
        let now = Int(clamping: nowMs / 1_000)
        guard let end = try Self.time("exp", claims, bytes) else { throw .invalidJWT(.noExpiry) }
        guard now < end + Self.skewSeconds else { throw .jwtExpired }
        for name in ["nbf", "iat"] {
            if let start = try Self.time(name, claims, bytes), start > now + Self.skewSeconds {
                throw .invalidJWT(.notYet(name))
            }
        }
        return end
    }

    private static func time(_ name: String, _ claims: JSONObject, _ bytes: Span<UInt8>) throws(BrokerError) -> Int? {
        do throws(JSONObject.Failure) {
            guard let time = try claims.integer(name, in: bytes) else { return nil }
            guard (0...latest).contains(time) else { throw .outOfRange }
            return time
        } catch { throw .invalidJWT(.badTime(name)) }
    }

    private func checkAudience(_ claims: JSONObject, _ bytes: Span<UInt8>) throws(BrokerError) {
        guard let audience else {
            guard !claims.has("aud", in: bytes) else { throw .invalidJWT(.unexpectedAudience) }
            return
        }
        guard let named = try? claims.texts("aud", in: bytes), named.contains(audience) else { throw .invalidJWT(.wrongAudience) }
    }

    /// The words of `scope` (RFC 8693 section 4.2) and `scp`, each text with spaces or a list.
    private static func words(_ claims: JSONObject, _ bytes: Span<UInt8>) throws(BrokerError) -> [[UInt8]] {
        var words: [[UInt8]] = []
        for name in ["scope", "scp"] {
            do throws(JSONObject.Failure) {
                for text in try claims.texts(name, in: bytes) ?? [] { words += text.split(separator: 0x20).map { Array($0) } }
            } catch { throw .invalidJWT(.badScope) }
        }
        return words
    }
}

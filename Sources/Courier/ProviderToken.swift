import JSON
import Sealing
import Sodium
public import TLS

/// The JWT by which Apple knows the provider: one for all connections, kept for 50 minutes and across restarts, because Apple
/// refuses both one older than an hour and more than one in 20 minutes. Across restarts only its birth is kept: signed again with the
/// same `iat` it is the same to Apple, and what lies on disk lets nobody push.
public struct ProviderToken: Sendable {
    /// A JWT and its birth. A secret for an hour.
    public struct Issued: Sendable, Equatable, Redacted {
        /// `iat`, unix seconds.
        public let issuedAtS: UInt64
        public let jwt: String
        /// The header's value.
        let authorization: String

        public init(issuedAtS: UInt64, jwt: String) {
            self.issuedAtS = issuedAtS
            self.jwt = jwt
            authorization = "bearer " + jwt
        }
    }

    /// How old one gets.
    static let lifeS: UInt64 = 50 * 60
    /// How old one must be before Apple takes another.
    static let leastLifeS: UInt64 = 20 * 60

    public let keyID: String
    public let teamID: String
    private let key: ES256.PrivateKey
    /// Stores a birth; returns when it is stored, or can't be. Nil: births are not stored.
    let store: (@Sendable (UInt64) async -> Void)?
    private var issued: Issued?
    /// The birth of an earlier run's, until it is used or too old.
    private var storedIssuedAtS: UInt64?

    /// - Parameters:
    ///   - keyID: the key's ten characters, `kid`. - teamID: `iss`.
    ///   - issuedAtS: when an earlier run of the same key and team made its last one, unix seconds.
    ///   - store: is told the birth of every new one, which is not used before this has returned.
    /// - Throws: `CourierError.badKeyID` and `.badTeamID` unless they are 1 to 32 letters and digits.
    public init(
        keyID: String, teamID: String, key: ES256.PrivateKey, issuedAtS: UInt64? = nil,
        store: (@Sendable (_ issuedAtS: UInt64) async -> Void)? = nil
    ) throws(CourierError) {
        guard Self.isIdentifier(keyID) else { throw .badKeyID }
        guard Self.isIdentifier(teamID) else { throw .badTeamID }
        self.keyID = keyID
        self.teamID = teamID
        self.key = key
        self.store = store
        storedIssuedAtS = issuedAtS
    }

    /// The one to send now.
    /// - Throws: when the key can't sign.
    public mutating func current(nowMs: UInt64) throws(TLSError) -> Issued {
        let now = nowMs / 1000
        // One from the future was made by a clock that was wrong; Apple would refuse it.
        if let issued, issued.issuedAtS <= now, now - issued.issuedAtS < Self.lifeS { return issued }
        if let stored = storedIssuedAtS, stored <= now, now - stored < Self.lifeS { return try issue(stored) }
        return try issue(now)
    }

    /// Apple called `refused` expired: makes another, unless that was done already or Apple would call it too many.
    /// - Returns: whether there is another one than `refused` now.
    mutating func renew(after refused: Issued, nowMs: UInt64) throws(TLSError) -> Bool {
        let now = nowMs / 1000
        guard issued == refused else { return true }
        guard refused.issuedAtS > now || now - refused.issuedAtS >= Self.leastLifeS else { return false }
        _ = try issue(now)
        return true
    }

    private mutating func issue(_ now: UInt64) throws(TLSError) -> Issued {
        let input = signingInput(now)
        let signature = try key.sign(Array(input.utf8).span)
        let issued = Issued(issuedAtS: now, jwt: input + "." + Base64.url.encode(signature.span))
        self.issued = issued
        storedIssuedAtS = nil
        return issued
    }

    private func signingInput(_ issuedAtS: UInt64) -> String {
        var header = JSONWriter()
        header.add("alg", "ES256")
        header.add("kid", keyID)
        var claims = JSONWriter()
        claims.add("iss", teamID)
        claims.add("iat", issuedAtS)
        let (headerBytes, claimsBytes) = (header.finish(), claims.finish())
        return Base64.url.encode(headerBytes.span) + "." + Base64.url.encode(claimsBytes.span)
    }

    private static func isIdentifier(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: false
                }
            }
    }
}

extension ProviderToken: Redacted {}

/// A courier that can't be made.
public enum CourierError: Error, Sendable, Equatable, CustomStringConvertible {
    case badKeyID
    case badTeamID
    case noTopics
    /// A topic, and those that the certificate is for.
    case notInCertificate(String, listed: [String])

    public var description: String {
        switch self {
        case .badKeyID: "the APNs key id must be ten letters and digits, as Apple shows it beside the key"
        case .badTeamID:
            "the APNs team id must be ten letters and digits, as on the developer account's membership page"
        case .noTopics: "an account with APNs needs a topic: the app's bundle id"
        case .notInCertificate(let topic, let listed):
            "the certificate is not for the topic \(topic), but for \(listed.joined(separator: ", "))"
        }
    }
}

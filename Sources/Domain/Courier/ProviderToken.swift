import JSON
import Sealing
import Sodium
public import TLS

/// The JWT that authenticates the provider with Apple. All connections use the same one until it is dated 50 minutes back.
///
/// Apple rejects tokens older than an hour or from its future, and more than one new token in 20 minutes. So the issue time is stored across
/// restarts: a token signed again with the same `iat` counts as the same. The JWT itself is never stored.
public struct ProviderToken: Sendable {
    /// Maximum age.
    static let lifeS: UInt64 = 50 * 60
    /// Minimum age before Apple accepts another.
    static let leastLifeS: UInt64 = 20 * 60
    /// How far a token is dated back, so that a clock slightly ahead of Apple's doesn't date it in Apple's future.
    static let backdatedS: UInt64 = 60
    /// How far the token after a refused one is dated back. It leaves `leastLifeS` until the next renewal.
    static let furtherBackdatedS = lifeS - leastLifeS
    /// The least time between new tokens that refusals cause.
    static let leastRenewalMs: UInt64 = 60_000
    /// The same while Apple accepts tokens in other lanes only. A new one could cost those their pushes.
    private static let leastLifeMs = leastLifeS * 1000

    public let keyID: String
    public let teamID: String
    private let key: ES256.PrivateKey
    /// Stores an issue time, and returns when that succeeded or failed. Nil if issue times aren't stored.
    let store: (@Sendable (UInt64) async -> Void)?
    private var issued: Authorization?
    /// The issue time of an earlier run, until it is used or too old.
    private var storedIssuedAtS: UInt64?
    /// When Apple accepts a successor of the current token, in monotonic ms. Its date doesn't show its age, because it may be dated further back.
    private var youngUntilMs: UInt64 = 0
    /// When a refusal caused a new token, in monotonic ms.
    private var renewedAtMs: UInt64?
    /// When Apple last accepted a token, in monotonic ms.
    private var admittedAtMs: UInt64?
    /// Apple has accepted the current token.
    private(set) var isAdmitted = false
    /// The current token is dated further back than usual, because Apple called the one before invalid.
    private(set) var isDatedFurtherBack = false

    /// - Parameters:
    ///   - keyID: `kid`.
    ///   - teamID: `iss`.
    ///   - issuedAtS: when an earlier run issued its last token with the same key and team, in Unix seconds.
    ///   - store: called with the issue time of every new token. The token isn't used before the call returns.
    /// - Throws: `CourierError.badKeyID` or `.badTeamID` unless both are 1 to 32 letters and digits.
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

    /// Returns the current token, and issues a new one if needed.
    /// - Parameters:
    ///   - nowMs: unix ms.
    ///   - monotonicMs: the monotonic clock.
    /// - Throws: if signing fails.
    public mutating func current(nowMs: UInt64, monotonicMs: UInt64) throws(TLSError) -> Authorization {
        let now = nowMs / 1000
        // A token dated in the future came from a wrong clock, so replace it. Keep it if Apple accepted it: then the clock is wrong now.
        if let issued, issued.issuedAtS <= now || isAdmitted, Self.age(issued.issuedAtS, now) < Self.lifeS { return issued }
        if let stored = storedIssuedAtS, stored <= now, now - stored < Self.lifeS {
            return try issue(stored, youngUntilMs: monotonicMs + Self.leastLifeMs - min(now - stored, Self.leastLifeS) * 1000)
        }
        return try issue(now - min(now, Self.backdatedS), youngUntilMs: monotonicMs + Self.leastLifeMs)
    }

    /// Issues a new token after Apple refused `refused`. Does nothing if
    /// - another token has replaced it,
    /// - Apple has accepted it, and it was issued less than 20 minutes ago, or
    /// - a refusal caused a new token within the last minute, or the last 20 while Apple accepts this key's tokens in other lanes only.
    /// - Parameters:
    ///   - isExpired: Apple called the token expired. Otherwise it may be from Apple's future, so the new one is dated further back.
    ///   - laneAdmittedAtMs: when Apple last accepted a token in the lane of the refusal, in monotonic ms. Nil if never.
    ///   - nowMs: unix ms.
    ///   - monotonicMs: the monotonic clock.
    /// - Returns: true if the current token differs from `refused`.
    mutating func renew(
        after refused: Authorization, isExpired: Bool, laneAdmittedAtMs: UInt64?, nowMs: UInt64, monotonicMs: UInt64
    ) throws(TLSError) -> Bool {
        let now = nowMs / 1000
        guard issued == refused else { return true }
        guard !isAdmitted || monotonicMs >= youngUntilMs else { return false }
        func isRecent(_ ms: UInt64?) -> Bool { ms.map { monotonicMs - $0 < Self.leastLifeMs } ?? false }
        let leastMs = isRecent(admittedAtMs) && !isRecent(laneAdmittedAtMs) ? Self.leastLifeMs : Self.leastRenewalMs
        if let renewedAtMs, monotonicMs - renewedAtMs < leastMs { return false }
        // An accepted token isn't in Apple's future, so don't date the next one further back.
        let goesFurtherBack = !isExpired && !isAdmitted
        renewedAtMs = monotonicMs
        _ = try issue(
            now - min(now, goesFurtherBack ? Self.furtherBackdatedS : Self.backdatedS),
            youngUntilMs: monotonicMs + Self.leastLifeMs)
        isDatedFurtherBack = goesFurtherBack
        return true
    }

    /// Apple has accepted `admitted`.
    mutating func noteAdmission(of admitted: Authorization, monotonicMs: UInt64) {
        admittedAtMs = monotonicMs
        if issued == admitted { isAdmitted = true }
    }

    /// True if this is the current token, and dated further back than usual.
    func isDatedFurtherBack(_ issued: Authorization) -> Bool { isDatedFurtherBack && issued == self.issued }

    private static func age(_ issuedAtS: UInt64, _ now: UInt64) -> UInt64 { now - min(now, issuedAtS) }

    private mutating func issue(_ now: UInt64, youngUntilMs: UInt64) throws(TLSError) -> Authorization {
        self.youngUntilMs = youngUntilMs
        let input = signingInput(now)
        let signature = try key.sign(Array(input.utf8).span)
        let issued = Authorization(issuedAtS: now, scheme: "bearer", token: input + "." + Base64.url.encode(signature.span))
        self.issued = issued
        storedIssuedAtS = nil
        (isAdmitted, isDatedFurtherBack) = (false, false)
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

/// An invalid configuration.
public enum CourierError: Error, Sendable, Equatable, CustomStringConvertible {
    case badKeyID
    case badTeamID
    case noTopics
    /// A topic that isn't among the certificate's topics (`listed`).
    case notInCertificate(String, listed: [String])

    public var description: String {
        switch self {
        case .badKeyID:
            "the APNs key id must be ten letters and digits, as Apple shows it beside the key and in the name of the .p8 file"
        case .badTeamID:
            "the APNs team id must be ten letters and digits, as on the developer account's membership page"
        case .noTopics: "an account with APNs needs a topic: the app's bundle id"
        case .notInCertificate(let topic, let listed):
            "the certificate is not for the topic \(topic), but for \(listed.joined(separator: ", "))"
        }
    }
}

/// One key's provider token, shared by all lanes because Apple limits new tokens for each key. Used only on the loop's thread.
final class ProviderTokenSigner: Signer {
    private var token: ProviderToken
    private let name: String
    private let shared: Shared
    /// The issue time that was stored last, and the one that `store` was last called with.
    private var storedIssuedAtS: UInt64?
    private var givenIssuedAtS: UInt64?

    init(_ token: ProviderToken, _ name: String, _ shared: Shared) {
        self.token = token
        self.name = name
        self.shared = shared
    }

    /// Waits until the issue time is stored. Without it, a crash would cost a second token within 20 minutes.
    func current(nowMs: UInt64, monotonicMs: UInt64) throws(TLSError) -> Authorization? {
        let issued = try token.current(nowMs: nowMs, monotonicMs: monotonicMs)
        guard let store = token.store, issued.issuedAtS != storedIssuedAtS else { return issued }
        if issued.issuedAtS != givenIssuedAtS {
            givenIssuedAtS = issued.issuedAtS
            shared.store(issued.issuedAtS, of: name, store)
        }
        return nil
    }

    func isStored(_ issuedAtS: UInt64) { storedIssuedAtS = issuedAtS }

    func renew(
        after refused: Authorization, isExpired: Bool, laneAdmittedAtMs: UInt64?, nowMs: UInt64, monotonicMs: UInt64
    ) -> Bool {
        (try? token.renew(
            after: refused, isExpired: isExpired, laneAdmittedAtMs: laneAdmittedAtMs, nowMs: nowMs, monotonicMs: monotonicMs))
            ?? false
    }

    func noteAdmission(of admitted: Authorization, afterRefusalOf refusedIssuedAtS: UInt64?, monotonicMs: UInt64) -> Bool {
        token.noteAdmission(of: admitted, monotonicMs: monotonicMs)
        return token.isDatedFurtherBack(admitted) && refusedIssuedAtS.map { $0 > admitted.issuedAtS } ?? false
    }
}

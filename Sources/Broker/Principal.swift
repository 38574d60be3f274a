/// The caller that a valid JWT names.
public struct Principal: Sendable, Equatable {
    /// The claim `sub`, 1 to 128 bytes. It is compared as bytes and never interpreted.
    public let user: [UInt8]
    /// True for an app's own back end, which acts for users. Its JWT has the scope `broker.notify`.
    public let isBackEnd: Bool
    /// When the JWT expires, unix ms. Callers add the leeway.
    public let expiresMs: UInt64

    public static let userRange = 1...128

    public init(user: [UInt8], isBackEnd: Bool, expiresMs: UInt64) {
        precondition(Self.userRange.contains(user.count))
        self.user = user
        self.isBackEnd = isBackEnd
        self.expiresMs = expiresMs
    }
}

/// Why a JWT is refused, for its sender. Cases contain nothing of the JWT except names of claims.
public enum InvalidJWT: Sendable, Equatable {
    case tooLong(limit: Int)
    case malformed
    /// The claims are signed, but not a JSON object.
    /// - Parameter cause: line, column and problem, without anything of the text.
    case malformedClaims(String)
    /// A name that is read appears twice in header or claims.
    case repeated(String)
    case wrongAlgorithm(expected: String)
    case hasCriticalHeader
    /// There are several keys, and the JWT names none.
    case namesNoKey
    case unknownKey
    case badSignature
    case noExpiry
    /// `exp`, `nbf` or `iat` is not a number of seconds, or is after the year 9999.
    case badTime(String)
    /// `nbf` or `iat` is in the future.
    case notYet(String)
    case wrongIssuer
    case wrongAudience
    /// The JWT has an audience, but the broker has none configured.
    case unexpectedAudience
    /// The claim that names the user is missing or invalid.
    case badUser(claim: String)
    /// `scope` or `scp` is neither a string nor a list of strings.
    case badScope

    /// The error and what to do. ASCII without quotes and backslashes, as a header requires (RFC 6750 section 3).
    public var detail: String {
        switch self {
        case .tooLong(let limit): "The JWT is longer than \(limit) bytes. Remove claims."
        case .malformed:
            "The bearer is not a JWT. Send header, claims and signature in base64url without padding, joined by dots. The header must be a JSON object."
        case .malformedClaims(let cause):
            "The claims of the JWT are invalid JSON at \(cause). Sign one JSON object in UTF-8."
        case .repeated(let name): "The JWT has \(name) twice. Send it once."
        case .wrongAlgorithm(let expected):
            "The alg of the JWT is not \(expected), the only one that this broker accepts. Sign with it."
        case .hasCriticalHeader: "The JWT has the header crit, but this broker supports no extension. Remove it."
        case .namesNoKey: "The JWT names no key, but this broker has several. Send the kid of the key that signed it."
        case .unknownKey:
            "The kid of the JWT is none of this broker's keys. Sign with one of them, or have its operator add the key."
        case .badSignature: "The signature of the JWT doesn't match this broker's key. Sign with that key."
        case .noExpiry: "The JWT has no exp. Add its expiry."
        case .badTime(let claim): "The claim \(claim) is not a time. Send the seconds since 1970 as a number."
        case .notYet(let claim):
            "The JWT is not valid yet: its \(claim) is in the future. Set the clock of the machine that signs it."
        case .wrongIssuer: "The iss of the JWT is not the one that this broker accepts. Send the issuer from its configuration."
        case .wrongAudience: "The aud of the JWT does not name this broker. Send the audience from its configuration."
        case .unexpectedAudience:
            "The JWT has an aud, but this broker has no audience configured. Ask its operator to set one, or remove aud."
        case .badUser(let claim):
            "The claim \(claim) of the JWT is missing or not text of 1 to 128 bytes. Send the id of the user."
        case .badScope: "The scope of the JWT is neither text nor a list of texts. Send words with spaces between them."
        }
    }
}

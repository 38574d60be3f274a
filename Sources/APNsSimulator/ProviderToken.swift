import TLS

/// A provider's JSON Web Token that was found valid. Source: Apple, "Establishing a token-based connection to APNs".
struct ProviderToken: Sendable, Equatable {
    let text: String
    /// Unix seconds.
    let issuedAt: UInt64

    /// A token older than this is expired; one that replaces another on a connection must be younger by `shortestRefresh`. Seconds.
    static let longestAge: UInt64 = 3600
    static let shortestRefresh: UInt64 = 1200
}

/// Checks provider tokens against the one key of the one team this simulator knows.
struct ProviderTokenVerifier {
    let keyID: String
    let teamID: String
    let key: ES256.PublicKey
    /// The last ones found valid: a signature costs more to check than all the rest of a request.
    private var known: [ProviderToken] = []

    init(keyID: String, teamID: String, key: ES256.PublicKey) {
        self.keyID = keyID
        self.teamID = teamID
        self.key = key
    }

    /// - Parameters:
    ///   - header: the value of `authorization`.
    ///   - now: unix seconds.
    mutating func verify(_ header: Span<UInt8>, now: UInt64) throws(Rejection) -> ProviderToken {
        guard !header.isEmpty else { throw Rejection(.missingProviderToken) }
        let scheme = "bearer "
        let length = scheme.utf8.count
        guard header.count > length, String(header.extracting(0..<length)).lowercased() == scheme else {
            throw Rejection(.invalidProviderToken)
        }
        let text = header.extracting(length..<header.count)
        guard let token = known.first(where: { text.equals($0.text) }) ?? check(String(text)) else {
            throw Rejection(.invalidProviderToken)
        }
        guard token.issuedAt <= now else { throw Rejection(.invalidProviderToken) }
        guard now - token.issuedAt <= ProviderToken.longestAge else { throw Rejection(.expiredProviderToken) }
        return token
    }

    private mutating func check(_ text: String) -> ProviderToken? {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let head = Self.object(parts[0]), let claims = Self.object(parts[1]),
            let signature = Base64URL.decode(parts[2]),
            head["alg"] == .string("ES256"), head["kid"] == .string(keyID), claims["iss"] == .string(teamID),
            let issuedAt = claims["iat"]?.wholeNumber
        else { return nil }
        let signed = Array(text.utf8.prefix(parts[0].count + 1 + parts[1].count))
        guard key.isValid(signature, for: signed.span) else { return nil }
        let token = ProviderToken(text: text, issuedAt: issuedAt)
        if known.count == 8 { known.removeFirst() }
        known.append(token)
        return token
    }

    private static func object(_ part: Substring.UTF8View) -> JSON? {
        guard let bytes = Base64URL.decode(part), let value = JSON(parsing: bytes), case .object = value else { return nil }
        return value
    }
}

/// `Reason` as an error.
struct Rejection: Error, Equatable {
    let reason: Reason
    init(_ reason: Reason) { self.reason = reason }
}

/// RFC 4648, 5, without padding and in its one canonical spelling.
enum Base64URL {
    static func decode(_ text: some Sequence<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var held = 0
        var count = 0
        for character in text {
            guard let digit = digit(character) else { return nil }
            bits = bits << 6 | digit
            held += 6
            count += 1
            if held >= 8 {
                held -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(held)))
            }
        }
        guard count % 4 != 1, bits & (1 << UInt32(held) - 1) == 0 else { return nil }
        return bytes
    }

    private static func digit(_ character: UInt8) -> UInt32? {
        switch character {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(character - UInt8(ascii: "A"))
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(character - UInt8(ascii: "a")) + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(character - UInt8(ascii: "0")) + 52
        case UInt8(ascii: "-"): 62
        case UInt8(ascii: "_"): 63
        default: nil
        }
    }
}

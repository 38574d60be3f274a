import TLS

/// A provider's JSON Web Token that was found valid. Source: Apple, "Establishing a token-based connection to APNs".
struct ProviderToken: Sendable, Equatable {
    let text: [UInt8]
    /// Unix seconds.
    let issuedAt: UInt64
    /// Which of the keys that the verifier knows.
    let key: Int

    /// A token older than this is expired; one that replaces another on a connection must be younger by `shortestRefresh`. Seconds.
    static let longestAge: UInt64 = 3600
    static let shortestRefresh: UInt64 = 1200
}

/// Checks provider tokens against the keys that this simulator knows.
struct ProviderTokenVerifier {
    let keys: [ProviderKey]
    /// The service that is played.
    let environment: APNsEnvironment
    /// The last ones found valid: a signature costs more to check than all the rest of a request.
    private var known: [ProviderToken] = []

    init(_ keys: [ProviderKey], environment: APNsEnvironment) {
        self.keys = keys
        self.environment = environment
    }

    /// - Parameters:
    ///   - header: the value of `authorization`.
    ///   - current: the connection's token, which is most often the same.
    ///   - now: unix seconds.
    mutating func verify(_ header: Span<UInt8>, current: ProviderToken? = nil, now: UInt64) throws(Rejection) -> ProviderToken {
        guard !header.isEmpty else { throw Rejection(.missingProviderToken) }
        let scheme: StaticString = "bearer "
        let length = scheme.utf8CodeUnitCount
        guard header.count > length, String(header.extracting(0..<length)).lowercased() == scheme.description else {
            throw Rejection(.invalidProviderToken)
        }
        let text = header.extracting(length..<header.count)
        guard let token = known(text, current) ?? check(text) else { throw Rejection(.invalidProviderToken) }
        guard keys[token.key].environments.contains(environment) else { throw Rejection(.badEnvironmentKeyID) }
        guard token.issuedAt <= now else { throw Rejection(.invalidProviderToken) }
        guard now - token.issuedAt <= ProviderToken.longestAge else { throw Rejection(.expiredProviderToken) }
        return token
    }

    private func known(_ text: Span<UInt8>, _ current: ProviderToken?) -> ProviderToken? {
        if let current, text.equals(current.text.span) { return current }
        return known.first { text.equals($0.text.span) }
    }

    private mutating func check(_ span: Span<UInt8>) -> ProviderToken? {
        let text = [UInt8](span)
        let parts = text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let head = Self.object(parts[0]), let claims = Self.object(parts[1]),
            let signature = Base64URL.decode(parts[2]), head["alg"] == .string("ES256"),
            case .string(let keyID)? = head["kid"], case .string(let teamID)? = claims["iss"],
            let key = keys.firstIndex(where: { $0.keyID == keyID && $0.teamID == teamID }),
            let issuedAt = claims["iat"]?.wholeNumber
        else { return nil }
        let signed = Array(text.prefix(parts[0].count + 1 + parts[1].count))
        guard keys[key].publicKey.isValid(signature.span, for: signed.span) else { return nil }
        let token = ProviderToken(text: text, issuedAt: issuedAt, key: key)
        if known.count == 64 { known.removeFirst() }
        known.append(token)
        return token
    }

    private static func object(_ part: ArraySlice<UInt8>) -> JSON? {
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

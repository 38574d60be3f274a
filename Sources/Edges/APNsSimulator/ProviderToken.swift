import Sodium
public import TLS

/// A verified provider token (JWT). Source: Apple, "Establishing a token-based connection to APNs".
struct ProviderToken: Sendable, Equatable {
    let text: [UInt8]
    /// Unix seconds.
    let issuedAt: UInt64
    /// Index of the key in the verifier's `keys`.
    let key: Int

    /// Seconds until a token expires.
    static let longestAge: UInt64 = 3600
    /// A connection may replace its token by one that is at least so many seconds younger.
    static let shortestRefresh: UInt64 = 1200
}

/// Verifies provider tokens with the configured keys.
struct ProviderTokenVerifier {
    let keys: [ProviderKey]
    /// The simulated service.
    let environment: APNsEnvironment
    /// The last valid tokens. Verifying a signature costs more than the rest of a request.
    private var known: [ProviderToken] = []

    init(_ keys: [ProviderKey], environment: APNsEnvironment) {
        self.keys = keys
        self.environment = environment
    }

    /// - Parameters:
    ///   - header: the value of `authorization`.
    ///   - current: the connection's last token, which is usually the same.
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
        guard parts.count == 3, let head = JSON(tokenPart: parts[0]), let claims = JSON(tokenPart: parts[1]),
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
}

extension JSON {
    /// Decodes the header or the claims of a JWT. Returns nil unless the part is a JSON object in base64url.
    fileprivate init?(tokenPart: ArraySlice<UInt8>) {
        guard let bytes = Base64URL.decode(tokenPart), let value = JSON(parsing: bytes), case .object = value else { return nil }
        self = value
    }
}

/// A refused request.
struct Rejection: Error, Equatable {
    let reason: Reason
    init(_ reason: Reason) { self.reason = reason }
}

/// Base64url (RFC 4648, 5) without padding. Non-canonical encodings are refused.
enum Base64URL {
    static func encode(_ bytes: [UInt8]) -> String { Base64.url.encode(bytes.span) }

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

/// Explains whether APNs would accept a provider token, part by part.
public struct ProviderTokenReport: Sendable, Equatable {
    public struct Finding: Sendable, Equatable {
        public let isGood: Bool
        /// One clause. Contains nothing of the token but lengths and times.
        public let text: String
    }

    public private(set) var findings: [Finding] = []

    public var isGood: Bool { findings.allSatisfy(\.isGood) }

    /// - Parameters:
    ///   - text: the JWT, without `bearer`.
    ///   - key: the key that must have signed the JWT. Nil checks only the signature's form.
    ///   - keyID: the required `kid`. Nil requires ten letters and digits.
    ///   - teamID: the required `iss`. Nil requires ten letters and digits.
    ///   - nowS: unix seconds.
    public init(_ text: [UInt8], key: ES256.PublicKey?, keyID: String?, teamID: String?, nowS: UInt64) {
        let parts = text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            add(false, "has \(parts.count) parts, not three with dots between them")
            return
        }
        checkHead(JSON(tokenPart: parts[0]), keyID)
        checkClaims(JSON(tokenPart: parts[1]), teamID, nowS)
        checkSignature(parts[2], over: Array(text.prefix(parts[0].count + 1 + parts[1].count)), key)
    }

    private mutating func add(_ isGood: Bool, _ text: String) { findings.append(Finding(isGood: isGood, text: text)) }

    private mutating func checkHead(_ head: JSON?, _ keyID: String?) {
        guard let head else { return add(false, "its header is not a JSON object in base64url without padding") }
        add(head["alg"] == .string("ES256"), head["alg"] == .string("ES256") ? "alg is ES256" : "alg is not ES256")
        checkIdentifier("kid", head["kid"], keyID, "the key's id, as in its file's name")
    }

    private mutating func checkClaims(_ claims: JSON?, _ teamID: String?, _ nowS: UInt64) {
        guard let claims else { return add(false, "its claims are not a JSON object in base64url without padding") }
        checkIdentifier("iss", claims["iss"], teamID, "the team's id, as on the developer account's membership page")
        guard let issued = claims["iat"]?.wholeNumber else {
            return add(false, "iat is not a whole number of seconds")
        }
        if issued > 100_000_000_000 {
            add(false, "iat is in milliseconds, but must be in seconds")
        } else if issued > nowS {
            add(false, "iat is \(issued - nowS) s ahead of this machine's clock")
        } else if nowS - issued > ProviderToken.longestAge {
            add(false, "iat was \(nowS - issued) s ago, and Apple accepts a token for \(ProviderToken.longestAge) s")
        } else {
            add(true, "iat was \(nowS - issued) s ago; valid for \(ProviderToken.longestAge - (nowS - issued)) s more")
        }
    }

    private mutating func checkIdentifier(_ name: String, _ value: JSON?, _ wanted: String?, _ what: String) {
        guard case .string(let text)? = value else { return add(false, "\(name) is missing: it must be \(what)") }
        if let wanted {
            return add(text == wanted, text == wanted ? "\(name) is the configured one" : "\(name) is not the configured one")
        }
        let isPlain = text.utf8.count == 10 && text.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x41...0x5a).contains($0) }
        add(
            isPlain,
            isPlain ? "\(name) has the form of an id" : "\(name) is not ten capital letters and digits: it must be \(what)")
    }

    private mutating func checkSignature(_ part: ArraySlice<UInt8>, over signed: [UInt8], _ key: ES256.PublicKey?) {
        guard let signature = Base64URL.decode(part) else { return add(false, "its signature is not base64url without padding") }
        guard signature.count == ES256.signatureLength else {
            let isDER = signature.first == 0x30 && (68...72).contains(signature.count)
            return add(
                false,
                isDER
                    ? "its signature is DER, but a JWT needs R and S, 64 bytes"
                    : "its signature has \(signature.count) bytes, not 64"
            )
        }
        guard let key else { return add(true, "its signature has 64 bytes; set --apns-key-path to verify it") }
        let isValid = key.isValid(signature.span, for: signed.span)
        add(isValid, isValid ? "its signature is this key's" : "its signature is not this key's")
    }
}

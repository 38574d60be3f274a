public import TLS

/// What is right and wrong about a provider token, part by part, as APNs would see it: for people whose tokens are refused.
public struct ProviderTokenReport: Sendable, Equatable {
    public struct Finding: Sendable, Equatable {
        public let isGood: Bool
        /// One clause, without anything of the token but its lengths and times.
        public let text: String
    }

    public private(set) var findings: [Finding] = []

    public var isGood: Bool { findings.allSatisfy(\.isGood) }

    /// - Parameters:
    ///   - text: the JWT, without `bearer`.
    ///   - key: what must have signed it; nil: the signature's form alone is looked at.
    ///   - keyID: what `kid` must be. - teamID: what `iss` must be. Nil: ten letters and digits.
    ///   - nowS: unix seconds.
    public init(_ text: [UInt8], key: ES256.PublicKey?, keyID: String?, teamID: String?, nowS: UInt64) {
        let parts = text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            add(false, "has \(parts.count) parts, not three with dots between them")
            return
        }
        let (head, claims) = (Self.object(parts[0]), Self.object(parts[1]))
        checkHead(head, keyID)
        checkClaims(claims, teamID, nowS)
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

    private static func object(_ part: ArraySlice<UInt8>) -> JSON? {
        guard let bytes = Base64URL.decode(part), let value = JSON(parsing: bytes), case .object = value else { return nil }
        return value
    }
}

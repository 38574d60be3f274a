import TLS

/// A VAPID token whose signature was verified (RFC 8292).
struct VAPIDToken: Equatable {
    /// The key that signed it, as an uncompressed point. The `k` of the header.
    let key: [UInt8]
    let audience: String?
    /// Unix seconds.
    let expiresS: UInt64?
    let contact: String?
}

/// A refused message, with a clause for the sender's developer.
struct PushRejection: Error, Equatable {
    let problem: PushProblem
    let detail: String

    init(_ problem: PushProblem, _ detail: String) { (self.problem, self.detail) = (problem, detail) }
}

/// Verifies the signatures of VAPID tokens.
struct VAPIDVerifier {
    /// The last valid headers. Verifying a signature costs more than the rest of a request.
    private var known: [String: VAPIDToken] = [:]
    private static let keptTokens = 1_024

    /// - Parameter header: the value of `authorization`.
    mutating func verify(_ header: String) throws(PushRejection) -> VAPIDToken {
        if let token = known[header] { return token }
        let token = try Self.read(header)
        if known.count == Self.keptTokens { known = [:] }
        known[header] = token
        return token
    }

    private static func read(_ header: String) throws(PushRejection) -> VAPIDToken {
        let (text, keyText) = try parameters(of: header)
        guard let point = Base64URL.decode(keyText.utf8), let key = publicKey(point) else {
            throw PushRejection(.badToken, "k is not a point of P-256 in base64url without padding")
        }
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let head = json(parts[0]), let claims = json(parts[1]),
            let signature = Base64URL.decode(parts[2])
        else { throw PushRejection(.badToken, "t is not a JWT") }
        guard head["alg"] == .string("ES256"), head["typ"].map({ $0 == .string("JWT") }) ?? true else {
            throw PushRejection(.badToken, "the JWT's header is not of ES256")
        }
        let signed = Array(text.utf8.prefix(parts[0].count + 1 + parts[1].count))
        guard key.isValid(signature.span, for: signed.span) else {
            throw PushRejection(.badToken, "the JWT's signature is not of the key k")
        }
        return VAPIDToken(
            key: point, audience: claims["aud"]?.text, expiresS: claims["exp"]?.wholeNumber, contact: claims["sub"]?.text)
    }

    /// Reads `vapid t=..., k=...`, in any order.
    private static func parameters(of header: String) throws(PushRejection) -> (token: String, key: String) {
        let words = header.split(separator: " ", maxSplits: 1)
        guard words.count == 2, words[0].lowercased() == "vapid" else {
            throw PushRejection(.noToken, "authorization is not of the scheme vapid")
        }
        var found: [Substring: Substring] = [:]
        for part in words[1].split(separator: ",") {
            let pair = part.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            guard pair.count == 2, found.updateValue(pair[1], forKey: pair[0]) == nil else {
                throw PushRejection(.badToken, "authorization has a parameter without a value, or twice")
            }
        }
        guard let token = found["t"], let key = found["k"] else { throw PushRejection(.badToken, "authorization lacks t or k") }
        return (String(token), String(key))
    }

    private static func json(_ part: Substring.UTF8View) -> JSON? {
        guard let bytes = Base64URL.decode(part), let value = JSON(parsing: bytes), case .object = value else { return nil }
        return value
    }

    /// Reads an uncompressed point. Returns nil if the curve doesn't contain it.
    static func publicKey(_ point: [UInt8]) -> ES256.PublicKey? {
        guard point.count == ECDHKey.pointLength, point[0] == 4 else { return nil }
        return try? ES256.PublicKey(x: Array(point[1..<33]), y: Array(point[33...]))
    }
}

extension VAPIDToken {
    /// Seconds (RFC 8292, 2).
    private static let longestLifeS: UInt64 = 86_400

    /// Checks the claims.
    /// - Parameter nowS: unix seconds.
    func check(for subscription: WebPushSubscription, nowS: UInt64) throws(PushRejection) {
        guard audience == subscription.origin else {
            throw PushRejection(.badToken, "aud is not \(subscription.origin)")
        }
        guard let expiresS else { throw PushRejection(.badToken, "exp is not a number of seconds") }
        guard expiresS > nowS else { throw PushRejection(.badToken, "exp has passed") }
        guard expiresS <= nowS + Self.longestLifeS else { throw PushRejection(.badToken, "exp is more than 24 h ahead") }
        guard let contact, contact.hasPrefix("mailto:") || contact.hasPrefix("https:") else {
            throw PushRejection(.badToken, "sub is neither mailto: nor https:")
        }
        guard subscription.dialect != .apple || Self.isReachable(contact) else {
            throw PushRejection(.badToken, "sub names no public host")
        }
        guard key == subscription.applicationKey else {
            throw PushRejection(.otherKey, "k is not the key of the subscription")
        }
    }

    /// Seen: Apple refuses spaces, angle brackets, and hosts without a public domain.
    private static func isReachable(_ contact: String) -> Bool {
        var host: Substring
        if contact.hasPrefix("mailto:") {
            let parts = contact.dropFirst("mailto:".count).split(separator: "@", omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty, parts[0].utf8.allSatisfy({ $0 > 0x20 && $0 != UInt8(ascii: "<") }) else {
                return false
            }
            host = parts[1]
        } else {
            guard contact.hasPrefix("https://") else { return false }
            host = contact.dropFirst("https://".count).prefix { !"/?#:".contains($0) }
        }
        let labels = host.lowercased().split(separator: ".", omittingEmptySubsequences: false)
        guard labels.count >= 2, let last = labels.last, !["localhost", "local", "invalid"].contains(last) else { return false }
        return labels.allSatisfy { label in
            !label.isEmpty && label.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x7a).contains($0) || $0 == 0x2d }
        }
    }
}

extension JSON {
    /// The text of a string. Nil for another value.
    var text: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }
}

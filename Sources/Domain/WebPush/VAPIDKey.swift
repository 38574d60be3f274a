import Sodium
public import TLS

/// The key that identifies this deployment to Web Push services (RFC 8292). Subscriptions are made for it, so all are lost with it.
public struct VAPIDKey: Sendable {
    public let key: ES256.PrivateKey
    /// The public key in base64url: a browser's `applicationServerKey`, and `k` of the header.
    public let publicKey: String
    /// Names the key in sealed addresses: the first byte of the public key's SHA-256. Two keys in force must have different ones.
    public let number: UInt8

    public init(_ key: ES256.PrivateKey) throws(TLSError) {
        self.key = key
        let point = try key.point()
        publicKey = Base64.url.encode(point.span)
        number = SHA256.hash(point.span)[0]
    }

    /// Returns a token for a service.
    /// - Parameters:
    ///   - origin: the endpoint's.
    ///   - contact: `mailto:` or `https:`, for the service's operators.
    ///   - expiresS: unix seconds, at most a day ahead.
    public func token(for origin: String, contact: String, expiresS: UInt64) throws(TLSError) -> String {
        let head = Base64.url.encode(Array(#"{"typ":"JWT","alg":"ES256"}"#.utf8).span)
        // Neither has a character that JSON escapes: the origin is canonical, and the contact was checked.
        let claims = Base64.url.encode(Array(#"{"aud":"\#(origin)","exp":\#(expiresS),"sub":"\#(contact)"}"#.utf8).span)
        let signed = Array("\(head).\(claims)".utf8)
        let signature = try key.sign(signed.span)
        return "\(head).\(claims).\(Base64.url.encode(signature.span))"
    }

    private static let boundaryS: UInt64 = 6 * 3_600
    private static let leastS: UInt64 = 12 * 3_600

    /// Returns the end of a token that is issued now: 12 to 18 hours ahead, on a boundary of six hours, so that it doesn't show when it was made.
    public static func expiryS(nowS: UInt64) -> UInt64 { (nowS + boundaryS - 1) / boundaryS * boundaryS + leastS }

    /// True for a contact that push services accept: `mailto:` with an address, or `https:` with a host.
    public static func isContact(_ text: String) -> Bool {
        guard (1...200).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") })
        else { return false }
        if text.hasPrefix("mailto:") {
            let parts = text.dropFirst("mailto:".count).split(separator: "@", omittingEmptySubsequences: false)
            return parts.count == 2 && !parts[0].isEmpty && PushEndpoint.isPublicName(parts[1].lowercased())
        }
        guard text.hasPrefix("https://") else { return false }
        let host = text.dropFirst("https://".count).prefix { $0 != "/" && $0 != "?" && $0 != "#" }
        return PushEndpoint.isPublicName(host.lowercased())
    }
}

public import Sealing
import Sodium
import TLS

/// A browser's push address (W3C Push API): an endpoint, and the keys that its messages are encrypted with. Its secret is
/// `auth[16] || p256dh[65] || the endpoint's canonical form`.
public struct Subscription: Sendable {
    public let secret: Secret

    /// The bytes before the endpoint.
    static let keyCount = MessageEncryption.authCount + ECDHKey.pointLength

    public enum Fault: Error, Sendable, Equatable {
        case endpoint(PushEndpoint.Fault)
        /// Not 65 bytes of base64url that are an uncompressed point of P-256.
        case p256dh
        /// Not 16 bytes of base64url.
        case auth
    }

    /// Reads the endpoint of a subscription that only names its device.
    public static func device(endpoint text: Span<UInt8>) throws -> DeviceName {
        let endpoint = try PushEndpoint(text, nil)
        let bytes = [UInt8](repeating: 0, count: keyCount) + endpoint.canonical.utf8
        return DeviceName(subscription: try Secret(copying: bytes.span))
    }

    /// Reads the texts of `PushSubscription.toJSON()`. Keys may end with `=`.
    public init(endpoint: Span<UInt8>, p256dh: Span<UInt8>, auth: Span<UInt8>, _ hosts: PushHosts) throws {
        let endpoint: PushEndpoint = try Self.read(endpoint, hosts)
        guard let point = Self.decode(p256dh, ECDHKey.pointLength), ECDHKey.isPoint(point.span) else {
            throw Fault.p256dh
        }
        guard let auth = Self.decode(auth, MessageEncryption.authCount) else { throw Fault.auth }
        // The allocator overwrites these arrays when they are freed.
        let bytes = auth + point + endpoint.canonical.utf8
        secret = try Secret(copying: bytes.span)
    }

    /// A subscription that was sealed.
    public init?(_ secret: Secret) {
        guard secret.count > Self.keyCount else { return nil }
        self.secret = secret
    }

    private static func read(_ text: Span<UInt8>, _ hosts: PushHosts) throws(Fault) -> PushEndpoint {
        do throws(PushEndpoint.Fault) {
            let endpoint = try PushEndpoint(text, hosts)
            guard hosts.allows(endpoint.host, endpoint.port) else { throw PushEndpoint.Fault.notListed }
            return endpoint
        } catch { throw .endpoint(error) }
    }

    /// Decodes base64url of exactly as many bytes, with or without padding.
    private static func decode(_ text: Span<UInt8>, _ count: Int) -> [UInt8]? {
        var end = text.count
        while end > 0, text.count - end < 2, text[end - 1] == UInt8(ascii: "=") { end -= 1 }
        guard end == Base64.url.encodedCount(count), end == text.count || text.count % 4 == 0 else { return nil }
        var bytes = [UInt8](repeating: 0, count: count)
        var span = bytes.mutableSpan
        return Base64.url.decode(text.extracting(..<end), into: &span) == count ? bytes : nil
    }

    /// Where its messages go. Nil if the sealed bytes are damaged.
    public var endpoint: PushEndpoint? { secret.withBytes { PushEndpoint(canonical: $0.extracting(Self.keyCount...)) } }

    /// The name that push budgets count by: the endpoint without its query and in one spelling, because a caller can vary both freely.
    /// Microsoft's endpoints keep their query, because only the query identifies the subscription.
    public var budgetName: [UInt8] {
        guard let endpoint else { return [] }
        let path = endpoint.target.prefix { $0 != "?" }
        let query = BrowserMaker(host: endpoint.host) == .microsoft ? endpoint.target[path.endIndex...] : ""
        return Array("\(endpoint.authority)\(Self.normalized(path))\(query)".utf8)
    }

    /// Returns the path without escapes of unreserved characters and without dot segments (RFC 3986, 6.2.2). Empty segments are left out, too,
    /// because most servers ignore them.
    private static func normalized(_ path: Substring) -> String {
        let parts = path.split(separator: "%", omittingEmptySubsequences: false)
        let text = parts.dropFirst().reduce(into: String(parts.first ?? "")) { text, part in
            let (escape, rest) = (part.prefix(2), part.dropFirst(2))
            guard escape.count == 2, escape.allSatisfy(\.isHexDigit), let code = UInt8(escape, radix: 16) else {
                text += "%" + part
                return
            }
            let character = Character(Unicode.Scalar(code))
            let isUnreserved = character.isASCII && (character.isLetter || character.isNumber || "-._~".contains(character))
            text += (isUnreserved ? String(character) : "%" + escape.uppercased()) + rest
        }
        var segments: [Substring] = []
        for segment in text.split(separator: "/") where segment != "." {
            if segment == ".." { _ = segments.popLast() } else { segments.append(segment) }
        }
        return "/" + segments.joined(separator: "/")
    }

    /// Encrypts a text of at most 1,024 bytes for it.
    public func encrypt(_ text: [UInt8]) throws(TLSError) -> [UInt8] {
        try secret.withBytes { bytes throws(TLSError) in
            try MessageEncryption.encrypt(
                text, to: bytes.extracting(MessageEncryption.authCount..<Self.keyCount),
                auth: bytes.extracting(..<MessageEncryption.authCount))
        }
    }
}

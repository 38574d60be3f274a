/// The URL of a Web Push subscription, which a stranger chose (RFC 8030). Its canonical form is what is sealed and sent to.
public struct PushEndpoint: Sendable, Equatable {
    /// Lower case, without brackets.
    public let host: String
    public let port: UInt16
    /// Path and query, with the leading slash.
    public let target: String

    /// The longest URL with its scheme, in bytes. A longer one would make the rows of all services longer.
    public static let longest = 505
    static let scheme = "https://"

    /// Why a URL is refused. Says nothing of the URL.
    public enum Fault: Error, Sendable, Equatable, CustomStringConvertible {
        case notHTTPS
        case malformed
        case tooLong
        /// A host that is not a public name, or another port than 443.
        case inward
        /// The operator's list is closed, and doesn't have the host.
        case notListed

        public var description: String {
            switch self {
            case .notHTTPS: "an https URL"
            case .malformed: "a URL of visible ASCII characters with a host, and without user info or fragment"
            case .tooLong: "a URL of at most \(PushEndpoint.longest) bytes"
            case .notListed: "a URL of a push service that this broker's operator has listed"
            case .inward: "a URL with a public host name, which is no IP address, and port 443"
            }
        }
    }

    /// Reads a URL, without a look-up.
    /// - Parameter hosts: the operator's list. Names and ports on it may be any. Nil for a URL to which nothing is sent.
    public init(_ text: Span<UInt8>, _ hosts: PushHosts?) throws(Fault) {
        guard text.count <= Self.longest else { throw .tooLong }
        for index in text.indices where !(0x21...0x7e).contains(text[index]) { throw .malformed }
        let text = text.indices.map { text[$0] }
        guard text.count > Self.scheme.utf8.count,
            text.prefix(Self.scheme.utf8.count).map(\.lowered).elementsEqual(Self.scheme.utf8)
        else { throw .notHTTPS }
        let rest = text.dropFirst(Self.scheme.utf8.count)
        let end = rest.firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") } ?? rest.endIndex
        let path = rest[end...]
        // A backslash is a slash to browsers, and to nobody else.
        guard !rest.contains(UInt8(ascii: "#")), !rest.contains(UInt8(ascii: "\\")) else { throw .malformed }
        let authority = rest[..<end].map(\.lowered)
        guard !authority.isEmpty, !authority.contains(UInt8(ascii: "@")) else { throw .malformed }
        (host, port) = try Self.hostAndPort(authority)
        guard hosts?.exempts(host, port) != false || port == 443 && Self.isPublicName(host) else { throw .inward }
        target = (path.first == UInt8(ascii: "/") ? "" : "/") + String(decoding: path, as: UTF8.self)
        guard canonical.utf8.count + Self.scheme.utf8.count <= Self.longest else { throw .tooLong }
    }

    /// Reads what `canonical` wrote.
    public init?(canonical text: Span<UInt8>) {
        let text = text.indices.map { text[$0] }
        guard let end = text.firstIndex(of: UInt8(ascii: "/")), let (host, port) = try? Self.hostAndPort(Array(text[..<end]))
        else { return nil }
        (self.host, self.port, target) = (host, port, String(decoding: text[end...], as: UTF8.self))
    }

    /// The URL without its scheme.
    public var canonical: String { authority + target }

    /// The host, with the port unless it is 443 (RFC 9113, 8.3.1).
    public var authority: String { port == 443 ? shownHost : "\(shownHost):\(port)" }

    /// The URL's origin (RFC 6454).
    public var origin: String { Self.scheme + authority }

    private var shownHost: String { host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host }

    private static func hostAndPort(_ authority: [UInt8]) throws(Fault) -> (String, UInt16) {
        let isBracketed = authority.first == UInt8(ascii: "[")
        let end =
            isBracketed
            ? authority.firstIndex(of: UInt8(ascii: "]")).map { $0 + 1 }
            : authority.firstIndex(of: UInt8(ascii: ":")) ?? authority.count
        guard let end else { throw .malformed }
        var host = authority[..<end]
        if isBracketed { host = host.dropFirst().dropLast() }
        guard !host.isEmpty else { throw .malformed }
        let port = authority[end...]
        if port.isEmpty || port.elementsEqual(":".utf8) { return (String(decoding: host, as: UTF8.self), 443) }
        guard port.first == UInt8(ascii: ":"), (2...6).contains(port.count), port.dropFirst().allSatisfy(\.isDigit),
            let number = UInt16(String(decoding: port.dropFirst(), as: UTF8.self)), number > 0
        else { throw .malformed }
        return (String(decoding: host, as: UTF8.self), number)
    }

    /// Ends of names that no public resolver answers.
    private static let inwardEnds = ["localhost", "local", "internal", "home.arpa", "onion", "localdomain", "lan"]

    /// True for two labels or more that are not an IP address in any spelling and no name of a local network.
    static func isPublicName(_ host: String) -> Bool {
        let labels = host.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard host.utf8.count <= 253, labels.count >= 2, let last = labels.last else { return false }
        for label in labels {
            guard (1...63).contains(label.count), label.first != UInt8(ascii: "-"), label.last != UInt8(ascii: "-"),
                label.allSatisfy({ $0.isDigit || $0.isLowerLetter || $0 == UInt8(ascii: "-") })
            else { return false }
        }
        // Resolvers and browsers read a name that ends so as an IPv4 address (WHATWG URL, "ends in a number"): 127.1, 0x7f.1.
        guard !last.allSatisfy(\.isDigit), !last.starts(with: "0x".utf8) else { return false }
        return !inwardEnds.contains { host == $0 || host.hasSuffix("." + $0) }
    }
}

extension UInt8 {
    var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
    var isLowerLetter: Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self) }
    fileprivate var lowered: UInt8 { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self }
}

/// The hosts that Web Push messages may go to: any public one, with an operator's exceptions, or only those of a list.
///
/// A list has a pattern a line, `host[:port] [private] [ca FILE]`. Its first line may be `only`. `#` begins a comment.
public struct PushHosts: Sendable, Equatable {
    /// One line of the list.
    public struct Rule: Sendable, Equatable {
        /// Lower case. `*.` at the start stands for one label or more.
        let host: String
        let port: UInt16
        /// True if its addresses may be private ones.
        public let isPrivate: Bool
        /// The file with the certificates that its own is verified with. Nil for the system's.
        public let authority: String?

        /// False for a pattern, of which strangers can make up any number of hosts.
        public var namesOneHost: Bool { !host.hasPrefix("*.") }

        func matches(_ host: String, _ port: UInt16) -> Bool {
            port == self.port && (host == self.host || self.host.hasPrefix("*.") && host.hasSuffix(self.host.dropFirst()))
        }
    }

    /// True if no other host may be used.
    public let isClosed: Bool
    public let rules: [Rule]

    /// Any public host.
    public static let `public` = PushHosts(isClosed: false, rules: [])

    private init(isClosed: Bool, rules: [Rule]) { (self.isClosed, self.rules) = (isClosed, rules) }

    /// A line that can't be read.
    public struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        public let line: Int
        public let description: String
    }

    public init(_ text: String) throws(Fault) {
        var (isClosed, rules) = (false, [Rule]())
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let words = line.prefix { $0 != "#" }.split { $0 == " " || $0 == "\t" }.map(String.init)
            if words.isEmpty { continue }
            if words == ["only"], !isClosed, rules.isEmpty {
                isClosed = true
                continue
            }
            guard let rule = Self.rule(words) else {
                throw Fault(
                    line: index + 1,
                    description: "line \(index + 1) is not `host[:port] [private] [ca FILE]`; `only` may stand in the first line")
            }
            rules.append(rule)
        }
        if isClosed, rules.isEmpty {
            throw Fault(line: 1, description: "`only` without a host allows no push. List the hosts that messages may go to")
        }
        self.init(isClosed: isClosed, rules: rules)
    }

    private static func rule(_ words: [String]) -> Rule? {
        guard let (host, port) = hostAndPort(words[0].lowercased()) else { return nil }
        var rest = words.dropFirst()
        let isPrivate = rest.first == "private"
        if isPrivate { rest = rest.dropFirst() }
        var authority: String?
        if rest.first == "ca", rest.count == 2 {
            authority = rest.last
            rest = []
        }
        return rest.isEmpty ? Rule(host: host, port: port, isPrivate: isPrivate, authority: authority) : nil
    }

    private static func hostAndPort(_ text: String) -> (String, UInt16)? {
        let isBracketed = text.hasPrefix("[")
        guard !isBracketed || text.contains("]") else { return nil }
        let colon = text.lastIndex(of: ":").flatMap { !isBracketed || text[$0...].contains("]") == false ? $0 : nil }
        var host = String(text[..<(colon ?? text.endIndex)])
        if isBracketed { host = String(host.dropFirst().dropLast()) }
        guard isBracketed ? isAddress(host) : isName(host) else { return nil }
        // A misplaced `only` must not open the list.
        guard let colon else { return host == "only" ? nil : (host, 443) }
        guard let port = UInt16(text[text.index(after: colon)...]), port > 0 else { return nil }
        return (host, port)
    }

    /// True for labels of letters, digits and hyphens, which `*.` may precede.
    private static func isName(_ host: String) -> Bool {
        let labels = host.utf8.dropFirst(host.hasPrefix("*.") ? 2 : 0).split(
            separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return labels.allSatisfy { label in
            !label.isEmpty && label.allSatisfy { $0.isDigit || $0.isLowerLetter || $0 == UInt8(ascii: "-") }
        }
    }

    private static func isAddress(_ host: String) -> Bool {
        host.contains(":") && host.allSatisfy { $0.isHexDigit || $0 == ":" || $0 == "." }
    }

    /// The rule for a host and port. Nil if none is listed.
    public func rule(_ host: String, _ port: UInt16) -> Rule? { rules.first { $0.matches(host, port) } }

    /// True if the rules on names and ports don't hold for this host.
    func exempts(_ host: String, _ port: UInt16) -> Bool { rule(host, port) != nil }

    /// True if messages may go to this host.
    public func allows(_ host: String, _ port: UInt16) -> Bool { !isClosed || rule(host, port) != nil }

    /// True if messages may go to this host, also when the list has changed since its address was taken.
    public func stillAllows(_ host: String, _ port: UInt16) -> Bool {
        rule(host, port) != nil || !isClosed && port == 443 && PushEndpoint.isPublicName(host)
    }
}

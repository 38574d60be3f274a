public import HTTPServer
public import Linux
public import Shares
import Synchronization

/// The proxies that are trusted to name their callers, in `X-Forwarded-For` or `Forwarded` (RFC 7239).
///
/// Each proxy appends its own peer on the right. So the rightmost address that is no trusted proxy is the caller's, and all to its left may be invented.
public final class TrustedProxies: Sendable {
    private let networks: [Network]
    /// True if any peer of a Unix-domain socket is trusted.
    private let trustsUnix: Bool
    private let unnamed = Atomic<Bool>(false)

    /// Returns nil if a word is invalid.
    /// - Parameter words: addresses and networks, e.g. `10.0.0.7` and `2001:db8::/48`. `unix` is any peer of a Unix-domain socket.
    public init?(_ words: [String]) {
        trustsUnix = words.contains("unix")
        var networks: [Network] = []
        for word in words where word != "unix" {
            guard let network = Network(word) else { return nil }
            networks.append(network)
        }
        self.networks = networks
    }

    /// Says which of the words `init` refuses and why. Nil if all are valid.
    public static func fault(in words: [String]) -> String? {
        // The word for sockets is counted, too.
        Network.fault(in: words.map { $0 == "unix" ? "127.0.0.1" : $0 })
    }

    /// True if a proxy named a caller in no readable form. Such callers count as the proxy.
    public var hasUnnamedCallers: Bool { unnamed.load(ordering: .relaxed) }

    /// Returns the owner that a trusted proxy's own connections are charged to, and nil for other peers.
    public func payer(_ peer: SocketAddress, _ shares: Shares) -> Owner? { isTrusted(peer) ? shares.proxy(peer) : nil }

    /// Returns the caller's address: the rightmost one of `X-Forwarded-For` that isn't a trusted proxy, or without that header of `Forwarded`.
    /// Returns the peer's address if the peer isn't trusted. If the proxy names the caller in no readable form, returns the proxy's own address.
    public func origin(of request: HTTPRequest) -> SocketAddress {
        var origin = request.remote
        guard isTrusted(origin) else { return origin }
        // A proxy that writes one of the two may pass on the caller's own line of the other.
        var lines = request.headers("x-forwarded-for")
        let isForwarded = lines.isEmpty
        if isForwarded { lines = request.headers("forwarded") }
        for line in lines.reversed() {
            var rest = Array(line.utf8)[...]
            var isLast = false
            while !isLast {
                let start = ForwardedNode.lastElement(rest, mayBeQuoted: isForwarded)
                isLast = start == rest.startIndex
                let word = rest[start...]
                guard let address = isForwarded ? ForwardedNode.address(inElement: word) : ForwardedNode.address(word) else {
                    unnamed.store(true, ordering: .relaxed)
                    return origin
                }
                origin = address
                if !isTrusted(address) { return origin }
                if !isLast { rest = rest[..<(start - 1)] }
            }
        }
        return origin
    }

    private func isTrusted(_ address: SocketAddress) -> Bool {
        if case .unix = address { return trustsUnix }
        if networks.isEmpty { return false }
        let bytes = Network.bytes(address)
        return networks.contains { $0.contains(bytes) }
    }
}

/// The names of callers that proxies write: the nodes of RFC 7239 section 6, and the forms of large proxies.
enum ForwardedNode {
    /// Reads an address, with or without a port, brackets and quotation marks.
    /// - Returns: nil for `unknown`, a hidden name (`_name`) or other text.
    static func address(_ word: ArraySlice<UInt8>) -> SocketAddress? {
        var text = trimmed(word)
        if text.first == quote, text.last == quote, text.count >= 2 { text = text.dropFirst().dropLast() }
        guard !text.contains(0), let node = String(validating: text, as: UTF8.self) else { return nil }
        if node.hasPrefix("[") {
            guard let end = node.firstIndex(of: "]"), isPort(node[node.index(after: end)...], mayBeAbsent: true) else {
                return nil
            }
            return v6(node[..<end].dropFirst())
        }
        if let address = v6(node[...]) { return address }
        let parts = node.split(separator: ":", omittingEmptySubsequences: false)
        switch parts.count {
        case 1: return SocketAddress(numeric: node, port: 0)
        // Some proxies write the port after a whole IPv6 address without brackets.
        case 2, 9:
            let last = node.lastIndex(of: ":")!
            guard isPort(node[last...], mayBeAbsent: false) else { return nil }
            return SocketAddress(numeric: String(node[..<last]), port: 0)
        default: return nil
        }
    }

    /// Reads an IPv6 address. A zone, e.g. `%eth0`, means something on the proxy only.
    private static func v6(_ text: Substring) -> SocketAddress? {
        let parts = text.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
        guard let host = parts.first, parts.last != "", let address = SocketAddress(numeric: String(host), port: 0),
            case .v6 = address
        else { return nil }
        return address
    }

    /// True if the text is a colon and a port, which is a number or a hidden name (`_name`).
    private static func isPort(_ text: Substring, mayBeAbsent: Bool) -> Bool {
        if text.isEmpty { return mayBeAbsent }
        let port = text.dropFirst()
        guard text.first == ":", let first = port.first else { return false }
        if first == "_" { return port.count > 1 && port.dropFirst().utf8.allSatisfy(isHiddenByte) }
        return port.utf8.allSatisfy { $0 &- 0x30 < 10 } && UInt16(port) != nil
    }

    private static func isHiddenByte(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x61...0x7a).contains(byte | 0x20) || [0x2d, 0x2e, 0x5f].contains(byte)
    }

    // MARK: Forwarded

    private static let quote = UInt8(ascii: "\"")

    /// Returns the start of the last element of a line. It is found from the right, so that a quotation mark that a caller left open can't hide
    /// what the proxy appended.
    /// - Parameter mayBeQuoted: commas in quotation marks separate nothing.
    static func lastElement(_ line: ArraySlice<UInt8>, mayBeQuoted: Bool) -> Int {
        var isQuoted = false
        for index in line.indices.reversed() {
            if mayBeQuoted, isQuote(line, index) { isQuoted.toggle() }
            if line[index] == UInt8(ascii: ","), !isQuoted { return index + 1 }
        }
        return line.startIndex
    }

    /// True if a quoted string begins or ends here. An escaped quotation mark (`\"`) is part of the string. A proxy may copy one from the caller's `Host`.
    private static func isQuote(_ line: ArraySlice<UInt8>, _ index: Int) -> Bool {
        guard line[index] == quote else { return false }
        let escapes = line[..<index].reversed().prefix { $0 == UInt8(ascii: "\\") }
        return escapes.count % 2 == 0
    }

    /// Reads the parameter `for` of an element. Returns nil if it has none, or two.
    static func address(inElement element: ArraySlice<UInt8>) -> SocketAddress? {
        var found: SocketAddress?
        var hasFor = false
        for pair in pairs(element) {
            let name = trimmed(pair.prefix { $0 != UInt8(ascii: "=") })
            guard name.elementsEqual("for".utf8, by: { $0 | 0x20 == $1 }) else { continue }
            guard !hasFor else { return nil }
            hasFor = true
            found = address(pair.drop { $0 != UInt8(ascii: "=") }.dropFirst())
        }
        return found
    }

    private static func pairs(_ element: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
        var pairs: [ArraySlice<UInt8>] = []
        var (start, isQuoted) = (element.startIndex, false)
        for index in element.indices {
            if isQuote(element, index) { isQuoted.toggle() }
            if element[index] == UInt8(ascii: ";"), !isQuoted {
                pairs.append(element[start..<index])
                start = index + 1
            }
        }
        return pairs + [element[start...]]
    }

    private static func trimmed(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
        let end = text.lastIndex { !isBlank($0) } ?? text.startIndex - 1
        return text[...end].drop(while: isBlank)
    }
}

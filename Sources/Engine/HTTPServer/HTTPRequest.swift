public import HTTP1
public import Linux
public import Shares

/// A complete request. The server zeroes its bytes after the response, so copy what must last.
public struct HTTPRequest {
    public let remote: SocketAddress
    /// The owners charged for this request: its connection, and its network or back end.
    public internal(set) var owners = Owners.unknown
    let message: Message
    private let pathRange: Range<Int>
    private let queryStart: Int?

    /// - Returns: nil unless the target is a path (RFC 9112 section 3.2.1), an http(s) URI (3.2.2) with the authority in `Host`, or `*`.
    init?(_ message: Message, remote: SocketAddress) {
        guard let (authority, path, query) = message.withTarget({ Self.split($0) }) else { return nil }
        if !authority.isEmpty {
            let isHost = message.withTarget { target in
                message.withHeader("host") { Self.isSameAuthority($0, target.extracting(authority)) }
            }
            // Only HTTP/1.0 requests may lack `Host`.
            if isHost == false { return nil }
        }
        self.message = message
        self.remote = remote
        pathRange = path
        queryStart = query
    }

    /// Creates a request in memory for tests of handlers.
    public init(
        method: HTTP1.Method, target: String, headers: [(name: String, value: String)] = [], body: [UInt8] = [],
        remote: SocketAddress = .v4(0x7F00_0001, port: 1)
    ) {
        let message = Message(method: method, target: target, headers: headers, body: body)
        guard let request = HTTPRequest(message, remote: remote) else { preconditionFailure("not a request target: \(target)") }
        self = request
    }

    public var method: HTTP1.Method { message.method }
    public var isVersion11: Bool { message.isVersion11 }

    /// The path as sent, with percent-encoding. Never empty. Decoded anew at each access.
    public var path: String { message.withTarget { String(wire: $0.extracting(pathRange)) } }

    /// Returns the path of a request target. Nil if there is none.
    public static func path(ofTarget target: Span<UInt8>) -> String? {
        split(target).map { String(wire: target.extracting($0.path)) }
    }

    /// The query after `?` as sent. Nil if there is none.
    public var query: String? {
        queryStart.map { start in message.withTarget { String(wire: $0.extracting(start..<$0.count)) } }
    }

    /// Calls `use` with the value of the first header line called `name` (lower case), or returns nil. Read capabilities this way.
    public func withHeader<R, E: Error>(_ name: StaticString, _ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R? {
        try message.withHeader(name, use)
    }

    /// Returns the value of the first header line called `name` (lower case) as text. Not for secrets: a `String` can't be wiped.
    public func header(_ name: StaticString) -> String? { message.header(name) }

    /// Returns the values of all header lines called `name` (lower case), in order.
    public func headers(_ name: StaticString) -> [String] {
        var values: [String] = []
        message.forEachHeader(name) { values.append(String(wire: $0)) }
        return values
    }

    public func withBody<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R { try message.withBody(use) }
    public var bodyCount: Int { message.bodyCount }

    private static func split(_ target: Span<UInt8>) -> (authority: Range<Int>, path: Range<Int>, query: Int?)? {
        var start = 0
        var authority = 0..<0
        if target.isEmpty { return nil }
        if target[0] != UInt8(ascii: "/") {
            if target.count == 1, target[0] == UInt8(ascii: "*") { return (authority, 0..<1, nil) }
            guard let first = authorityStart(target) else { return nil }
            start = first
            while start < target.count, target[start] != UInt8(ascii: "/"), target[start] != UInt8(ascii: "?") { start += 1 }
            guard start > first, start < target.count, target[start] == UInt8(ascii: "/") else { return nil }
            authority = first..<start
        }
        for index in start..<target.count where target[index] == UInt8(ascii: "?") {
            return (authority, start..<index, index + 1)
        }
        return (authority, start..<target.count, nil)
    }

    /// Compares bytes, ignoring case: RFC 9112 section 3.2 requires a client to send the same authority in both places.
    private static func isSameAuthority(_ a: Span<UInt8>, _ b: Span<UInt8>) -> Bool {
        a.count == b.count && a.indices.allSatisfy { a[$0].lowercased == b[$0].lowercased }
    }

    private static func authorityStart(_ target: Span<UInt8>) -> Int? {
        for index in 4..<6 where index + 3 < target.count {
            let isScheme = target.extracting(0..<4).isToken("http") && (index == 4 || target[4] | 0x20 == UInt8(ascii: "s"))
            if isScheme, target[index] == UInt8(ascii: ":"), target[index + 1] == 0x2F, target[index + 2] == 0x2F {
                return index + 3
            }
        }
        return nil
    }
}

extension String {
    /// Decodes text from the network. Invalid UTF-8 becomes replacement characters.
    init(wire bytes: Span<UInt8>) {
        if let text = try? UTF8Span(validating: bytes) {
            self = String(copying: text)
        } else {
            self = String(decoding: bytes.indices.map { bytes[$0] }, as: UTF8.self)
        }
    }
}

extension HTTPRequest {
    /// Whether `Host` (in HTTP/2 `:authority`) is a loopback name: `localhost`, 127.0.0.0/8 or `[::1]`, with or without a port.
    ///
    /// A loopback listener without authentication refuses other names. Otherwise a web page whose own name resolves to 127.0.0.1 could read it in its
    /// visitor's browser (DNS rebinding).
    public var namesLoopback: Bool { withHeader("host") { $0.namesLoopback } ?? false }
}

extension Span<UInt8> {
    fileprivate var namesLoopback: Bool {
        guard isAuthority else { return false }
        let authority = String(wire: self)
        let port = authority.lastIndex(of: ":").flatMap { authority[$0...].contains("]") ? nil : $0 }
        let host = authority[..<(port ?? authority.endIndex)].lowercased()
        // The parser needs a port.
        guard let address = SocketAddress(parsing: host + ":1") else { return false }
        if case .unix = address { return false }
        return address.isLoopback
    }
}

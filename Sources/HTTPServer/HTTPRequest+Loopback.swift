import HTTP1
import Linux

extension HTTPRequest {
    /// Whether `Host` (in HTTP/2 `:authority`) names this machine's loopback: `localhost`, 127.0.0.0/8 or `[::1]`, with or without a port.
    ///
    /// A listener on loopback that asks for no credentials refuses other names. Otherwise a web page could read it in its visitor's
    /// browser, once the page's own name resolves to 127.0.0.1 (DNS rebinding).
    public var namesLoopback: Bool { withHeader("host") { $0.namesLoopback } ?? false }
}

extension Span<UInt8> {
    fileprivate var namesLoopback: Bool {
        guard isAuthority else { return false }
        let authority = String(wire: self)
        let port = authority.lastIndex(of: ":").flatMap { authority[$0...].contains("]") ? nil : $0 }
        let host = authority[..<(port ?? authority.endIndex)].lowercased()
        // A port is added: an address is parsed with one.
        guard let address = SocketAddress(parsing: host + ":1") else { return false }
        if case .unix = address { return false }
        return address.isLoopback
    }
}

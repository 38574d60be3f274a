public import HTTPServer
public import Linux
public import Shares

/// Whose word about a caller's address is believed.
public struct TrustedProxies: Sendable {
    private let hosts: Set<String>

    /// - Parameter hosts: numeric addresses without ports; `unix` for whoever may connect to a Unix-domain socket.
    public init(hosts: Set<String>) { self.hosts = hosts }

    /// Returns the owner that a trusted proxy's own connections are charged to, and nil for other peers.
    public func payer(_ peer: SocketAddress, _ shares: Shares) -> Owner? { isTrusted(peer) ? shares.proxy(peer) : nil }

    /// The caller's address: the peer's, or what the nearest named proxies say in `X-Forwarded-For`, read from the right past
    /// all named ones.
    public func origin(of request: HTTPRequest) -> SocketAddress {
        var origin = request.remote
        guard !hosts.isEmpty, isTrusted(origin) else { return origin }
        let named = request.headers("x-forwarded-for").flatMap { $0.split(separator: ",") }
        for word in named.reversed() {
            guard let address = SocketAddress(numeric: String(word.filter { $0 != " " }), port: 0) else { return origin }
            origin = address
            if !isTrusted(address) { return origin }
        }
        return origin
    }

    private func isTrusted(_ address: SocketAddress) -> Bool {
        if hosts.isEmpty { return false }
        if case .unix = address { return hosts.contains("unix") }
        return hosts.contains(address.host)
    }
}

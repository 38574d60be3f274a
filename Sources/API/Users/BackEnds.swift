public import HTTPServer
public import Linux
public import Shares

/// Networks of the operator's own back ends, which have larger shares than unknown callers.
public struct BackEnds: Sendable {
    private struct Network: Sendable {
        let address: SocketAddress
        let bits: Int
    }

    private let networks: [Network]
    /// True if every caller with a certificate counts as a back end. The listener then requires certificates.
    public let haveCertificates: Bool

    /// Returns nil if a word is invalid.
    /// - Parameter text: addresses and networks, e.g. `10.0.0.7,2001:db8::/48`, and `certificates`.
    public init?(_ text: String) {
        var networks: [Network] = []
        var haveCertificates = false
        for word in text.split(separator: ",") {
            if word.filter({ $0 != " " }) == "certificates" {
                haveCertificates = true
                continue
            }
            let parts = word.split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count <= 2, let address = SocketAddress(numeric: String(parts[0].filter { $0 != " " }), port: 0) else {
                return nil
            }
            let most = Self.bytes(address).count * 8
            var bits = most
            if parts.count == 2 {
                guard let asked = Int(parts[1].filter { $0 != " " }), (1...most).contains(asked) else { return nil }
                bits = asked
            }
            networks.append(Network(address: address, bits: bits))
        }
        (self.networks, self.haveCertificates) = (networks, haveCertificates)
    }

    /// Returns the owner of a back end's connections. Returns nil for other addresses.
    public func payer(_ address: SocketAddress, _ shares: Shares) -> Owner? {
        guard let number = index(of: address) else { return nil }
        let name = Array("--backends \(number)".utf8)
        return shares.backEnd(name.span)
    }

    /// Returns the number of the network that contains the address. All its addresses share one back end's share.
    func index(of address: SocketAddress) -> Int? {
        let bytes = Self.bytes(address)
        let found = networks.firstIndex { network in
            let prefix = Self.bytes(network.address)
            guard prefix.count == bytes.count else { return false }
            return prefix.indices.allSatisfy { index in
                let bits = min(8, max(0, network.bits - 8 * index))
                return (prefix[index] ^ bytes[index]) >> UInt8(8 - bits) == 0
            }
        }
        return found ?? (haveCertificates ? networks.count : nil)
    }

    /// An IPv4 address written as IPv6 counts as IPv4. Peers of Unix-domain sockets have no address.
    private static func bytes(_ address: SocketAddress) -> [UInt8] {
        switch address {
        case .v4(let address, _): big(UInt64(address), 4)
        case .v6(high: 0, let low, _) where low >> 32 == 0xffff: big(low & 0xffff_ffff, 4)
        case .v6(let high, let low, _): big(high, 8) + big(low, 8)
        case .unix: []
        }
    }

    private static func big(_ value: UInt64, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * (count - 1 - $0))) }
    }
}

/// The proxies whose `X-Forwarded-For` is trusted.
public struct TrustedProxies: Sendable {
    private let hosts: Set<String>

    /// - Parameter hosts: numeric addresses without ports. `unix` means any peer of a Unix-domain socket.
    public init(hosts: Set<String>) { self.hosts = hosts }

    /// Returns the owner that a trusted proxy's own connections are charged to, and nil for other peers.
    public func payer(_ peer: SocketAddress, _ shares: Shares) -> Owner? { isTrusted(peer) ? shares.proxy(peer) : nil }

    /// Returns the caller's address: the rightmost address of `X-Forwarded-For` that isn't a trusted proxy. Returns the peer's address if
    /// the peer isn't trusted.
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

import Linux

/// Where a URL leads: scheme, host and port. Connections are shared by origin.
struct Origin: Hashable {
    let isSecure: Bool
    /// Without brackets.
    let host: String
    let port: UInt16

    /// Splits an absolute URL; the target is its path and query, without the fragment. User names are refused.
    static func parse(_ url: String) throws(ClientError) -> (origin: Origin, target: String) {
        guard let schemeEnd = url.utf8.firstRange(of: Array("://".utf8)) else { throw .badURL(url) }
        let isSecure: Bool
        switch url[..<schemeEnd.lowerBound].lowercased() {
        case "http", "ws": isSecure = false
        case "https", "wss": isSecure = true
        default: throw .badURL(url)
        }
        let rest = url[schemeEnd.upperBound...].prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        var target = String(rest[authority.endIndex...])
        if !target.hasPrefix("/") { target = "/" + target }
        guard target.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), !authority.contains("@") else { throw .badURL(url) }

        var host = authority
        var port: UInt16 = isSecure ? 443 : 80
        if let colon = authority.lastIndex(of: ":"), !authority[colon...].contains("]") {
            guard let number = UInt16(authority[authority.index(after: colon)...]) else { throw .badURL(url) }
            port = number
            host = authority[..<colon]
        }
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { throw .badURL(url) }
        return (Origin(isSecure: isSecure, host: String(host), port: port), target)
    }

    /// For the Host header line.
    var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == (isSecure ? 443 : 80) ? name : "\(name):\(port)"
    }

    /// Looks the name up on a thread of its own, since that blocks.
    func resolve() async throws(ClientError) -> [SocketAddress] {
        if let address = SocketAddress(numeric: host, port: port) { return [address] }
        let result: Result<[SocketAddress], ClientError> = await withCheckedContinuation { continuation in
            let lookUp: @Sendable () -> Void = { [host, port] in
                continuation.resume(
                    returning: Result { () throws(ResolutionError) in try SocketAddress.resolve(host: host, port: port) }
                        .mapError { .unresolved($0) })
            }
            do throws(Errno) {
                _ = try Thread.spawn(name: "resolver", lookUp)
            } catch {
                continuation.resume(returning: .failure(.unreachable(error)))
            }
        }
        return try result.get()
    }
}

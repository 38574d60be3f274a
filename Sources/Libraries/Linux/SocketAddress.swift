import CLinux
import Glibc

/// An address to listen on or connect to: numeric IPv4 or IPv6 with a port, or a Unix-domain path.
public enum SocketAddress: Sendable, Hashable, CustomStringConvertible {
    /// The address in host byte order: 127.0.0.1 is `0x7f00_0001`.
    case v4(UInt32, port: UInt16)
    /// The address's first and last eight bytes, most significant first.
    case v6(high: UInt64, low: UInt64, port: UInt16)
    case unix(String)

    /// Parses `127.0.0.1:8787`, `[::1]:8787`, `localhost:8787` (IPv4 loopback) or `unix:/run/mayfly.sock`. Returns nil for anything else.
    public init?(parsing text: String) {
        if text.hasPrefix("unix:") {
            let path = String(text.dropFirst(5))
            guard !path.isEmpty, path.utf8.count <= Self.longestPath, !path.utf8.contains(0) else { return nil }
            self = .unix(path)
            return
        }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let digits = text[text.index(after: colon)...]
        guard (1...5).contains(digits.utf8.count), digits.utf8.allSatisfy({ (48...57).contains($0) }), let port = UInt16(digits)
        else { return nil }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
            guard let address = Self(numeric: String(host), port: port), case .v6 = address else { return nil }
            self = address
        } else {
            guard let address = Self(numeric: host == "localhost" ? "127.0.0.1" : String(host), port: port), case .v4 = address
            else { return nil }
            self = address
        }
    }

    /// A numeric address without brackets: `127.0.0.1`, `::1`.
    public init?(numeric host: String, port: UInt16) {
        guard !host.utf8.contains(0) else { return nil }
        var v4 = in_addr()
        var v6 = in6_addr()
        if unsafe inet_pton(AF_INET, host, &v4) == 1 {
            self = .v4(UInt32(bigEndian: v4.s_addr), port: port)
        } else if unsafe inet_pton(AF_INET6, host, &v6) == 1 {
            self = Self(v6, port: port)
        } else {
            return nil
        }
    }

    /// Resolves a name for TCP with the system's resolver. Blocks.
    public static func resolve(host: String, port: UInt16) throws(ResolutionError) -> [SocketAddress] {
        if let numeric = SocketAddress(numeric: host, port: port) { return [numeric] }
        var hints = unsafe addrinfo()
        unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var first: UnsafeMutablePointer<addrinfo>?
        let status = unsafe getaddrinfo(host, nil, &hints, &first)
        guard status == 0 else {
            throw ResolutionError(host: host, reason: unsafe String(cString: gai_strerror(status)))
        }
        defer { unsafe freeaddrinfo(first) }
        var found: [SocketAddress] = []
        var next = unsafe first
        while let entry = unsafe next {
            if let raw = unsafe entry.pointee.ai_addr,
                let address = unsafe SocketAddress(raw, length: entry.pointee.ai_addrlen)?.with(port: port)
            {
                found.append(address)
            }
            unsafe next = entry.pointee.ai_next
        }
        guard !found.isEmpty else { throw ResolutionError(host: host, reason: "no IPv4 or IPv6 address") }
        return found
    }

    public var port: UInt16? {
        switch self {
        case .v4(_, let port), .v6(_, _, let port): port
        case .unix: nil
        }
    }

    public func with(port: UInt16) -> SocketAddress {
        switch self {
        case .v4(let address, _): .v4(address, port: port)
        case .v6(let high, let low, _): .v6(high: high, low: low, port: port)
        case .unix: self
        }
    }

    /// Whether only this machine can reach the address: 127.0.0.0/8, ::1, the IPv6-mapped form of either, or a Unix-domain path.
    public var isLoopback: Bool {
        switch self {
        case .v4(let address, _): address >> 24 == 127
        case .v6(let high, let low, _): high == 0 && (low == 1 || low >> 24 == 0xffff_7f)
        case .unix: true
        }
    }

    /// The address without its port, as in a log line or a proxy's header. A mapped IPv4 address is printed as IPv4.
    public var host: String {
        switch self {
        case .v4(let address, _):
            return "\(address >> 24).\(address >> 16 & 255).\(address >> 8 & 255).\(address & 255)"
        case .v6(0, let low, let port) where low >> 32 == 0xffff:
            return SocketAddress.v4(UInt32(truncatingIfNeeded: low), port: port).host
        case .v6(let high, let low, _):
            var raw = in6_addr()
            unsafe withUnsafeMutableBytes(of: &raw) { bytes in
                unsafe bytes.storeBytes(of: high.bigEndian, as: UInt64.self)
                unsafe bytes.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
            }
            return unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
                unsafe String(cString: inet_ntop(AF_INET6, &raw, buffer.baseAddress!, 64))
            }
        case .unix(let path):
            return path
        }
    }

    public var description: String {
        switch self {
        case .v4(_, let port): "\(host):\(port)"
        case .v6(0, let low, let port) where low >> 32 == 0xffff: "[::ffff:\(host)]:\(port)"
        case .v6(_, _, let port): "[\(host)]:\(port)"
        case .unix(let path): "unix:\(path)"
        }
    }

    /// The form for messages, with the path as `ShownPath` prints it.
    public var shown: String {
        if case .unix(let path) = self { "unix:\(ShownPath(path))" } else { description }
    }
}

/// A name that could not be resolved.
public struct ResolutionError: Error, Sendable, Equatable, CustomStringConvertible {
    public let host: String
    public let reason: String
    public var description: String { "can't resolve \(host): \(reason)" }
}

extension SocketAddress {
    /// `sockaddr_un.sun_path` has 108 bytes including the final zero.
    static let longestPath = 107

    var family: Int32 {
        switch self {
        case .v4: AF_INET
        case .v6: AF_INET6
        case .unix: AF_UNIX
        }
    }

    private init(_ raw: in6_addr, port: UInt16) {
        let (high, low) = unsafe withUnsafeBytes(of: raw) { bytes in
            unsafe (bytes.load(as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        self = .v6(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low), port: port)
    }

    @unsafe init?(_ raw: UnsafePointer<sockaddr>, length: socklen_t) {
        let bytes = unsafe UnsafeRawPointer(raw)
        switch unsafe Int32(raw.pointee.sa_family) {
        case AF_INET where Int(length) >= MemoryLayout<sockaddr_in>.size:
            let address = unsafe bytes.loadUnaligned(as: sockaddr_in.self)
            self = .v4(UInt32(bigEndian: address.sin_addr.s_addr), port: UInt16(bigEndian: address.sin_port))
        case AF_INET6 where Int(length) >= MemoryLayout<sockaddr_in6>.size:
            let address = unsafe bytes.loadUnaligned(as: sockaddr_in6.self)
            self = Self(address.sin6_addr, port: UInt16(bigEndian: address.sin6_port))
        case AF_UNIX:
            // Peers of Unix-domain sockets are usually unnamed.
            let start = MemoryLayout<sockaddr_un>.offset(of: \.sun_path)!
            let path = unsafe UnsafeRawBufferPointer(start: bytes + start, count: max(0, Int(length) - start))
            self = unsafe .unix(String(decoding: path.prefix { $0 != 0 }, as: UTF8.self))
        default:
            return nil
        }
    }

    /// Calls `body` with the address in the kernel's form.
    @unsafe func withRaw<R>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> R) -> R {
        func pass<A>(_ address: A, length: Int = MemoryLayout<A>.size) -> R {
            unsafe withUnsafePointer(to: address) { pointer in
                unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, socklen_t(length)) }
            }
        }
        switch self {
        case .v4(let address, let port):
            var raw = sockaddr_in()
            raw.sin_family = sa_family_t(AF_INET)
            raw.sin_addr.s_addr = address.bigEndian
            raw.sin_port = port.bigEndian
            return pass(raw)
        case .v6(let high, let low, let port):
            var raw = sockaddr_in6()
            raw.sin6_family = sa_family_t(AF_INET6)
            raw.sin6_port = port.bigEndian
            unsafe withUnsafeMutableBytes(of: &raw.sin6_addr) { bytes in
                unsafe bytes.storeBytes(of: high.bigEndian, as: UInt64.self)
                unsafe bytes.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
            }
            return pass(raw)
        case .unix(let path):
            var raw = sockaddr_un()
            raw.sun_family = sa_family_t(AF_UNIX)
            unsafe withUnsafeMutableBytes(of: &raw.sun_path) { unsafe $0.copyBytes(from: path.utf8.prefix(Self.longestPath)) }
            return pass(raw)
        }
    }
}

import CLinux
import Glibc

/// A non-blocking stream socket, closed on exec, with `TCP_NODELAY`.
///
/// `accept`, `read` and `write` return nil if the call would block: wait for the event loop.
public struct Socket: ~Copyable, Sendable {
    public let descriptor: Descriptor

    public var raw: Int32 { descriptor.raw }

    init(owning descriptor: consuming Descriptor) {
        self.descriptor = descriptor
    }

    /// Creates a listening socket. Replaces a Unix-domain path left over from a dead process.
    /// - Parameter mode: permissions of a Unix-domain path.
    /// - Throws: `isAddressInUse`, also if a living process listens on the path.
    public static func listen(
        on address: SocketAddress, mode: UInt32 = 0o600
    ) throws(Errno) -> Socket {
        if case .unix(let path) = address { try removeStale(path) }
        let socket = try Socket(family: address.family, for: address)
        try socket.set(SOL_SOCKET, SO_REUSEADDR, 1)
        if case .v6 = address { try socket.set(Int32(IPPROTO_IPV6), IPV6_V6ONLY, 0) }
        guard unsafe address.withRaw({ unsafe bind(socket.raw, $0, $1) }) == 0 else { throw .last("bind \(address.shown)") }
        // Nobody can connect before `listen`, so the umask's mode is never in effect.
        if case .unix(let path) = address, unsafe chmod(path, mode_t(mode)) != 0 { throw .last("chmod", path: path) }
        guard Glibc.listen(socket.raw, longestBacklog) == 0 else { throw .last("listen \(address.shown)") }
        return socket
    }

    private static let longestBacklog: Int32 = 4096

    private static func removeStale(_ path: String) throws(Errno) {
        guard let status = try File.status(path) else { return }
        guard status.kind == .socket else { throw Errno(code: ENOTSOCK, call: "bind \(SocketAddress.unix(path).shown)") }
        let address = SocketAddress.unix(path)
        let probe = try Socket(family: address.family, for: address)
        // EAGAIN: a process listens and its backlog is full.
        let answers = unsafe address.withRaw { unsafe Glibc.connect(probe.raw, $0, $1) } == 0 || errno == EAGAIN
        if answers { throw Errno(code: EADDRINUSE, call: "bind \(address.shown)") }
        try File.remove(path)
    }

    /// Starts to connect. Connected when the socket is writable and `pendingError()` is nil.
    public static func connect(to address: SocketAddress) throws(Errno) -> Socket {
        let socket = try Socket(family: address.family, for: address)
        try socket.setNoDelay(address.family)
        let result = unsafe address.withRaw { unsafe Glibc.connect(socket.raw, $0, $1) }
        // An interrupted connect continues in the background.
        guard result == 0 || errno == EINPROGRESS || errno == EINTR else { throw .last("connect \(address.shown)") }
        return socket
    }

    /// Creates two connected sockets.
    public static func pair() throws(Errno) -> SocketPair {
        var raw: (Int32, Int32) = (-1, -1)
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let result = unsafe withUnsafeMutableBytes(of: &raw) { bytes in
            unsafe socketpair(AF_UNIX, kind, 0, bytes.assumingMemoryBound(to: Int32.self).baseAddress)
        }
        guard result == 0 else { throw .last("socketpair") }
        return SocketPair(
            first: Socket(owning: Descriptor(owning: raw.0)), second: Socket(owning: Descriptor(owning: raw.1)))
    }

    private init(family: Int32, for address: SocketAddress) throws(Errno) {
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let raw = socket(family, kind, 0)
        guard raw >= 0 else { throw .last("socket \(address.shown)") }
        self.init(owning: Descriptor(owning: raw))
    }

    /// Returns the next waiting connection, or nil. Skips connections that died while they waited.
    /// - Throws: if the process is out of descriptors or memory. Retry after some connections have closed.
    public func accept() throws(Errno) -> AcceptedSocket? {
        while true {
            var storage = sockaddr_storage()
            var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
            let flags = Int32(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
            let raw = unsafe withUnsafeMutableBytes(of: &storage) { bytes in
                unsafe accept4(self.raw, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, &length, flags)
            }
            if raw >= 0 {
                let socket = Socket(owning: Descriptor(owning: raw))
                let peer = Self.address(storage, length)
                if case .unix = peer {} else { try? socket.setNoDelay(AF_INET) }
                return AcceptedSocket(socket: socket, peer: peer)
            }
            switch errno {
            case EAGAIN: return nil
            case EINTR, ECONNABORTED, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH:
                continue
            default: throw .last("accept")
            }
        }
    }

    /// Returns and clears the socket's error, the result of a connect.
    public func pendingError() -> Errno? {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard unsafe getsockopt(raw, SOL_SOCKET, SO_ERROR, &code, &length) == 0 else { return .last("getsockopt") }
        return code == 0 ? nil : Errno(code: code, call: "connect")
    }

    /// Reads available bytes into the front of `buffer`.
    /// - Returns: the number of bytes, 0 at the end of the stream, nil if the call would block.
    public func read(into buffer: inout MutableSpan<UInt8>) throws(Errno) -> Int? {
        let count = unsafe buffer.withUnsafeMutableBufferPointer { bytes in
            let (start, size) = (bytes.baseAddress, bytes.count)
            return retrying { unsafe recv(raw, start, size, 0) }
        }
        if count >= 0 { return count }
        if errno == EAGAIN { return nil }
        throw .last("read")
    }

    /// Makes a listener drop connection requests, so that clients retry elsewhere. Otherwise the kernel would accept connections between the last
    /// `accept` and the close, and reset them with their requests.
    public func rejectNewConnections() {
        // A BPF program that drops packets with SYN and without ACK.
        var program = [
            sock_filter(code: 0x30, jt: 0, jf: 0, k: 13), sock_filter(code: 0x54, jt: 0, jf: 0, k: 0x12),
            sock_filter(code: 0x15, jt: 0, jf: 1, k: 0x02), sock_filter(code: 0x06, jt: 0, jf: 0, k: 0),
            sock_filter(code: 0x06, jt: 0, jf: 0, k: .max),
        ]
        unsafe program.withUnsafeMutableBufferPointer { instructions in
            var filter = unsafe sock_fprog(len: UInt16(instructions.count), filter: instructions.baseAddress)
            unsafe _ = setsockopt(
                raw, SOL_SOCKET, SO_ATTACH_FILTER, &filter, socklen_t(MemoryLayout<sock_fprog>.size))
        }
    }

    /// Whether unread bytes are available.
    public var hasInput: Bool {
        var byte: UInt8 = 0
        return unsafe recv(raw, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) > 0
    }

    /// Writes the front of `bytes`. Never raises SIGPIPE.
    /// - Returns: the number of bytes written, or nil if the call would block.
    public func write(_ bytes: Span<UInt8>) throws(Errno) -> Int? {
        let count = unsafe bytes.withUnsafeBufferPointer { bytes in
            let (start, size) = (bytes.baseAddress, bytes.count)
            return retrying { unsafe send(raw, start, size, Int32(MSG_NOSIGNAL)) }
        }
        if count >= 0 { return count }
        if errno == EAGAIN { return nil }
        throw .last("write")
    }

    /// Closes the write direction.
    public func finishWriting() { _ = shutdown(raw, Int32(SHUT_WR)) }

    /// Makes `deinit` send a reset instead of an orderly end.
    public func resetOnClose() {
        var value = linger(l_onoff: 1, l_linger: 0)
        _ = unsafe setsockopt(raw, SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<linger>.size))
    }

    /// The bound address, with the port that the kernel chose for port 0.
    public func localAddress() throws(Errno) -> SocketAddress { try Self.localAddress(of: raw) }

    static func localAddress(of raw: Int32) throws(Errno) -> SocketAddress {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = unsafe withUnsafeMutableBytes(of: &storage) { bytes in
            unsafe getsockname(raw, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, &length)
        }
        guard result == 0 else { throw .last("getsockname") }
        return address(storage, length)
    }

    private static func address(_ storage: sockaddr_storage, _ length: socklen_t) -> SocketAddress {
        unsafe withUnsafePointer(to: storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe SocketAddress($0, length: length) }
        } ?? .unix("")
    }

    private func setNoDelay(_ family: Int32) throws(Errno) {
        if family != AF_UNIX { try set(Int32(IPPROTO_TCP), TCP_NODELAY, 1) }
    }

    private func set(_ level: Int32, _ option: Int32, _ value: Int32) throws(Errno) {
        var value = value
        guard unsafe setsockopt(raw, level, option, &value, socklen_t(MemoryLayout<Int32>.size)) == 0 else {
            throw .last("setsockopt")
        }
    }
}

/// An accepted connection and its peer.
@frozen public struct AcceptedSocket: ~Copyable, Sendable {
    public var socket: Socket
    public let peer: SocketAddress

    /// The socket alone.
    public consuming func take() -> Socket { socket }
}

@frozen public struct SocketPair: ~Copyable, Sendable {
    public var first: Socket
    public var second: Socket
}

import CLinux
import Glibc

/// A socket that the service manager opened and keeps open, by the protocol of sd_listen_fds(3). Connections that arrive while no process runs wait in it.
public struct ActivatedSocket: Sendable {
    /// `FileDescriptorName=` of its socket unit.
    public let name: String
    public let address: SocketAddress
    /// False for a connection, which `Accept=yes` hands over.
    public let isListening: Bool
    let raw: Int32

    private static let firstDescriptor: Int32 = 3

    /// Returns the sockets for this process, and removes the manager's variables from the environment, so that programs started later don't inherit
    /// them. Call it once, before other threads read the environment.
    public static func takeAll() throws(Errno) -> [ActivatedSocket] {
        let process = Environment.takeText("LISTEN_PID").flatMap { Int32($0) }
        let count = Environment.takeText("LISTEN_FDS").flatMap { Int32($0) } ?? 0
        let names = (Environment.takeText("LISTEN_FDNAMES") ?? "").split(separator: ":", omittingEmptySubsequences: false)
        guard process == getpid(), count > 0 else { return [] }
        var sockets: [ActivatedSocket] = []
        for index in 0..<Int(count) {
            try sockets.append(ActivatedSocket(firstDescriptor + Int32(index), index < names.count ? String(names[index]) : ""))
        }
        return sockets
    }

    private init(_ raw: Int32, _ name: String) throws(Errno) {
        guard mayfly_fcntl(raw, F_SETFD, FD_CLOEXEC) == 0 else { throw .last("fcntl") }
        let flags = mayfly_fcntl(raw, F_GETFL, 0)
        guard flags >= 0, mayfly_fcntl(raw, F_SETFL, flags | O_NONBLOCK) == 0 else { throw .last("fcntl") }
        address = try Socket.localAddress(of: raw)
        var listens: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        guard unsafe getsockopt(raw, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 else { throw .last("getsockopt") }
        isListening = listens != 0
        (self.raw, self.name) = (raw, name)
    }
}

extension Socket {
    /// Takes this process's descriptor of the socket: call it once. The service manager's own stays open.
    public init(_ activated: ActivatedSocket) {
        self.init(owning: Descriptor(owning: activated.raw))
    }
}

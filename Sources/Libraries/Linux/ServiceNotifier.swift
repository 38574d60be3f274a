import CLinux
import Glibc

/// Reports this process's state to the service manager that started it, by the protocol of sd_notify(3). Does nothing without one.
public final class ServiceNotifier: Sendable {
    /// The manager's datagram socket: a path, or a name of Linux's abstract namespace that begins with a zero byte. Empty if there is none.
    private let name: [UInt8]
    /// Open from the start, so that a shortage of descriptors can't silence the watchdog. Nil if there is no manager.
    private let socket: Descriptor?
    /// The longest time between two `WATCHDOG=1`, in ms. Nil if the manager doesn't watch this process.
    public let watchdogMs: UInt64?

    /// Reads the manager's variables and removes them from the environment, so that programs started later don't inherit them.
    /// Call it before other threads read the environment.
    public static func take() throws(Errno) -> ServiceNotifier { try ServiceNotifier() }

    private init() throws(Errno) {
        var name = Array((Environment.takeText("NOTIFY_SOCKET") ?? "").utf8)
        if name.first == UInt8(ascii: "@") { name[0] = 0 }
        let microseconds = Environment.takeText("WATCHDOG_USEC").flatMap { UInt64($0) }
        let watched = Environment.takeText("WATCHDOG_PID").map { Int32($0) }
        self.name = name
        let isWatched = (watched == nil || watched == getpid()) && microseconds != 0
        watchdogMs = isWatched ? microseconds.map { $0 / 1_000 } : nil
        if name.isEmpty {
            socket = nil
        } else {
            let raw = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            guard raw >= 0 else { throw .last("socket") }
            socket = Descriptor(owning: raw)
        }
    }

    /// Sends one message of lines, e.g. `READY=1`. Users of the machine can read `STATUS=`, so it must contain no secret. Never blocks.
    public func notify(_ lines: String...) throws(Errno) {
        let raw: Int32
        switch socket {
        case .some(let socket): raw = socket.raw
        case .none: return
        }
        guard name.count <= SocketAddress.longestPath else { throw Errno(code: ENAMETOOLONG, call: "sendto NOTIFY_SOCKET") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: name) }
        // An abstract name is as long as the address says.
        let length = socklen_t(MemoryLayout<sockaddr_un>.offset(of: \.sun_path)! + name.count)
        let message = Array(lines.joined(separator: "\n").utf8)
        let sent = unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe sendto(raw, message, message.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT), address, length)
            }
        }
        guard sent >= 0 else { throw .last("sendto NOTIFY_SOCKET") }
    }
}

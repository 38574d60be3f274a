import CLinux
import Glibc

extension SocketAddress {
    /// The addresses of this machine's network interfaces, with port 0. Empty if the system doesn't tell.
    public static func ofThisMachine() -> [SocketAddress] {
        var first: UnsafeMutablePointer<ifaddrs>?
        guard unsafe getifaddrs(&first) == 0 else { return [] }
        defer { unsafe freeifaddrs(first) }
        var found: [SocketAddress] = []
        var next = unsafe first
        while let entry = unsafe next {
            if let raw = unsafe entry.pointee.ifa_addr {
                let count =
                    Int32(unsafe raw.pointee.sa_family) == AF_INET
                    ? MemoryLayout<sockaddr_in>.size : MemoryLayout<sockaddr_in6>.size
                if let address = unsafe SocketAddress(raw, length: socklen_t(count)) { found.append(address) }
            }
            unsafe next = entry.pointee.ifa_next
        }
        return found
    }
}

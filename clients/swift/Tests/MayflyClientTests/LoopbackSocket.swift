import Foundation

/// A TCP socket for finding ports.
final class LoopbackSocket {
    #if canImport(Darwin)
        private let descriptor = socket(AF_INET, SOCK_STREAM, 0)
    #else
        private let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #endif

    deinit { close(descriptor) }

    /// Binds a free port and returns it. It stays taken as long as the socket.
    func bound() -> Int {
        var address = Self.address(port: 0)
        withAddress(&address) { pointer, size in
            precondition(bind(descriptor, pointer, size) == 0, "no free port")
            var length = size
            getsockname(descriptor, pointer, &length)
        }
        return Int(in_port_t(bigEndian: address.sin_port))
    }

    func connects(to port: Int) -> Bool {
        var address = Self.address(port: port)
        var isConnected = false
        withAddress(&address) { isConnected = connect(descriptor, $0, $1) == 0 }
        return isConnected
    }

    private static func address(port: Int) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
        return address
    }

    private func withAddress(_ address: inout sockaddr_in, _ use: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Void) {
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { use($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
    }
}

import Linux

/// Open connections by who made them: an IPv4 address, or an IPv6 /64, since one customer has at least that many addresses.
struct AddressCounts {
    private let maximum: Int
    private var counts: [SocketAddress: Int] = [:]

    init(maximum: Int) { self.maximum = maximum }

    /// - Returns: false when the address has its share already; nothing is counted then.
    mutating func add(_ address: SocketAddress) -> Bool {
        guard let key = key(address) else { return true }
        let count = counts[key, default: 0]
        guard count < maximum else { return false }
        counts[key] = count + 1
        return true
    }

    mutating func remove(_ address: SocketAddress) {
        guard let key = key(address), let count = counts[key] else { return }
        counts[key] = count > 1 ? count - 1 : nil
    }

    var isEmpty: Bool { counts.isEmpty }

    private func key(_ address: SocketAddress) -> SocketAddress? {
        if address.isLoopback { return nil }
        return switch address {
        case .v6(0, let low, _) where low >> 32 == 0xFFFF: address.with(port: 0)
        case .v6(let high, _, _): .v6(high: high, low: 0, port: 0)
        default: address.with(port: 0)
        }
    }
}

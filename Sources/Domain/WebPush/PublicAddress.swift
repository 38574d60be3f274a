public import Linux

/// Tells addresses on the Internet from those that only this machine or its network reaches (RFC 6890 and IANA's registries).
extension SocketAddress {
    /// True for a global unicast address. An IPv4 address inside an IPv6 one counts as itself.
    public var isGlobalUnicast: Bool {
        switch self {
        case .v4(let address, _): Self.isGlobal(address)
        case .v6(let high, let low, _): Self.isGlobal(high, low)
        case .unix: false
        }
    }

    /// The networks that are not global: the first address and the length of the prefix.
    private static let inward4: [(UInt32, Int)] = [
        (0x0000_0000, 8), (0x0a00_0000, 8), (0x6440_0000, 10), (0x7f00_0000, 8), (0xa9fe_0000, 16), (0xac10_0000, 12),
        (0xc000_0000, 24), (0xc000_0200, 24), (0xc058_6300, 24), (0xc0a8_0000, 16), (0xc612_0000, 15), (0xc633_6400, 24),
        (0xcb00_7100, 24), (0xe000_0000, 3),
    ]
    /// The first half of each, of those inside 2000::/3.
    private static let inward6: [(UInt64, Int)] = [
        (0x2001_0000_0000_0000, 23), (0x2001_0db8_0000_0000, 32), (0x2002_0000_0000_0000, 16), (0x3fff_0000_0000_0000, 20),
    ]

    private static func isGlobal(_ address: UInt32) -> Bool {
        !inward4.contains { address >> (32 - $0.1) == $0.0 >> (32 - $0.1) }
    }

    /// Returns the embedded IPv4 address of ::ffff:0:0/96 (mapped) or 64:ff9b::/96 (NAT64). Returns nil for other addresses.
    private static func inner(_ high: UInt64, _ low: UInt64) -> UInt32? {
        let isInside = high == 0 && low >> 32 == 0xffff || high == 0x0064_ff9b_0000_0000 && low >> 32 == 0
        return isInside ? UInt32(truncatingIfNeeded: low) : nil
    }

    private static func isGlobal(_ high: UInt64, _ low: UInt64) -> Bool {
        if let inner = inner(high, low) { return isGlobal(inner) }
        return high >> 61 == 1 && !inward6.contains { high >> (64 - $0.1) == $0.0 >> (64 - $0.1) }
    }

    /// The same without its port, and an IPv4 address inside an IPv6 one as itself. For comparisons.
    public var bare: SocketAddress {
        if case .v6(let high, let low, _) = self, let inner = Self.inner(high, low) { return .v4(inner, port: 0) }
        return with(port: 0)
    }
}

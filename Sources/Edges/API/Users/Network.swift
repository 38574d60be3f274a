import Linux

/// An IP address with the number of its leading bits that count.
struct Network: Sendable {
    private let prefix: [UInt8]
    private let bits: Int

    /// Reads an address, or a network such as `2001:db8::/48`. Returns nil for other text.
    init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false).map { String($0.filter { $0 != " " }) }
        guard parts.count <= 2, let address = SocketAddress(numeric: parts[0], port: 0) else { return nil }
        prefix = Self.bytes(address)
        guard parts.count == 2 else {
            bits = prefix.count * 8
            return
        }
        guard let bits = Int(parts[1]), (1...prefix.count * 8).contains(bits) else { return nil }
        self.bits = bits
    }

    /// Says which of the words is refused and why, without the word itself. Nil if all are valid.
    static func fault(in words: [String]) -> String? {
        for (index, word) in words.enumerated() {
            if let fault = fault(word) { return "number \(index + 1) of \(words.count) \(fault)" }
        }
        return nil
    }

    private static func fault(_ word: String) -> String? {
        guard Network(word) == nil else { return nil }
        let address = String(word.prefix { $0 != "/" })
        if let address = SocketAddress(numeric: address, port: 0) {
            if word.hasSuffix("/0") { return "has the prefix /0, which is everybody. Write a smaller network" }
            return "has a wrong prefix: it must be 1 to \(bytes(address).count * 8)"
        }
        if SocketAddress(parsing: address)?.port != nil { return "has a port. Leave the port out" }
        return "is neither. Write the machine's own address, not its name"
    }

    /// - Parameter bytes: an address as `bytes` returns it.
    func contains(_ bytes: [UInt8]) -> Bool {
        guard prefix.count == bytes.count else { return false }
        return prefix.indices.allSatisfy { index in
            let bits = min(8, max(0, bits - 8 * index))
            return (prefix[index] ^ bytes[index]) >> UInt8(8 - bits) == 0
        }
    }

    /// Returns an address in 4 or 16 bytes. An IPv4 address written as IPv6 counts as IPv4. Peers of Unix-domain sockets have no address.
    static func bytes(_ address: SocketAddress) -> [UInt8] {
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

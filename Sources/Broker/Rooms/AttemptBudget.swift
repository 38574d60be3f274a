import Linux
import Policy
import Sodium

/// Limits how often one network, and all networks together, may try something in a window of time.
///
/// Networks are kept only as keyed hashes, in memory. The key is wiped when the window ends, so that nobody can look up the counts afterwards.
/// The policy sets how many bits of an address name a network.
struct AttemptBudget {
    private let perAddress: Budget
    private let ipv4Bits: Int
    private let ipv6Bits: Int
    private var networksEnd: UInt64 = 0
    private var key: [UInt8] = []
    private var networks: [UInt128: Int] = [:]
    private var overall: Allowance
    /// Bounds memory. Further networks in the same window are limited by the overall budget only.
    private static let maxNetworks = Guessing.mostAddresses

    init(_ budgets: Budgets, ipv4Bits: Int, ipv6Bits: Int) {
        perAddress = budgets.perAddress
        overall = Allowance(budgets.overall)
        self.ipv4Bits = ipv4Bits
        self.ipv6Bits = ipv6Bits
    }

    /// - Parameters:
    ///   - overall: true if the budget of all networks together counts as well.
    ///   - nodes: how many nodes share the budget.
    /// - Returns: the seconds until this address may try again, or nil if it may now.
    mutating func refusal(_ address: SocketAddress, overall countsOverall: Bool = true, nodes: Int = 1, now: UInt64) -> Int? {
        renew(now)
        if countsOverall, let wait = overall.refusal(nodes: nodes, now: now) { return wait }
        if networks.isEmpty { return nil }
        if networks[network(address), default: 0] >= perAddress.count(over: nodes) {
            return Int((networksEnd - now + 999) / 1_000)
        }
        return nil
    }

    mutating func spend(_ address: SocketAddress, overall countsOverall: Bool = true, now: UInt64) {
        renew(now)
        if countsOverall { overall.spend(now: now) }
        let network = network(address)
        if networks[network] != nil || networks.count < Self.maxNetworks { networks[network, default: 0] += 1 }
    }

    /// When the counts are deleted. Nil if there are none.
    var end: UInt64? { networks.isEmpty ? nil : networksEnd }

    /// Deletes the counts if the window is over.
    mutating func forget(_ now: UInt64) {
        guard now >= networksEnd else { return }
        Sodium.wipe(&key)
        networks = [:]
    }

    private mutating func renew(_ now: UInt64) {
        guard now >= networksEnd else { return }
        forget(now)
        networksEnd = now + perAddress.windowMs
        key = Sodium.randomBytes(32)
    }

    private func network(_ address: SocketAddress) -> UInt128 {
        let prefix = address.network(ipv4Bits: ipv4Bits, ipv6Bits: ipv6Bits)
        let hash = GenericHash.hash(prefix.span, key: key.span)
        return hash.prefix(16).reduce(0) { $0 << 8 | UInt128($1) }
    }
}

/// A budget for all callers together. A window begins with the first call after the previous one's end.
struct Allowance {
    private let budget: Budget
    private var end: UInt64 = 0
    private var taken = 0

    init(_ budget: Budget) { self.budget = budget }

    /// - Returns: the seconds until another one is allowed, or nil if it is allowed now.
    mutating func refusal(nodes: Int = 1, now: UInt64) -> Int? {
        renew(now)
        return taken >= budget.count(over: nodes) ? Int((end - now + 999) / 1_000) : nil
    }

    mutating func spend(now: UInt64) {
        renew(now)
        taken += 1
    }

    private mutating func renew(_ now: UInt64) {
        guard now >= end else { return }
        (end, taken) = (now + budget.windowMs, 0)
    }
}

extension SocketAddress {
    /// The bytes that name one network: the family and the address's first bits. An IPv4 address written as IPv6 (::ffff:a.b.c.d) counts as
    /// IPv4.
    func network(ipv4Bits: Int, ipv6Bits: Int) -> [UInt8] {
        switch self {
        case .v4(let address, _): Self.bytes(4, Self.first(ipv4Bits, of: UInt64(address) << 32), 0)
        case .v6(high: 0, let low, _) where low >> 32 == 0xffff: Self.bytes(4, Self.first(ipv4Bits, of: low << 32), 0)
        case .v6(let high, let low, _):
            Self.bytes(6, Self.first(min(ipv6Bits, 64), of: high), Self.first(max(0, ipv6Bits - 64), of: low))
        case .unix: [0]
        }
    }

    private static func first(_ bits: Int, of value: UInt64) -> UInt64 {
        bits <= 0 ? 0 : value & (UInt64.max << UInt64(64 - min(bits, 64)))
    }

    private static func bytes(_ family: UInt8, _ high: UInt64, _ low: UInt64) -> [UInt8] {
        var bytes = [UInt8](repeating: family, count: 17)
        for index in 0..<8 {
            bytes[1 + index] = UInt8(truncatingIfNeeded: high >> UInt64(56 - 8 * index))
            bytes[9 + index] = UInt8(truncatingIfNeeded: low >> UInt64(56 - 8 * index))
        }
        return bytes
    }
}

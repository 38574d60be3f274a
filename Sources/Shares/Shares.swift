public import Linux
import Sodium
import Synchronization

/// The one ledger of who holds how much of each finite resource, for all layers of a process.
///
/// Owners are known by keyed hashes alone, and the tables that count them are bounded.
public final class Shares: Sendable {
    public let table: ShareTable
    private let names = ShortHash()
    private let pots: Mutex<[Pot]>

    /// - Parameter mostOwners: rows of one resource's table. Owners beyond share one row.
    public init(_ table: ShareTable = .standard, mostOwners: Int = 131_072) {
        self.table = table
        pots = Mutex(Resource.allCases.map { Pot($0, table[$0], mostOwners: mostOwners) })
    }

    // MARK: Owners

    /// The network of an address: an IPv4 address, or an IPv6 /56. A mapped IPv4 address counts as IPv4, and all peers of Unix-domain sockets as
    /// one network.
    public func network(_ address: SocketAddress) -> Owner {
        switch address {
        case .v4(let address, _): Owner(kind: .network, name: name(.network, 4, UInt64(address)))
        case .v6(high: 0, let low, _) where low >> 32 == 0xFFFF:
            Owner(kind: .network, name: name(.network, 4, low & 0xFFFF_FFFF))
        case .v6(let high, _, _):
            Owner(kind: .network, name: name(.network, 56, high >> 8), wide: name(.network, 48, high >> 16))
        case .unix: Owner(kind: .network, name: name(.network, 0, 0))
        }
    }

    /// A trusted proxy, for what its own connections hold.
    public func proxy(_ address: SocketAddress) -> Owner {
        Owner(kind: .proxy, name: max(Owner.firstName, network(address).name ^ UInt64(Owner.Kind.proxy.rawValue) << 56))
    }

    public func user(_ name: Span<UInt8>) -> Owner { Owner(kind: .user, name: self.name(.user, name)) }

    public func backEnd(_ name: Span<UInt8>) -> Owner { Owner(kind: .backEnd, name: self.name(.backEnd, name)) }

    /// - Parameter number: of the connection; never used again in this process.
    public func connection(_ number: UInt64) -> Owner { Owner(kind: .connection, name: name(.connection, 0, number)) }

    /// - Parameters:
    ///   - room: what names the room, e.g. an index of it.
    ///   - slot: 1 or 2.
    public func side(_ room: Span<UInt8>, slot: UInt8) -> Owner {
        var bytes = [slot]
        bytes.reserveCapacity(room.count + 1)
        for index in room.indices { bytes.append(room[index]) }
        return Owner(kind: .side, name: name(.side, bytes.span))
    }

    private func name(_ kind: Owner.Kind, _ family: UInt8, _ number: UInt64) -> UInt64 {
        var bytes = InlineArray<9, UInt8>(repeating: family)
        for index in 0..<8 { bytes[1 + index] = UInt8(truncatingIfNeeded: number >> UInt64(8 * index)) }
        return name(kind, bytes.span)
    }

    /// The kind tells owners of two kinds with the same name apart.
    private func name(_ kind: Owner.Kind, _ bytes: Span<UInt8>) -> UInt64 {
        max(Owner.firstName, names.hash(bytes) ^ UInt64(kind.rawValue) << 56)
    }

    // MARK: Charges

    /// Charges every owner that the resource has a share for, or none of them.
    /// - Parameter now: ms of any one clock, for resources with a window; turns of the loop for `requestsInTurn`.
    public func charge(
        _ resource: Resource, _ amount: Int = 1, to owners: Owners, now: UInt64 = 0, urgency: Urgency = .creation
    ) throws(Shortage) -> Charge {
        var charge = Charge(resource: resource, owners: owners, amount: 0, since: now)
        try grow(&charge, by: amount, urgency: urgency)
        return charge
    }

    /// Charges more to the same owners.
    public func grow(_ charge: inout Charge, by amount: Int, urgency: Urgency = .creation) throws(Shortage) {
        let shortage = pots.withLock { $0[charge.resource.rawValue].grow(&charge, amount, urgency) }
        if let shortage { throw shortage }
    }

    /// Whether a charge would succeed.
    public func allows(_ resource: Resource, _ amount: Int = 1, to owners: Owners, now: UInt64 = 0) -> Bool {
        pots.withLock { $0[resource.rawValue].allows(amount, owners, now) }
    }

    /// Refunds a part.
    public func shrink(_ charge: inout Charge, by amount: Int) {
        precondition(amount <= charge.amount, "a refund of more than was charged")
        pots.withLock { $0[charge.resource.rawValue].shrink(charge, amount) }
        charge.amount -= amount
    }

    /// Refunds all of it.
    public func refund(_ charge: Charge) {
        pots.withLock { $0[charge.resource.rawValue].shrink(charge, charge.amount) }
    }

    public func refund(_ charges: [Charge]) {
        for charge in charges { refund(charge) }
    }

    /// Drops rows whose windows are over. Call it now and then, for resources whose windows have the same clock.
    public func forget(_ resources: [Resource], now: UInt64) {
        pots.withLock { pots in for resource in resources { pots[resource.rawValue].forget(now) } }
    }

    /// Forgets all charges of a resource.
    public func clear(_ resource: Resource) { pots.withLock { $0[resource.rawValue].clear() } }

    // MARK: Figures

    /// What all owners hold together.
    public func used(_ resource: Resource, now: UInt64 = 0) -> Int { pots.withLock { $0[resource.rawValue].used(now) } }

    public struct Refusals: Sendable, Equatable {
        public var overShare = 0
        public var exhausted = 0
    }

    /// Since the start.
    public func refusals(_ resource: Resource) -> Refusals { pots.withLock { $0[resource.rawValue].refusals } }
}

public import Linux
import Sodium
import Synchronization

/// Charges and refunds of all finite resources, for all layers of a process.
///
/// Owners are known only by keyed hashes, and the tables that count them are bounded.
public final class Shares: Sendable {
    public let table: ShareTable
    private let names = ShortHash()
    private let uses: Mutex<[ResourceUse]>

    /// - Parameter mostOwners: rows of one resource's table. Further owners share a row.
    public init(_ table: ShareTable = .standard, mostOwners: Int = 131_072) {
        self.table = table
        uses = Mutex(Resource.allCases.map { ResourceUse($0, table[$0], mostOwners: mostOwners) })
    }

    // MARK: Owners

    /// Returns the network of an address: an IPv4 address or an IPv6 /56. A mapped IPv4 address counts as IPv4. All peers of Unix-domain sockets are
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

    /// Returns the owner of a trusted proxy's connections.
    public func proxy(_ address: SocketAddress) -> Owner {
        Owner(kind: .proxy, name: max(Owner.firstName, network(address).name ^ UInt64(Owner.Kind.proxy.rawValue) << 56))
    }

    public func user(_ name: Span<UInt8>) -> Owner { Owner(kind: .user, name: self.name(.user, name)) }

    public func backEnd(_ name: Span<UInt8>) -> Owner { Owner(kind: .backEnd, name: self.name(.backEnd, name)) }

    /// - Parameter number: the connection's number, unique in this process.
    public func connection(_ number: UInt64) -> Owner { Owner(kind: .connection, name: name(.connection, 0, number)) }

    /// - Parameters:
    ///   - room: an identifier of the room, e.g. an index.
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

    /// The kind distinguishes owners of different kinds with the same name.
    private func name(_ kind: Owner.Kind, _ bytes: Span<UInt8>) -> UInt64 {
        max(Owner.firstName, names.hash(bytes) ^ UInt64(kind.rawValue) << 56)
    }

    // MARK: Charges

    /// Charges every owner that has a share of the resource, or none of them.
    /// - Parameter now: ms of any clock, for resources with a window; turns of the loop for `requestsInTurn`.
    public func charge(
        _ resource: Resource, _ amount: Int = 1, to owners: Owners, now: UInt64 = 0, urgency: Urgency = .creation
    ) throws(Shortage) -> Charge {
        var charge = Charge(resource: resource, owners: owners, amount: 0, since: now)
        try grow(&charge, by: amount, urgency: urgency)
        return charge
    }

    /// Charges more to the same owners.
    public func grow(_ charge: inout Charge, by amount: Int, urgency: Urgency = .creation) throws(Shortage) {
        let shortage = uses.withLock { $0[charge.resource.rawValue].grow(&charge, amount, urgency) }
        if let shortage { throw shortage }
    }

    /// Whether a charge would succeed.
    public func allows(_ resource: Resource, _ amount: Int = 1, to owners: Owners, now: UInt64 = 0) -> Bool {
        uses.withLock { $0[resource.rawValue].allows(amount, owners, now) }
    }

    /// Returns how many units must be free beside this charge, because of what its payer holds. It is for a total that a store counts more exactly.
    public func mustStayFree(_ charge: Charge) -> Int {
        uses.withLock { $0[charge.resource.rawValue].mustStayFree(charge) }
    }

    /// Refunds a part of a charge.
    public func shrink(_ charge: inout Charge, by amount: Int) {
        precondition(amount <= charge.amount, "a refund of more than was charged")
        uses.withLock { $0[charge.resource.rawValue].shrink(charge, amount) }
        charge.amount -= amount
    }

    /// Refunds a charge.
    public func refund(_ charge: Charge) {
        uses.withLock { $0[charge.resource.rawValue].shrink(charge, charge.amount) }
    }

    public func refund(_ charges: [Charge]) {
        for charge in charges { refund(charge) }
    }

    /// Drops rows whose windows are over. Call it periodically, for resources with the same clock.
    public func forget(_ resources: [Resource], now: UInt64) {
        uses.withLock { uses in for resource in resources { uses[resource.rawValue].forget(now) } }
    }

    /// Lets each of several nodes grant its part of a resource.
    public func divide(_ resources: [Resource], by nodes: Int) {
        uses.withLock { uses in for resource in resources { uses[resource.rawValue].nodes = max(1, nodes) } }
    }

    /// Drops all charges of a resource.
    public func clear(_ resource: Resource) { uses.withLock { $0[resource.rawValue].clear() } }

    // MARK: Figures

    /// The total that all owners hold.
    public func used(_ resource: Resource, now: UInt64 = 0) -> Int { uses.withLock { $0[resource.rawValue].used(now) } }

    public struct Refusals: Sendable, Equatable {
        public var overShare = 0
        public var exhausted = 0
    }

    /// The refusals since the start.
    public func refusals(_ resource: Resource) -> Refusals { uses.withLock { $0[resource.rawValue].refusals } }
}

/// The owner of a charge, as a keyed hash of its name.
public struct Owner: Sendable, Hashable {
    enum Kind: UInt8, Sendable { case side, connection, network, user, backEnd, proxy }

    let kind: Kind
    var name: UInt64
    /// The /48 of an IPv6 network; 0 for others.
    var wide: UInt64 = 0

    public var isNetwork: Bool { kind == .network }

    /// A trusted proxy's own connections. Its requests are charged to their origins.
    public var isProxy: Bool { kind == .proxy }

    public var isBackEnd: Bool { kind == .backEnd }

    /// Names below this one are shared rows.
    static let firstName: UInt64 = 16
}

/// All owners charged for a request.
public struct Owners: Sendable, Hashable {
    /// The network, or a known user or back end, or the proxy for a proxy's own connection.
    public var payer: Owner
    public var connection: Owner?
    public var side: Owner?

    /// For requests that tests create in memory.
    public static let unknown = Owners(Owner(kind: .network, name: Owner.firstName))

    public init(_ payer: Owner, connection: Owner? = nil, side: Owner? = nil) {
        self.payer = payer
        self.connection = connection
        self.side = side
    }
}

/// A charge. Refund it once, or let its window expire.
public struct Charge: Sendable {
    public let resource: Resource
    public internal(set) var owners: Owners
    public internal(set) var amount: Int
    /// The start of the window; 0 without one.
    let since: UInt64
}

/// Why a charge was refused.
public enum Shortage: Error, Sendable, Hashable {
    /// The owner is over its share: answer 429 or close its own connection.
    case overShare(Resource, retryAfterSeconds: Int)
    /// Other owners use all of it: answer 503 and raise an alarm.
    case exhausted(Resource, retryAfterSeconds: Int)
}

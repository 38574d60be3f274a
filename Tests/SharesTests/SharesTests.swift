import Linux
import Testing

@testable import Shares

@Suite struct SharesTests {
    private func v4(_ number: UInt32) -> SocketAddress { .v4(0x0A00_0000 + number, port: UInt16(truncatingIfNeeded: number)) }

    /// The `number`th /64 of the `block`th /56 of one /48.
    private func v6(_ block: UInt64, _ number: UInt64 = 0) -> SocketAddress {
        .v6(high: 0x2001_0DB8_0000_0000 | block << 8 | number, low: number + 1, port: 443)
    }

    private func shares(_ resource: Resource, _ quota: Quota, mostOwners: Int = 1_000) -> Shares {
        var table = ShareTable.standard
        table[resource] = quota
        return Shares(table, mostOwners: mostOwners)
    }

    /// How many consecutive charges of 1 succeed.
    private func fill(_ shares: Shares, _ resource: Resource, _ owners: Owners, now: UInt64 = 0) -> (count: Int, end: Shortage) {
        for count in 0... {
            do throws(Shortage) {
                _ = try shares.charge(resource, to: owners, now: now)
            } catch {
                return (count, error)
            }
        }
        fatalError("never refused")
    }

    @Test func severalNodesShareAQuota() {
        let nodes = (0..<3).map { _ in shares(.creations, Quota(90, network: Share(10), windowMs: 1_000)) }
        for node in nodes { node.divide([.creations], by: 3) }
        let owners = nodes.map { Owners($0.network(v4(1))) }
        #expect(zip(nodes, owners).map { fill($0, .creations, $1).count } == [4, 4, 4])
        // All of a node's part may be used by many.
        var used = 4
        for number: UInt32 in 2... {
            let count = fill(nodes[0], .creations, Owners(nodes[0].network(v4(number)))).count
            used += count
            if count < 4 { break }
        }
        #expect(used == 30)
        nodes[0].divide([.creations], by: 1)
        #expect(fill(nodes[0], .creations, owners[0]).count == 6)
    }

    // Promise: share-table
    @Test func theTableIsTheSpecification() {
        let table = ShareTable.standard
        #expect(table[.connections] == Quota(30_000, network: Share(4_000, freeDividedBy: 4), backEnd: Share(freeDividedBy: 2)))
        #expect(table[.unjoinedSockets] == Quota(2_048, network: Share(256), backEnd: Share(freeDividedBy: 2)))
        #expect(table[.streams].connection == Share(64) && table[.streams].network == Share(1_024))
        #expect(table[.streamBytes].total == 134_217_728 && table[.streamBytes].connection == Share(1_048_576))
        #expect(table[.requestsInTurn].connection == Share(16) && table[.requestsInTurn].backEnd == Share(256))
        #expect(table[.storeOperations].total == 4_096 && table[.storeOperations].side == Share(8))
        #expect(table[.arenaSlots].total == 40_960)
        #expect((2_560..<2_600).contains(40_960 - table[.arenaSlots].ceiling(.knock)))
        #expect(table[.arenaSlots].ceiling(.acknowledged) == 40_960)
        #expect(table[.creations].network == Share(10_000) && table[.creations].backEnd == Share(200_000))
        #expect(table[.queuedPushes].network == Share(freeDividedBy: 8) && table[.queuedPushes].side == Share(1))
        #expect(table[.roomSockets].side == Share(8))
        let quarter = Share(freeDividedBy: 4)
        #expect(table[.shortCodes] == Quota(1_000, network: quarter, backEnd: Share(freeDividedBy: 2)))
        #expect(table[.shortCreations].total == 1_000 && table[.shortCreations].network == quarter)
        #expect(table[.logReads].total == 64 && table[.logReads].connection == Share(4) && table[.logReads].network == quarter)
    }

    @Test func aNetworkMayHoldItsCap() {
        let shares = Shares()
        let (count, end) = fill(shares, .unjoinedSockets, Owners(shares.network(v4(1))))
        #expect(count == 256)
        #expect(end == .overShare(.unjoinedSockets, retryAfterSeconds: 5))
        #expect(fill(shares, .unjoinedSockets, Owners(shares.network(v4(2)))).count == 256)
        #expect(shares.refusals(.unjoinedSockets) == Shares.Refusals(overShare: 2, exhausted: 0))
    }

    @Test func clearingFreesAResource() throws {
        let shares = shares(.ledgerBacklog, Quota(100, network: Share(10)))
        let (one, two) = (Owners(shares.network(v4(1))), Owners(shares.network(v4(2))))
        let old = try shares.charge(.ledgerBacklog, 10, to: one)
        #expect(!shares.allows(.ledgerBacklog, to: one))
        shares.clear(.ledgerBacklog)
        #expect(shares.used(.ledgerBacklog) == 0)
        _ = try shares.charge(.ledgerBacklog, 10, to: two)
        // A late refund takes nothing from others.
        shares.refund(old)
        #expect(!shares.allows(.ledgerBacklog, to: two) && shares.allows(.ledgerBacklog, 10, to: one))
    }

    @Test func aFractionCountsWhatIsFree() {
        let shares = shares(.connections, Quota(100, network: Share(freeDividedBy: 4)))
        // With 20 of 100 used 80 are free, and a quarter of 80 is 20.
        #expect(fill(shares, .connections, Owners(shares.network(v4(1)))).count == 20)
        // 80 are free: 16, with 64 left.
        #expect(fill(shares, .connections, Owners(shares.network(v4(2)))).count == 16)
        #expect(shares.used(.connections) == 36)
    }

    @Test func theLastOnesAreForOwnersWithoutAny() {
        for total in 1...9 {
            let shares = shares(.shortCodes, Quota(total, network: Share(freeDividedBy: 4)))
            for number in 1...total as ClosedRange<Int> {
                #expect(shares.allows(.shortCodes, to: Owners(shares.network(v4(UInt32(number))))))
                _ = try? shares.charge(.shortCodes, to: Owners(shares.network(v4(UInt32(number)))))
                if total < 8 { #expect(!shares.allows(.shortCodes, to: Owners(shares.network(v4(UInt32(number)))))) }
            }
            #expect(shares.used(.shortCodes) == total)
        }
    }

    @Test func exhaustedIsNotOverAShare() throws {
        let shares = shares(.unjoinedSockets, Quota(4, network: Share(3)))
        #expect(
            fill(shares, .unjoinedSockets, Owners(shares.network(v4(1)))) == (
                3, .overShare(.unjoinedSockets, retryAfterSeconds: 5)
            ))
        #expect(
            fill(shares, .unjoinedSockets, Owners(shares.network(v4(2)))) == (
                1, .exhausted(.unjoinedSockets, retryAfterSeconds: 5)
            ))
        #expect(shares.refusals(.unjoinedSockets) == Shares.Refusals(overShare: 1, exhausted: 1))
    }

    @Test func anOwnerWithoutHoldingsIsNotOverItsShare() {
        let shares = shares(.connections, Quota(10, network: Share(freeDividedBy: 2), backEnd: Share()))
        #expect(
            fill(shares, .connections, Owners(shares.backEnd([1].span))) == (10, .exhausted(.connections, retryAfterSeconds: 5)))
        #expect(fill(shares, .connections, Owners(shares.network(v4(1)))) == (0, .exhausted(.connections, retryAfterSeconds: 5)))
    }

    @Test func the64sOfA56AreOneNetwork() {
        let shares = shares(.connections, Quota(10_000, network: Share(100)))
        var taken = 0
        for number in 0..<256 as Range<UInt64> {
            taken += fill(shares, .connections, Owners(shares.network(v6(7, number)))).count
        }
        #expect(taken == 100)
    }

    @Test func a48MayHoldTwoSharesOfItsNetworks() {
        let shares = shares(.connections, Quota(10_000, network: Share(100)))
        var taken = 0
        for block in 0..<256 as Range<UInt64> { taken += fill(shares, .connections, Owners(shares.network(v6(block)))).count }
        #expect(taken == 200)
        let other = SocketAddress.v6(high: 0x2001_0DB8_0001_0000, low: 1, port: 1)
        #expect(fill(shares, .connections, Owners(shares.network(other))).count == 100)
    }

    @Test func oneIPv6BlockLeavesMostConnectionsToOthers() {
        let shares = Shares()
        var taken = 0
        for number in 0..<256 as Range<UInt64> {
            taken += fill(shares, .connections, Owners(shares.network(v6(0, number)))).count
        }
        #expect(taken == 4_000)
        #expect(fill(shares, .connections, Owners(shares.network(v4(1)))).count == 4_000)
    }

    @Test func mappedIPv4CountsAsIPv4() {
        let shares = Shares()
        let mapped = SocketAddress.v6(high: 0, low: 0xFFFF_7F00_0001, port: 9)
        #expect(shares.network(mapped) == shares.network(.v4(0x7F00_0001, port: 7)))
        #expect(shares.network(mapped) != shares.network(.v4(0x7F00_0002, port: 7)))
        #expect(shares.network(.unix("")) == shares.network(.unix("/run/a")))
    }

    @Test func namesDifferBetweenProcesses() {
        #expect(Shares().network(v4(1)) != Shares().network(v4(1)))
    }

    @Test func aProxyLeavesOthersRoom() {
        let shares = shares(.connections, Quota(160, network: Share(10)))
        #expect(fill(shares, .connections, Owners(shares.proxy(v4(1)))).count == 150)
        #expect(fill(shares, .connections, Owners(shares.network(v4(1)))).count == 10)
    }

    @Test func aUserHasTheNetworksNumbersAndABackEndItsOwn() {
        let shares = Shares()
        #expect(fill(shares, .unjoinedSockets, Owners(shares.user([1].span))).count == 256)
        #expect(fill(shares, .unjoinedSockets, Owners(shares.network(v4(1)))).count == 256)
        // Half of what is free: 512 of 1,536, and then another third of the rest at each step.
        #expect(fill(shares, .unjoinedSockets, Owners(shares.backEnd([1].span))).count == 512)
    }

    @Test func everyFilledColumnIsCharged() throws {
        let shares = Shares()
        let network = shares.network(v4(1))
        let side = shares.side([9, 9].span, slot: 1)
        let owners = Owners(network, connection: shares.connection(1), side: side)
        #expect(fill(shares, .storeOperations, owners).count == 8)
        #expect(fill(shares, .storeOperations, Owners(network, connection: shares.connection(1))).count == 56)
        #expect(fill(shares, .storeOperations, Owners(network, connection: shares.connection(2))).count == 64)
        #expect(fill(shares, .storeOperations, Owners(shares.network(v4(2)), side: side)).count == 0)
        #expect(
            fill(shares, .storeOperations, Owners(shares.network(v4(2)), side: shares.side([9, 9].span, slot: 2))).count == 8)
    }

    @Test func aRefusedChargeTakesNothing() throws {
        let shares = Shares()
        let owners = Owners(shares.network(v4(1)), connection: shares.connection(1))
        var charge = try shares.charge(.streamBytes, 1 << 20, to: owners)
        #expect(throws: Shortage.overShare(.streamBytes, retryAfterSeconds: 5)) { try shares.grow(&charge, by: 1) }
        #expect(charge.amount == 1 << 20 && shares.used(.streamBytes) == 1 << 20)
        shares.shrink(&charge, by: 1)
        try shares.grow(&charge, by: 1)
        shares.refund(charge)
        #expect(shares.used(.streamBytes) == 0)
        _ = try shares.charge(.streamBytes, 1 << 20, to: owners)
    }

    @Test func refundsInAnyOrderLeaveNothing() throws {
        let shares = shares(.connections, Quota(100_000, network: Share(100)))
        var generator = SystemRandomNumberGenerator()
        var charges: [Charge] = []
        for number in 0..<5_000 as Range<UInt32> {
            charges.append(try shares.charge(.connections, to: Owners(shares.network(v4(number % 70)))))
            if generator.next() % 3 == 0 { shares.refund(charges.remove(at: charges.indices.randomElement()!)) }
        }
        for number in 0..<70 as Range<UInt32> {
            let network = shares.network(v4(number))
            let held = charges.count { $0.owners.payer == network }
            #expect(fill(shares, .connections, Owners(network)).count == 100 - held)
        }
        #expect(shares.used(.connections) == 7_000)
        for charge in charges.shuffled() { shares.refund(charge) }
        #expect(shares.used(.connections) == 7_000 - charges.count)
    }

    @Test func aFullTableCountsTheRestTogether() throws {
        let shares = shares(.connections, Quota(160, network: Share(10)), mostOwners: 5)
        var charges: [Charge] = []
        for number in 0..<5 as Range<UInt32> {
            charges.append(try shares.charge(.connections, to: Owners(shares.network(v4(number)))))
        }
        // The others may hold 15 sixteenths together.
        let first = try shares.charge(.connections, to: Owners(shares.network(v4(100))))
        for number in 101..<250 as Range<UInt32> { _ = try shares.charge(.connections, to: Owners(shares.network(v4(number)))) }
        #expect(fill(shares, .connections, Owners(shares.network(v4(300)))).count == 0)
        // Owners with a row keep their share.
        #expect(fill(shares, .connections, Owners(shares.network(v4(0)))).count == 5)
        shares.refund(first)
        #expect(shares.used(.connections) == 159)
        for charge in charges { shares.refund(charge) }
        // There is room for its own row again.
        #expect(fill(shares, .connections, Owners(shares.network(v4(301)))).count == 6)
    }

    @Test func aWindowEndsByItself() throws {
        let shares = shares(.creations, Quota(100, network: Share(3), windowMs: 1_000))
        let owners = Owners(shares.network(v4(1)))
        #expect(fill(shares, .creations, owners, now: 5_000) == (3, .overShare(.creations, retryAfterSeconds: 1)))
        #expect(fill(shares, .creations, owners, now: 5_999).count == 0)
        #expect(fill(shares, .creations, owners, now: 6_000).count == 3)
        #expect(shares.used(.creations, now: 6_000) == 3)
        #expect(shares.used(.creations, now: 7_000) == 0)
        // A refund of an expired window takes nothing from the next one.
        let old = try shares.charge(.creations, to: owners, now: 7_000)
        #expect(fill(shares, .creations, owners, now: 8_000).count == 3)
        shares.refund(old)
        #expect(fill(shares, .creations, owners, now: 8_000).count == 0)
    }

    @Test func forgottenWindowsLeaveNoRow() {
        var holdings = Holdings(windowMs: 10, most: 1_000)
        for name in 100..<200 as Range<UInt64> { holdings.insert(1, name, 0) }
        #expect(holdings.count == 100)
        holdings.forget(9)
        #expect(holdings.count == 100)
        holdings.forget(10)
        #expect(holdings.count == 0)
    }

    @Test func urgentChargesHaveAReserve() throws {
        let shares = shares(.arenaSlots, Quota(1_000, ceilings: [.creation: 700, .knock: 850]))
        let owners = Owners(shares.network(v4(1)))
        for (urgency, total) in [(Urgency.creation, 700), (.knock, 850), (.acknowledged, 1_000)] {
            while (try? shares.charge(.arenaSlots, to: owners, urgency: urgency)) != nil {}
            #expect(shares.used(.arenaSlots) == total)
        }
    }

    @Test func rowsSurviveTheRemovalOfTheirNeighbours() {
        var holdings = Holdings(windowMs: nil, most: 1_000)
        // All names hash to one entry, and their rows wrap around the table's end.
        let names = (0..<7 as Range<UInt64>).map { 62 + 64 * ($0 + 1) }
        for name in names { holdings.insert(2, name, 0) }
        for (index, name) in names.enumerated().reversed() where index % 2 == 0 { holdings.remove(2, name, since: 0) }
        for (index, name) in names.enumerated() { #expect(holdings.held(name, 0) == (index % 2 == 0 ? 0 : 2)) }
        #expect(holdings.count == 3)
    }
}

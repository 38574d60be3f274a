import Linux
import Sealing
import Testing
import Vocabulary

@testable import Broker
@testable import Policy

@Suite struct AttemptBudgetTests {
    private func budget(_ perAddress: Int, _ overall: Int) -> AttemptBudget {
        AttemptBudget(
            Budgets(
                perAddress: Budget(count: perAddress, windowMs: 600_000), overall: Budget(count: overall, windowMs: 60_000)),
            ipv4Bits: 32, ipv6Bits: 56)
    }

    private func v4(_ last: UInt32) -> SocketAddress { .v4(0xc633_6400 + last, port: 1) }

    @Test func aNetworkHasItsOwnBudget() {
        var budget = budget(2, 100)
        for _ in 0..<2 {
            let wait1 = budget.refusal(v4(1), now: 1_000)
            #expect(wait1 == nil)
            budget.spend(v4(1), now: 1_000)
        }
        let wait2 = budget.refusal(v4(1), now: 1_000)
        #expect(wait2 == 600)
        let wait3 = budget.refusal(v4(1), now: 600_999)
        #expect(wait3 == 1)
        let wait4 = budget.refusal(v4(2), now: 1_000)
        #expect(wait4 == nil)
        let wait5 = budget.refusal(v4(1), now: 601_000)
        #expect(wait5 == nil)
    }

    @Test func allNetworksTogetherHaveABudget() {
        var budget = budget(2, 3)
        for last: UInt32 in 1...3 { budget.spend(v4(last), now: 0) }
        let wait6 = budget.refusal(v4(9), now: 0)
        #expect(wait6 == 60)
        let wait7 = budget.refusal(v4(9), now: 60_000)
        #expect(wait7 == nil)
        // The address's own window is longer, and still runs.
        budget.spend(v4(1), now: 60_000)
        let wait8 = budget.refusal(v4(1), now: 60_001)
        #expect(wait8 != nil)
    }

    // Promise: budgets-over-nodes
    @Test(arguments: [1, 2, 3, 7, 100]) func severalNodesShareABudget(nodes: Int) throws {
        var budgets = Array(repeating: budget(20, 1_000), count: nodes)
        var granted = 0
        for node in 0..<nodes {
            while budgets[node].refusal(v4(1), nodes: nodes, now: 0) == nil {
                budgets[node].spend(v4(1), now: 0)
                granted += 1
            }
        }
        #expect((20..<20 + nodes).contains(granted) || granted == nodes)
        let keyed = (0..<nodes).map { _ in KeyedBudget(Budget(count: 20, windowMs: 600_000), nodes: { nodes }) }
        let reserved = try keyed.reduce(0) { sum, budget in
            var count = 0
            while try budget.reserve([1], now: 0) != nil { count += 1 }
            return sum + count
        }
        #expect(reserved == granted)
    }

    @Test func theEndOfAWindowDeletesItsNetworks() {
        var budget = budget(2, 100)
        #expect(budget.end == nil)
        for _ in 0..<2 { budget.spend(v4(1), now: 1_000) }
        let end = budget.end
        #expect(end == 601_000)
        budget.forget(600_999)
        let held = budget.refusal(v4(1), now: 600_999)
        #expect(held == 1 && budget.end != nil)
        budget.forget(601_000)
        #expect(budget.end == nil)
    }

    @Test func addressesOfANetworkAreOneCaller() {
        let share = { (a: SocketAddress, b: SocketAddress) in
            a.network(ipv4Bits: 32, ipv6Bits: 56) == b.network(ipv4Bits: 32, ipv6Bits: 56)
        }
        let six = { (text: String) in SocketAddress(numeric: text, port: 1)! }
        #expect(share(six("2001:db8:1:200::1"), six("2001:db8:1:2ff:ffff::9")))
        #expect(!share(six("2001:db8:1:200::1"), six("2001:db8:1:300::1")))
        #expect(!share(v4(1), v4(2)))
        #expect(share(six("198.51.100.1"), six("::ffff:198.51.100.1")))
        #expect(!share(six("::198.51.100.1"), six("198.51.100.1")))
        #expect(six("10.1.2.3").network(ipv4Bits: 8, ipv6Bits: 0) == six("10.9.9.9").network(ipv4Bits: 8, ipv6Bits: 0))
    }
}

@Suite struct KeyedBudgetTests {
    private struct Share {
        let budget: KeyedBudget

        init(_ count: Int = 3, most: Int = 100) {
            budget = KeyedBudget(Budget(count: count, windowMs: 300_000), most: most)
        }

        func take(
            _ token: Int, _ environment: PushEnvironment = .production, at now: UInt64 = 0
        ) throws -> KeyedBudget.Reservation? {
            let bytes = (0..<8).map { UInt8(truncatingIfNeeded: token >> ($0 * 8)) }
            let destination = Destination.apns(AppID(bundleID: "com.example.app"), environment)
            return try budget.reserve(PushAddress(destination, token: try Secret(copying: bytes.span)), now: now)
        }
    }

    @Test func aTokenHasABudget() throws {
        let share = Share()
        for second: UInt64 in 0..<3 { #expect(try share.take(1, at: 1_000 * second) != nil) }
        #expect(try share.take(1, at: 299_999) == nil)
        #expect(try share.take(2, at: 299_999) != nil)
        #expect(try share.take(1, at: 300_000) != nil)
    }

    /// A production token in the sandbox rings nowhere, so knocks there must not silence the phone.
    @Test func eachEnvironmentHasItsOwnBudget() throws {
        let share = Share()
        for _ in 0..<3 { #expect(try share.take(1, .sandbox) != nil) }
        #expect(try share.take(1, .sandbox) == nil)
        #expect(try share.take(1, .production) != nil)
    }

    @Test func aCancelledReservationIsRefunded() throws {
        let share = Share()
        let reservations = try (0..<3).compactMap { _ in try share.take(1) }
        reservations[1].cancel()
        #expect(try share.take(1) != nil)
        #expect(try share.take(1) == nil)
        // A reservation of an earlier window has no effect.
        for _ in 0..<3 { _ = try share.take(1, at: 300_000) }
        reservations[0].cancel()
        #expect(try share.take(1, at: 300_000) == nil)
    }

    @Test func theEndOfAWindowDeletesItsCounts() throws {
        let share = Share()
        let first = try #require(try share.take(1))
        share.budget.forget(299_999)
        #expect(share.budget.count == 1 && share.budget.end == 300_000)
        share.budget.forget(300_000)
        #expect(share.budget.count == 0 && share.budget.end == nil)
        let second = try #require(try share.take(1, at: 300_000))
        #expect(first.name != second.name, "one token, told by the same hash in two windows")
    }

    /// Of many tokens, those with one knock are forgotten and the one with many knocks is not.
    @Test func memoryIsBounded() throws {
        let share = Share(30)
        var rung = 0
        for number in 0..<3_000 {
            if number % 20 == 0, try share.take(-1) != nil { rung += 1 }
            #expect(try share.take(number) != nil)
            #expect(share.budget.count <= 100)
        }
        // The token may be forgotten only while it has no more knocks than the others.
        #expect((30...32).contains(rung))
    }
}

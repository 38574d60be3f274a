import Linux
import Testing

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

    @Test func anAddressIsHeldToItsShare() {
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

    @Test func allTogetherAreHeldToTheWhole() {
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

    @Test func aWindowLeavesNoNetwork() {
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

    @Test func networksAreOneCaller() {
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

import Sealing
import Testing
import Vocabulary

@testable import Broker
@testable import Policy

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
            return try budget.reserve(try Secret(copying: bytes.span), environment, now: now)
        }
    }

    @Test func aTokenIsHeldToItsShare() throws {
        let share = Share()
        for second: UInt64 in 0..<3 { #expect(try share.take(1, at: 1_000 * second) != nil) }
        #expect(try share.take(1, at: 299_999) == nil)
        #expect(try share.take(2, at: 299_999) != nil)
        #expect(try share.take(1, at: 300_000) != nil)
    }

    /// A production token in the sandbox rings nowhere: knocks there must not silence the phone.
    @Test func eachEnvironmentHasItsOwn() throws {
        let share = Share()
        for _ in 0..<3 { #expect(try share.take(1, .sandbox) != nil) }
        #expect(try share.take(1, .sandbox) == nil)
        #expect(try share.take(1, .production) != nil)
    }

    @Test func whatWasNotSentIsGivenBack() throws {
        let share = Share()
        let reservations = try (0..<3).compactMap { _ in try share.take(1) }
        reservations[1].cancel()
        #expect(try share.take(1) != nil)
        #expect(try share.take(1) == nil)
        // Of an earlier window: nothing of it stands any more.
        for _ in 0..<3 { _ = try share.take(1, at: 300_000) }
        reservations[0].cancel()
        #expect(try share.take(1, at: 300_000) == nil)
    }

    @Test func aWindowLeavesNothing() throws {
        let share = Share()
        let first = try #require(try share.take(1))
        share.budget.forget(299_999)
        #expect(share.budget.count == 1 && share.budget.end == 300_000)
        share.budget.forget(300_000)
        #expect(share.budget.count == 0 && share.budget.end == nil)
        let second = try #require(try share.take(1, at: 300_000))
        #expect(first.name != second.name, "one token, told by the same hash in two windows")
    }

    /// Tokens without end, each knocked at once, are forgotten; the one that is rung on and on is not.
    @Test func memoryIsBounded() throws {
        let share = Share(30)
        var rung = 0
        for number in 0..<3_000 {
            if number % 20 == 0, try share.take(-1) != nil { rung += 1 }
            #expect(try share.take(number) != nil)
            #expect(share.budget.count <= 100)
        }
        // It may be forgotten while it has had no more than the others, and no later.
        #expect((30...32).contains(rung))
    }
}

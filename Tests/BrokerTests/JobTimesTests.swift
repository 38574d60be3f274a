import Policy
import Sealing
import Testing

@testable import Broker

@Suite struct TokenLifeTests {
    // Promise: short-lives-a-day
    @Test func aLifeOfADayIsShortAndAnyLongerOneIsLong() {
        let sealed: UInt64 = 1_800_000_000_000
        let day: UInt64 = 24 * 3_600_000
        #expect(!TokenContext.isLong(from: sealed, to: sealed + day))
        #expect(TokenContext.isLong(from: sealed, to: sealed + day + 1))
    }
}

@Suite struct JobTimesTests {
    private static let now: UInt64 = 1_800_000_007_000

    private func times(_ ttl: Int, _ timing: String = "") throws -> JobTimes {
        let policy = try TimedPolicy(timing, ttlSeconds: ttl).policy
        return JobTimes(try #require(policy.templates[Rooms.template]))
    }

    /// The expiration that APNs is told must be that of the knock, whatever cut the deadline short.
    // Promise: job-deadline
    @Test(
        arguments: [
            // ttl in seconds, then in ms: from the knock to the token's end, the deadline and the worth from the knock.
            (120, 600_000, 120_000, 120_000), (120, 30_000, 30_000, 30_000), (60, 600_000, 60_000, 60_000),
            (60, 90_000, 60_000, 60_000), (60, 30_000, 30_000, 30_000), (3_600, 7_200_000, 120_000, 3_600_000),
            (3_600, 300_000, 120_000, 300_000), (3_600, 60_000, 60_000, 60_000),
        ] as [(Int, UInt64, UInt64, UInt64)])
    func worthIsCountedFromTheKnock(_ ttl: Int, _ left: UInt64, _ tried: UInt64, _ worth: UInt64) throws {
        let times = try times(ttl)
        let end = Self.now + left
        let plan = try #require(times.plan(now: Self.now, heldUntil: 0, tokenExpires: end))
        #expect(plan == JobTimes.Plan(notBefore: 0, deadline: Self.now + tried, knocked: Self.now))
        let counted = times.counted(deadline: plan.deadline, tokenExpires: end)
        #expect(min(counted + UInt64(ttl) * 1_000, end) == Self.now + worth)
    }

    @Test func aSingleAttemptHasTheWholeDeadline() throws {
        #expect(try times(0).plan(now: Self.now, heldUntil: 0, tokenExpires: .max)?.deadline == Self.now + 120_000)
    }

    /// Whatever Apple can see follows from the time at which the push leaves.
    @Test(arguments: [(0, 0), (120, 0), (120, 16_000), (3_600, 0)] as [(Int, UInt64)])
    func nothingTellsTwoKnocksApartWhosePushesLeaveTogether(_ ttl: Int, _ held: UInt64) throws {
        let times = try times(ttl, #""sendSlotSeconds":20,"jitterSeconds":40,"#)
        let end = Self.now + 600_000
        var seen: [UInt64: Set<[UInt64]>] = [:]
        for knock in stride(from: Self.now, to: Self.now + 20_000, by: 10) {
            let heldUntil = held == 0 ? 0 : Self.now + held
            let plan = try #require(times.plan(now: knock, heldUntil: heldUntil, tokenExpires: end))
            let from = max(knock, heldUntil)
            #expect(plan.notBefore > from && plan.notBefore < from + 60_000)
            #expect(plan.deadline <= knock + 120_000, "two minutes from the knock, at most")
            #expect(plan.deadline >= plan.notBefore + 20_000 + 10_000, "a slot missed, and time to send")
            let counted = times.counted(deadline: plan.deadline, tokenExpires: end)
            #expect(counted <= from)
            let times = [plan.deadline, counted, plan.knocked].map { $0 + 1_000_000 - plan.notBefore }
            seen[plan.notBefore % 20_000, default: []].insert(times)
        }
        #expect(seen.values.allSatisfy { $0.count == 1 })
        #expect(Set(seen.values.map { $0.map { $0.prefix(2) } }).count == 1)
    }

    @Test func theTokensEndCutsTheDeadlineAndNothingElse() throws {
        let times = try times(120, #""sendSlotSeconds":20,"#)
        // The next boundary is 13 s away.
        let end = Self.now + 13_001
        let plan = try #require(times.plan(now: Self.now, heldUntil: 0, tokenExpires: end))
        #expect(plan.notBefore == Self.now + 13_000 && plan.deadline == end)
        #expect(times.counted(deadline: end, tokenExpires: end) == end)
        #expect(times.plan(now: Self.now, heldUntil: 0, tokenExpires: end - 1) == nil)
    }

    @Test func aPushThatMayBeTooLateIsNotPlannedWhateverIsDrawn() throws {
        let times = try times(120, #""sendSlotSeconds":20,"jitterSeconds":40,"#)
        for _ in 0..<50 {
            #expect(times.plan(now: Self.now, heldUntil: 0, tokenExpires: Self.now + 53_000) == nil)
            #expect(times.plan(now: Self.now, heldUntil: 0, tokenExpires: Self.now + 53_001) != nil)
        }
    }
}

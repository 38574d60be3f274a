import Testing

@testable import Broker

@Suite struct JobTimesTests {
    /// The expiration that APNs is told must be that of the knock, whatever cut the deadline short.
    @Test(
        arguments: [
            // ttl in seconds, then in ms: from the knock to the token's end, the deadline and the worth from the knock.
            (120, 600_000, 120_000, 120_000), (120, 30_000, 30_000, 30_000), (60, 600_000, 60_000, 60_000),
            (60, 90_000, 60_000, 60_000), (60, 30_000, 30_000, 30_000), (3_600, 7_200_000, 120_000, 3_600_000),
            (3_600, 300_000, 120_000, 300_000), (3_600, 60_000, 60_000, 60_000),
        ] as [(Int, UInt64, UInt64, UInt64)])
    func worthIsCountedFromTheKnock(_ ttl: Int, _ left: UInt64, _ tried: UInt64, _ worth: UInt64) {
        let now: UInt64 = 1_800_000_000_000
        let times = JobTimes(ttlSeconds: ttl, jobDeadlineMs: 120_000)
        let deadline = times.deadline(now: now, tokenExpires: now + left)
        #expect(deadline == now + tried)
        let knocked = times.knocked(deadline: deadline, tokenExpires: now + left)
        #expect(min(knocked + UInt64(ttl) * 1_000, now + left) == now + worth)
    }

    @Test func aSingleAttemptHasTheWholeDeadline() {
        #expect(JobTimes(ttlSeconds: 0, jobDeadlineMs: 120_000).deadline(now: 5, tokenExpires: .max) == 120_005)
    }
}

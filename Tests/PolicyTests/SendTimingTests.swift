import Policy
import Testing

/// Recomputes the bound in `mayfly policy show` from the times of pushes alone.
@Suite struct SendTimingTests {
    /// Half-second steps, since everything in a policy is in whole seconds.
    private static let step = 500

    /// Returns, for each time of a push around one moment, all equally likely knocks.
    private func knocks(_ timing: SendTiming) -> [UInt64: [UInt64]] {
        var found: [UInt64: [UInt64]] = [:]
        // A multiple of all slots up to 6 s, and far enough from both ends to include every knock of a push.
        for knock in stride(from: 600_000, to: 840_000, by: Self.step).map(UInt64.init) {
            for delay in stride(from: 0, to: max(Int(timing.jitterMs), 1), by: Self.step) {
                let leaves = timing.departure(boundary: timing.boundary(after: knock)) { below in
                    precondition(UInt64(below) == timing.jitterMs)
                    return UInt32(delay)
                }
                found[leaves, default: []].append(knock)
            }
        }
        return found.filter { 640_000..<800_000 ~= $0.key }
    }

    private struct Case: Sendable, CustomTestStringConvertible {
        let slot, jitter: Int?
        let span: UInt64
        var testDescription: String { "slot \(slot ?? 0) s, jitter \(jitter ?? 0) s" }
    }

    private static let cases = [
        Case(slot: 4, jitter: nil, span: 4), Case(slot: nil, jitter: 5, span: 5), Case(slot: 4, jitter: 2, span: 4),
        Case(slot: 4, jitter: 4, span: 4), Case(slot: 4, jitter: 6, span: 4), Case(slot: 2, jitter: 6, span: 6),
        Case(slot: 1, jitter: 6, span: 6), Case(slot: 3, jitter: 5, span: 3), Case(slot: 1, jitter: 1, span: 1),
    ]

    // Promise: slot-and-jitter
    @Test(arguments: cases) private func theSpanIsExact(_ given: Case) {
        let timing = SendTiming(slotSeconds: given.slot, jitterSeconds: given.jitter)
        #expect(timing.spanMs == given.span * 1_000)
        #expect(timing.longestWaitMs == UInt64((given.slot ?? 0) + (given.jitter ?? 0)) * 1_000)
        var likeliest = 0.0
        for (leaves, knocks) in knocks(timing) {
            let times = Set(knocks)
            // Uniform: each knock once, within the longest wait before the push.
            #expect(knocks.count == times.count)
            #expect(times.allSatisfy { $0 <= leaves && leaves - $0 <= timing.longestWaitMs })
            for second in stride(from: leaves - 20_000, through: leaves, by: Self.step) {
                let inside = times.filter { second..<second + 1_000 ~= $0 }.count
                likeliest = max(likeliest, Double(inside) / Double(times.count))
            }
        }
        // The bound is reached, so the figure is exact.
        #expect(abs(likeliest - 1 / Double(given.span)) < 1e-9)
    }

    @Test func pushesWithoutTimingLeaveAtOnce() {
        let timing = SendTiming(slotSeconds: nil, jitterSeconds: nil)
        #expect(timing.isAtOnce && timing.spanMs == 0 && timing.longestWaitMs == 0)
        #expect(timing.departure(boundary: timing.boundary(after: 1_234)) == 1_234)
        #expect(timing.departure(missed: 0, now: 1_234) == 0)
    }

    @Test func aKnockOnABoundaryWaitsForTheNext() {
        let timing = SendTiming(slotSeconds: 30, jitterSeconds: nil)
        #expect(timing.boundary(after: 59_999) == 60_000)
        #expect(timing.boundary(after: 60_000) == 90_000)
        #expect(timing.departure(boundary: 90_000) == 90_000)
    }

    /// Random draws reach both ends within a tenth. This fails once in 10^45 runs.
    @Test func theJitterStaysInItsRange() {
        let timing = SendTiming(slotSeconds: 10, jitterSeconds: 2)
        let drawn = (0..<1_000).map { _ in timing.departure(boundary: 60_000) - 60_000 }
        #expect(drawn.allSatisfy { $0 < 2_000 })
        #expect(drawn.min() ?? 0 < 200 && drawn.max() ?? 0 >= 1_800)
    }

    @Test func aMissedPushKeepsItsOffsetInALaterSlot() {
        let slots = SendTiming(slotSeconds: 10, jitterSeconds: 5)
        #expect(slots.departure(missed: 63_210, now: 63_209) == 63_210)
        #expect(slots.departure(missed: 63_210, now: 63_210) == 73_210)
        #expect(slots.departure(missed: 63_210, now: 99_000) == 103_210)
        // A job stored when the policy had no slots.
        #expect(slots.departure(missed: 0, now: 99_000) == 100_000)
        // Without slots a longer wait hides nothing.
        #expect(SendTiming(slotSeconds: nil, jitterSeconds: 5).departure(missed: 63_210, now: 99_000) == 63_210)
    }

    @Test func theThrottleEndsOnABoundary() {
        let slots = SendTiming(slotSeconds: 20, jitterSeconds: 40)
        for leaves in stride(from: UInt64(1_000_000), to: 1_040_000, by: 700) {
            let next = slots.nextKnock(after: leaves, throttleMs: 30_000)
            #expect(next % 20_000 == 0)
            // The earliest next push is late enough, and not a slot later than necessary.
            let earliest = slots.boundary(after: next)
            #expect(earliest >= leaves + 30_000 && earliest < leaves + 30_000 + 20_000)
        }
        #expect(SendTiming(slotSeconds: nil, jitterSeconds: 5).nextKnock(after: 1_000, throttleMs: 30_000) == 31_000)
    }

    @Test func theSummaryShowsTheTiming() throws {
        func rows(_ timing: String) throws -> String {
            try Policy(rooms(#""ttlSeconds": 120,"#, #""ttlSeconds": 120, "# + timing)).summary()
        }
        let both = try rows(#""sendSlotSeconds": 20, "jitterSeconds": 45,"#)
        for text in [
            "leaves                            at the next whole 20 s of unix time and up to 45 s more, drawn at random\n",
            "that the knock came in the 65 s before, spread evenly over 40 s of them or more\n",
            "(a guess at its second is right at most 1 time in 40)\n",
            "20 s, if the log's windows are whole multiples of 20 s; otherwise less\n",
        ] {
            #expect(both.contains(text), "the summary lacks: \(text)")
        }
        let slots = try rows(#""sendSlotSeconds": 30,"#)
        #expect(slots.contains("at the next whole 30 s of unix time\n") && slots.contains("at most 1 time in 30)\n"))
        let jitter = try rows(#""jitterSeconds": 30,"#)
        #expect(jitter.contains("up to 30 s after the knock, drawn at random\n"))
        #expect(jitter.contains("no bound: the log's windows"))
        let none = try rows("")
        #expect(none.contains("leaves                            at once\n") && none.contains("when the knock came\n"))
    }

    /// A push needs one spare slot and ten seconds for sending, within the 105 s between grace and deadline.
    @Test(
        arguments: [
            (#""sendSlotSeconds": 47,"#, 120, true), (#""sendSlotSeconds": 48,"#, 120, false),
            (#""sendSlotSeconds": 30, "jitterSeconds": 35,"#, 120, true),
            (#""sendSlotSeconds": 30, "jitterSeconds": 36,"#, 120, false),
            (#""sendSlotSeconds": 17, "jitterSeconds": 60,"#, 3_600, true), (#""jitterSeconds": 60,"#, 70, true),
            (#""jitterSeconds": 60,"#, 69, false), (#""sendSlotSeconds": 10, "jitterSeconds": 10,"#, 40, true),
            (#""sendSlotSeconds": 10, "jitterSeconds": 10,"#, 39, false), (#""sendSlotSeconds": 10,"#, 0, true),
        ])
    func lintLeavesTimeForSending(_ timing: String, _ ttl: Int, _ passes: Bool) throws {
        let findings = Policy.lint(try rooms(#""ttlSeconds": 120,"#, "\"ttlSeconds\": \(ttl), " + timing))
        #expect(findings.isEmpty == passes, "\(findings)")
        #expect(findings.allSatisfy { $0.path.hasSuffix("Seconds") && $0.remedy.contains("at least 10 s under") })
    }
}

import Testing

@testable import Sealing

@Suite struct BrokerClockTests {
    private let start: UInt64 = 1_767_312_000_000
    private func clock(persisted: UInt64 = 0) -> BrokerClock {
        BrokerClock(persistedMs: persisted, wallMs: start, bootMs: 1000)
    }

    private func reading(_ now: UInt64, _ ratchet: UInt64, alarm: Int64? = nil, isHeld: Bool) -> BrokerClock.Reading {
        BrokerClock.Reading(nowMs: start + now, ratchetMs: start + ratchet, alarm: alarm, isHeld: isHeld)
    }

    @Test func followsTheWallClock() {
        var clock = clock()
        for second: UInt64 in 0..<1000 {
            let passed = second * 1000
            let read = clock.read(wallMs: start + passed, bootMs: 1000 + passed)
            #expect(read == reading(passed, passed, isHeld: false))
        }
    }

    @Test func timeStartsAtThePersistedTime() {
        var clock = clock(persisted: start + 5000)
        #expect(clock.read(wallMs: start, bootMs: 1000).nowMs == start + 5000)
        // Less than a minute is drift. Time advances at half the speed meanwhile.
        #expect(clock.read(wallMs: start + 1000, bootMs: 2000).nowMs == start + 5500)
        #expect(clock.read(wallMs: start + 12_000, bootMs: 13_000).nowMs == start + 12_000)
    }

    @Test func aSlewedClockIsFollowed() {
        var clock = clock()
        // A wall clock that is 1 % fast drifts by far more than a minute, but never steps.
        var last = clock.read(wallMs: start, bootMs: 1000)
        for minute: UInt64 in 1...1000 {
            last = clock.read(wallMs: start + minute * 60_600, bootMs: 1000 + minute * 60_000)
            #expect(last.alarm == nil && !last.isHeld)
        }
        #expect(last.ratchetMs == start + 60_600_000)
    }

    // Promise: clock-step-alarm
    @Test func aStepForwardIsAcceptedAfterAMinute() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        var read = clock.read(wallMs: start + hour + 1000, bootMs: 2000)
        #expect(read == reading(hour + 1000, 1000, alarm: Int64(hour), isHeld: true))
        read = clock.read(wallMs: start + hour + 60_000, bootMs: 61_000)
        #expect(read == reading(hour + 60_000, 60_000, isHeld: true))
        read = clock.read(wallMs: start + hour + 61_000, bootMs: 62_000)
        #expect(read == reading(hour + 61_000, hour + 61_000, isHeld: false))
    }

    /// The log of other nodes is ahead. The ratchet follows as after a step.
    @Test func aRaisedClockRunsAtHalfSpeed() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        clock.raise(to: start - 1)
        #expect(clock.read(wallMs: start, bootMs: 1000) == reading(0, 0, isHeld: false))
        clock.raise(to: start + hour)
        #expect(clock.read(wallMs: start + 2000, bootMs: 3000) == reading(hour + 1000, 1000, isHeld: true))
        let read = clock.read(wallMs: start + 122_000, bootMs: 123_000)
        #expect(read == reading(hour + 61_000, hour + 61_000, isHeld: false))
        // A small one is like drift.
        clock.raise(to: start + hour + 62_000)
        #expect(clock.read(wallMs: start + 122_000, bootMs: 123_000) == reading(hour + 62_000, hour + 62_000, isHeld: false))
    }

    @Test func aRevertedStepDoesNotProlongTheHold() {
        var clock = clock()
        let day: UInt64 = 86_400_000
        #expect(clock.read(wallMs: start + day, bootMs: 1000).alarm == Int64(day))
        var read = clock.read(wallMs: start + 20_000, bootMs: 21_000)
        #expect(read == reading(day + 10_000, 10_000, alarm: -Int64(day), isHeld: true))
        read = clock.read(wallMs: start + 119_000, bootMs: 120_000)
        #expect(read == reading(day + 59_500, 59_500, isHeld: true))
        // Broker time never goes back, and expired rows have no key.
        read = clock.read(wallMs: start + 120_000, bootMs: 121_000)
        #expect(read == reading(day + 60_000, day + 60_000, isHeld: false))
    }

    @Test func aSecondStepDoesNotProlongTheHold() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        #expect(clock.read(wallMs: start + hour, bootMs: 1000).isHeld)
        #expect(clock.read(wallMs: start + hour + 40_000, bootMs: 41_000).isHeld)
        let second = clock.read(wallMs: start + 2 * hour + 41_000, bootMs: 42_000)
        #expect(second == reading(2 * hour + 41_000, 41_000, alarm: Int64(hour), isHeld: true))
        let last = clock.read(wallMs: start + 2 * hour + 60_000, bootMs: 61_000)
        #expect(last == reading(2 * hour + 60_000, 2 * hour + 60_000, isHeld: false))
    }

    @Test func aSmallStepIsFollowedAQuarterFaster() {
        for step: UInt64 in [60_000, 179_000] {
            var clock = clock()
            #expect(clock.read(wallMs: start + step, bootMs: 1000).nowMs == start)
            #expect(clock.read(wallMs: start + step + 1, bootMs: 1001).nowMs == start + 1)
            for second: UInt64 in 1...step / 1000 * 4 {
                let read = clock.read(wallMs: start + step + second * 1000, bootMs: 1000 + second * 1000)
                #expect(read == reading(second * 1250, second * 1250, isHeld: false))
            }
            #expect(clock.read(wallMs: start + step * 6, bootMs: 1000 + step * 5) == reading(step * 6, step * 6, isHeld: false))
        }
    }

    /// The log shows a leap as a gap, but nothing excuses what many steps below a minute make late.
    @Test func manySmallStepsDoNotLeap() {
        var clock = clock()
        var (last, lastRatchet) = (start, start)
        var leaps = 0
        for second: UInt64 in 1...600 {
            let read = clock.read(wallMs: start + second * 60_000, bootMs: 1000 + second * 1000)
            if read.nowMs > last + 1250 { leaps += 1 }
            #expect(read.nowMs <= last + 1250 || read.nowMs >= last + BrokerClock.shortestLeapMs)
            #expect(read.ratchetMs <= lastRatchet + 1250 || !read.isHeld)
            (last, lastRatchet) = (read.nowMs, read.ratchetMs)
        }
        #expect((100...200).contains(leaps), "\(leaps)")
    }

    @Test func aStepBackHalvesTheSpeed() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        var alarms = 0
        for minute: UInt64 in 1...150 {
            let read = clock.read(wallMs: start + minute * 60_000 - hour, bootMs: 1000 + minute * 60_000)
            if read.alarm != nil { alarms += 1 }
            // After two hours the clocks agree again.
            let passed = max(minute * 30_000, minute * 60_000 - min(hour, minute * 60_000))
            #expect(read.nowMs == start + passed && read.ratchetMs == start + passed && !read.isHeld)
        }
        #expect(alarms == 1)
    }

    @Test func shortReadingsLoseNoTime() {
        var clock = clock(persisted: start + 50_000)
        for ms: UInt64 in 1...20_001 { _ = clock.read(wallMs: start, bootMs: 1000 + ms) }
        #expect(clock.read(wallMs: start, bootMs: 21_002).nowMs == start + 60_001)
    }

    @Test func brokerTimeRecoversFromAFalseStep() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        #expect(clock.read(wallMs: start + hour, bootMs: 1000).nowMs == start + hour)
        let read = clock.read(wallMs: start + hour, bootMs: 1000 + hour)
        #expect(read == reading(hour + hour / 2, hour + hour / 2, alarm: -Int64(hour), isHeld: false))
    }

    @Test func exactlyAMinuteIsNotAStep() {
        var near = clock()
        #expect(near.read(wallMs: start + 60_000, bootMs: 1000).alarm == nil)
        var far = clock()
        #expect(far.read(wallMs: start + 60_001, bootMs: 1000).alarm == 60_001)
    }

    // Promise: broker-time-never-goes-back
    @Test func timeNeverGoesBack() {
        var clock = clock()
        var generator = Chance(state: 7)
        var last = clock.read(wallMs: start, bootMs: 1000)
        for _ in 0..<10_000 {
            let reading = clock.read(wallMs: start + generator.next() % 1_000_000, bootMs: generator.next() % 1_000_000)
            #expect(reading.nowMs >= last.nowMs && reading.ratchetMs >= last.ratchetMs && reading.ratchetMs <= reading.nowMs)
            last = reading
        }
    }
}

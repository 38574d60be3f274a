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

    @Test func persistedTimeIsTheLeast() {
        var clock = clock(persisted: start + 5000)
        #expect(clock.read(wallMs: start, bootMs: 1000).nowMs == start + 5000)
        // Less than a minute is drift, and waited for at half the pace.
        #expect(clock.read(wallMs: start + 1000, bootMs: 2000).nowMs == start + 5500)
        #expect(clock.read(wallMs: start + 12_000, bootMs: 13_000).nowMs == start + 12_000)
    }

    @Test func slewingIsFollowed() {
        var clock = clock()
        // A wall clock that runs 1 % fast drifts by far more than a minute, never by a step.
        var last = clock.read(wallMs: start, bootMs: 1000)
        for minute: UInt64 in 1...1000 {
            last = clock.read(wallMs: start + minute * 60_600, bootMs: 1000 + minute * 60_000)
            #expect(last.alarm == nil && !last.isHeld)
        }
        #expect(last.ratchetMs == start + 60_600_000)
    }

    @Test func stepForwardIsBelievedAfterAnEpoch() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        var read = clock.read(wallMs: start + hour + 1000, bootMs: 2000)
        #expect(read == reading(hour + 1000, 1000, alarm: Int64(hour), isHeld: true))
        read = clock.read(wallMs: start + hour + 300_000, bootMs: 301_000)
        #expect(read == reading(hour + 300_000, 300_000, isHeld: true))
        read = clock.read(wallMs: start + hour + 301_000, bootMs: 302_000)
        #expect(read == reading(hour + 301_000, hour + 301_000, isHeld: false))
    }

    @Test func stepThatIsTakenBackDestroysNothing() {
        var clock = clock()
        let day: UInt64 = 86_400_000
        #expect(clock.read(wallMs: start + day, bootMs: 2000).alarm != nil)
        let reading = clock.read(wallMs: start + 100_000, bootMs: 101_000)
        #expect(reading.ratchetMs == start + 100_000 && !reading.isHeld)
        // Broker time never goes back.
        #expect(reading.nowMs == start + day + 49_500)
        #expect(clock.read(wallMs: start + 500_000, bootMs: 501_000).ratchetMs == start + 500_000)
    }

    @Test func aStepBackIsWaitedForAtHalfThePace() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        var alarms = 0
        for minute: UInt64 in 1...150 {
            let read = clock.read(wallMs: start + minute * 60_000 - hour, bootMs: 1000 + minute * 60_000)
            if read.alarm != nil { alarms += 1 }
            let passed = max(minute * 30_000, minute * 60_000 - min(hour, minute * 60_000))
            #expect(read.nowMs == start + passed && read.ratchetMs == start + passed)
            // After two hours the two are together again.
            #expect(read.isHeld == (minute < 119))
        }
        #expect(alarms == 1)
    }

    @Test func shortReadingsLoseNoTime() {
        var clock = clock(persisted: start + 50_000)
        for ms: UInt64 in 1...20_001 { _ = clock.read(wallMs: start, bootMs: 1000 + ms) }
        #expect(clock.read(wallMs: start, bootMs: 21_002).nowMs == start + 60_001)
    }

    @Test func aFalseStepThatWasSeenFadesFromBrokerTime() {
        var clock = clock()
        let hour: UInt64 = 3_600_000
        #expect(clock.read(wallMs: start + hour, bootMs: 1000).nowMs == start + hour)
        let read = clock.read(wallMs: start + hour, bootMs: 1000 + hour)
        #expect(read == reading(hour + hour / 2, hour, isHeld: false))
    }

    @Test func exactlyAMinuteIsNoStep() {
        var near = clock()
        #expect(near.read(wallMs: start + 60_000, bootMs: 1000).alarm == nil)
        var far = clock()
        #expect(far.read(wallMs: start + 60_001, bootMs: 1000).alarm == 60_001)
    }

    @Test func nothingGoesBackWhateverTheClocksSay() {
        var clock = clock()
        var generator = SplitMix(state: 7)
        var last = clock.read(wallMs: start, bootMs: 1000)
        for _ in 0..<10_000 {
            let reading = clock.read(wallMs: start + generator.next() % 1_000_000, bootMs: generator.next() % 1_000_000)
            #expect(reading.nowMs >= last.nowMs && reading.ratchetMs >= last.ratchetMs && reading.ratchetMs <= reading.nowMs)
            last = reading
        }
    }
}

/// Random numbers that are the same each time.
struct SplitMix: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}

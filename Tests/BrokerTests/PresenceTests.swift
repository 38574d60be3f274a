import Testing

@testable import Broker

@Suite struct PresenceTests {
    private let room: [UInt8] = [1, 2, 3]

    private func fresh() -> Presence { Presence(graceMs: 5_000, heldMs: 45_000) }

    @Test func aSocketIsPresenceAndSoAreFiveSecondsAfterIt() {
        var presence = fresh()
        #expect(!presence.isPresent(room, 1, now: 0))
        let answer1 = presence.arrive(room, 1, now: 0)
        #expect(answer1)
        #expect(presence.isPresent(room, 1, now: 1_000_000))
        #expect(!presence.isPresent(room, 2, now: 0))
        let answer2 = presence.leave(room, 1, now: 10_000)
        #expect(answer2)
        #expect(presence.isPresent(room, 1, now: 14_999))
        #expect(presence.graceEnd(room, 1, now: 14_999) == 15_000)
        #expect(!presence.isPresent(room, 1, now: 15_000))
        #expect(presence.graceEnd(room, 1, now: 15_000) == nil)
    }

    @Test func twoSocketsOfOneSideAreCounted() {
        var presence = fresh()
        let answer3 = presence.arrive(room, 1, now: 0)
        #expect(answer3)
        let answer4 = presence.arrive(room, 1, now: 0)
        #expect(!answer4)
        let answer5 = presence.leave(room, 1, now: 0)
        #expect(!answer5)
        #expect(presence.isPresent(room, 1, now: 100_000))
        let answer6 = presence.leave(room, 1, now: 100_000)
        #expect(answer6)
        #expect(!presence.isPresent(room, 1, now: 105_000))
    }

    @Test func aWordHoldsForFortyFiveSeconds() {
        var presence = fresh()
        presence.hold(room, 2, now: 0)
        #expect(presence.isPresent(room, 2, now: 44_999))
        #expect(!presence.isPresent(room, 2, now: 45_000))
        presence.hold(room, 2, now: 50_000)
        presence.release(room, 2, now: 51_000)
        #expect(presence.isPresent(room, 2, now: 55_999))
        #expect(!presence.isPresent(room, 2, now: 56_000))
    }

    @Test func aLapseIsToldOnce() {
        var presence = fresh()
        presence.hold(room, 2, now: 0)
        presence.hold(room, 2, now: 10_000)
        let early = presence.takeLapse(room, 2, now: 45_000)
        let lapsed = presence.takeLapse(room, 2, now: 55_000)
        let again = presence.takeLapse(room, 2, now: 55_001)
        #expect(!early && lapsed && !again)
        presence.hold(room, 2, now: 60_000)
        _ = presence.arrive(room, 2, now: 60_000)
        let withSocket = presence.takeLapse(room, 2, now: 200_000)
        #expect(!withSocket)
    }

    @Test func whoIsGoneIsForgotten() {
        var presence = fresh()
        for id: UInt8 in 0..<100 {
            presence.hold([id], 1, now: UInt64(id))
        }
        _ = presence.arrive([200], 1, now: 0)
        _ = presence.arrive([201], 1, now: 0)
        _ = presence.leave([201], 1, now: 0)
        #expect(presence.count == 102)
        presence.prune(now: 45_200)
        #expect(presence.count == 1)
        #expect(presence.isPresent([200], 1, now: 45_200))
    }
}

import Courier
import EventLoop
import Storage
import Testing

@testable import Broker

/// That the time of a push says no more about the knock's than the policy's bound: by thousands of knocks, and by those who try to do better.
@Suite struct TimingTests {
    private static let shortThrottle = [
        (old: #""knockThrottleSeconds": 30"#, new: #""knockThrottleSeconds": 1"#),
        (old: #""tokenKnocks": { "count": 30"#, new: #""tokenKnocks": { "count": 300"#),
    ]

    /// A hundred knocks a second, ten at a time, and what Apple saw of them in its order.
    private func sightings(_ timing: String, knocks: Int, rooms: Int = 3_000) async throws -> [WatchedBroker.Sighting] {
        try await WatchedBroker.play(TimedPolicy(timing, limits: Self.shortThrottle)) { broker in
            try await broker.makeRooms(rooms)
            let start = broker.machine.wall / 60_000 * 60_000 + 60_000
            for tick in 0..<knocks / 10 {
                await broker.advance(to: start + UInt64(tick) * 100)
                let queued = try await broker.knock((0..<10).map { (tick * 10 + $0) % rooms })
                #expect(queued)
            }
            await broker.simulated.advance(100_000)
            #expect(broker.sightings.count == knocks)
            return broker.sightings
        }
    }

    /// Nobody guesses better than the bound; `likely` is its probability.
    private func attack(_ sightings: [WatchedBroker.Sighting], slotMs: UInt64, jitterMs: UInt64, likely: Double) {
        let limit = Statistics.hitLimit(likely, sightings.count / 2)
        for guesser in SecondGuesser.all(slotMs: slotMs, jitterMs: jitterMs) {
            let hits = guesser.hits(sightings, slotMs: slotMs)
            #expect(hits < limit, "\(guesser.name): \(hits) of the seconds, over \(likely)")
        }
    }

    @Test func jitterAddsToSlotsAndTellsNothing() async throws {
        let sightings = try await sightings(#""sendSlotSeconds": 10, "jitterSeconds": 4,"#, knocks: 4_000)
        let places = sightings.map { ($0.at % 10_000, $0.at / 10_000 * 10_000 - $0.knock) }
        #expect(places.allSatisfy { $0.0 < 4_000 && $0.1 > 0 && $0.1 <= 10_000 })
        let drawn = Statistics.unevenness(places.map(\.0), width: 4_000)
        #expect(drawn < Statistics.unevennessLimit(places.count, grain: 1 / 4_000))
        // Given the push's time, the knock's is spread evenly: in each quarter of the jitter for itself.
        for quarter in 0..<4 as Range<UInt64> {
            let waits = places.filter { $0.0 / 1_000 == quarter }.map(\.1)
            #expect(waits.count > 800)
            #expect(Statistics.unevenness(waits, width: 10_000) < Statistics.unevennessLimit(waits.count, grain: 0.01))
        }
        #expect(abs(Statistics.rankCorrelation(places)) < Statistics.correlationLimit(places.count))
        // The expiration follows from the push's time.
        #expect(sightings.allSatisfy { $0.expiration == ($0.at + 120_000 - 14_000) / 1_000 })
        attack(sightings, slotMs: 10_000, jitterMs: 4_000, likely: 1 / 10)
    }

    @Test func slotsAloneSendInAnOrderThatTellsNothing() async throws {
        let sightings = try await sightings(#""sendSlotSeconds": 10,"#, knocks: 4_000)
        #expect(sightings.allSatisfy { $0.at % 10_000 == 0 && $0.at > $0.knock && $0.at - $0.knock <= 10_000 })
        #expect(sightings.allSatisfy { $0.expiration == ($0.at + 120_000 - 10_000) / 1_000 })
        // The correlations of the slots, each with a spread of 1, added up.
        var sum = 0.0
        let slots = Dictionary(grouping: sightings, by: \.at).values
        for slot in slots {
            #expect(slot.count == 1_000)
            sum += Statistics.rankCorrelation(slot.map { ($0.place, $0.knock) }) * Double(slot.count - 1).squareRoot()
        }
        #expect(abs(sum) < 6.2 * Double(slots.count).squareRoot())
        attack(sightings, slotMs: 10_000, jitterMs: 1, likely: 1 / 10)

        // Whose knocks came one after the other do not leave so either: 8 of 4,000 would by chance, 50 once in 10^22 runs.
        let order = sightings.sorted { ($0.knock, $0.room) < ($1.knock, $1.room) }
        let together = zip(order, order.dropFirst()).filter { $0.at == $1.at && abs($0.place - $1.place) == 1 }.count
        #expect(together < 50)
    }

    @Test func jitterAloneSpansItself() async throws {
        let sightings = try await sightings(#""jitterSeconds": 10,"#, knocks: 4_000, rooms: 1_500)
        let waits = sightings.map { $0.at - $0.knock }
        #expect(waits.allSatisfy { $0 < 10_000 })
        #expect(Statistics.unevenness(waits, width: 10_000) < Statistics.unevennessLimit(waits.count, grain: 0.001))
        attack(sightings, slotMs: 0, jitterMs: 10_000, likely: 1 / 10)
    }

    /// The guessers are good at it where nothing is in their way.
    @Test func withoutSlotsTheSecondIsPlain() async throws {
        let sightings = try await sightings("", knocks: 1_000, rooms: 500)
        for guesser in SecondGuesser.all(slotMs: 0, jitterMs: 1) { #expect(guesser.hits(sightings, slotMs: 0) > 0.95) }
    }
}

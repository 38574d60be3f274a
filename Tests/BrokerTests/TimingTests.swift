import Courier
import EventLoop
import Policy
import Storage
import Testing

@testable import Broker

/// The time of a push must not reveal more about the knock's time than the policy's bound. Thousands of knocks and several guessers check this.
@Suite struct TimingTests {
    private static let shortThrottle = [
        (old: #""knockThrottleSeconds": 30"#, new: #""knockThrottleSeconds": 1"#),
        (old: #""tokenKnocks": { "count": 30"#, new: #""tokenKnocks": { "count": 300"#),
    ]

    /// Knocks a hundred times a second, ten at a time. Returns the pushes in Apple's order.
    private func sightings(_ timing: String, knocks: Int, rooms: Int = 3_000) async throws -> [WatchedBroker.Sighting] {
        try await WatchedBroker.play(Policy.rooms(timing, limits: Self.shortThrottle)) { broker in
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

    /// Checks that no guesser beats the bound.
    /// - Parameter likely: the bound's probability.
    private func attack(_ sightings: [WatchedBroker.Sighting], slotMs: UInt64, jitterMs: UInt64, likely: Double) {
        let limit = Statistics.hitLimit(likely, sightings.count / 2)
        for guesser in SecondGuesser.all(slotMs: slotMs, jitterMs: jitterMs) {
            let hits = guesser.hits(sightings, slotMs: slotMs)
            #expect(hits < limit, "\(guesser.name): \(hits) of the seconds, over \(likely)")
        }
    }

    @Test func jitterAfterASlotRevealsNothing() async throws {
        let sightings = try await sightings(#""sendSlotSeconds": 10, "jitterSeconds": 4,"#, knocks: 4_000)
        let places = sightings.map { ($0.at % 10_000, $0.at / 10_000 * 10_000 - $0.knock) }
        #expect(places.allSatisfy { $0.0 < 4_000 && $0.1 > 0 && $0.1 <= 10_000 })
        let drawn = Statistics.unevenness(places.map(\.0), width: 4_000)
        #expect(drawn < Statistics.unevennessLimit(places.count, grain: 1 / 4_000))
        // For a given time of the push, the knock's time is spread evenly, in each quarter of the jitter.
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

    @Test func theOrderInASlotRevealsNothing() async throws {
        let sightings = try await sightings(#""sendSlotSeconds": 10,"#, knocks: 4_000)
        #expect(sightings.allSatisfy { $0.at % 10_000 == 0 && $0.at > $0.knock && $0.at - $0.knock <= 10_000 })
        #expect(sightings.allSatisfy { $0.expiration == ($0.at + 120_000 - 10_000) / 1_000 })
        // The sum of the slots' correlations, each with a spread of 1.
        var sum = 0.0
        let slots = Dictionary(grouping: sightings, by: \.at).values
        for slot in slots {
            #expect(slot.count == 1_000)
            sum += Statistics.rankCorrelation(slot.map { ($0.place, $0.knock) }) * Double(slot.count - 1).squareRoot()
        }
        #expect(abs(sum) < 6.2 * Double(slots.count).squareRoot())
        attack(sightings, slotMs: 10_000, jitterMs: 1, likely: 1 / 10)

        // Consecutive knocks must not leave consecutively. By chance 8 of 4,000 do, and 50 do once in 10^22 runs.
        let order = sightings.sorted { ($0.knock, $0.room) < ($1.knock, $1.room) }
        let together = zip(order, order.dropFirst()).filter { $0.at == $1.at && abs($0.place - $1.place) == 1 }.count
        #expect(together < 50)
    }

    @Test func jitterWithoutSlotsSpreadsEvenly() async throws {
        let sightings = try await sightings(#""jitterSeconds": 10,"#, knocks: 4_000, rooms: 1_500)
        let waits = sightings.map { $0.at - $0.knock }
        #expect(waits.allSatisfy { $0 < 10_000 })
        #expect(Statistics.unevenness(waits, width: 10_000) < Statistics.unevennessLimit(waits.count, grain: 0.001))
        attack(sightings, slotMs: 0, jitterMs: 10_000, likely: 1 / 10)
    }

    /// Without slots and jitter the guessers succeed, so they are good guessers.
    @Test func withoutSlotsTheSecondIsVisible() async throws {
        let sightings = try await sightings("", knocks: 1_000, rooms: 500)
        for guesser in SecondGuesser.all(slotMs: 0, jitterMs: 1) { #expect(guesser.hits(sightings, slotMs: 0) > 0.95) }
    }
}

/// Statistics of random tests. By chance a valid result exceeds a limit once in 10^9 runs at most.
enum Statistics {
    /// The largest distance between the values' distribution and an even one over 0..<width (Kolmogorov and Smirnov).
    static func unevenness(_ values: [UInt64], width: UInt64) -> Double {
        let sorted = values.sorted()
        let count = Double(sorted.count)
        var largest = 0.0
        for (index, value) in sorted.enumerated() {
            let even = Double(value) / Double(width)
            largest = max(largest, abs(Double(index) / count - even), abs(Double(index + 1) / count - even))
        }
        return largest
    }

    /// The inequality of Dvoretzky, Kiefer, Wolfowitz and Massart: 2 exp(-2 n d²) = 10^-9.
    /// - Parameter grain: the distance between possible values, as a part of the width.
    static func unevennessLimit(_ count: Int, grain: Double) -> Double { (21.42 / (2 * Double(count))).squareRoot() + grain }

    /// Spearman's rank correlation. Ties are ordered by their place.
    static func rankCorrelation<First: Comparable, Second: Comparable>(_ pairs: [(First, Second)]) -> Double {
        let count = Double(pairs.count)
        guard count > 1 else { return 0 }
        var first = [Double](repeating: 0, count: pairs.count)
        var second = first
        for (rank, index) in pairs.indices.sorted(by: { pairs[$0].0 < pairs[$1].0 }).enumerated() { first[index] = Double(rank) }
        for (rank, index) in pairs.indices.sorted(by: { pairs[$0].1 < pairs[$1].1 }).enumerated() { second[index] = Double(rank) }
        let squares = zip(first, second).reduce(0) { $0 + ($1.0 - $1.1) * ($1.0 - $1.1) }
        return 1 - 6 * squares / (count * (count * count - 1))
    }

    /// Its spread is 1 / sqrt(n - 1).
    static func correlationLimit(_ count: Int) -> Double { 6.2 / (Double(count) - 1).squareRoot() }

    /// The limit for `count` guesses that are each right with this probability.
    static func hitLimit(_ probability: Double, _ count: Int) -> Double {
        probability + 6.2 * (probability * (1 - probability) / Double(count)).squareRoot()
    }
}

/// Guesses the second of a knock from Apple's view of its push. It has learnt the value of its clue from knocks of its own.
struct SecondGuesser {
    let name: String
    /// The clue that it uses.
    let clue: @Sendable (WatchedBroker.Sighting, _ order: Int) -> Int

    /// - Parameters:
    ///   - slotMs: 0 where there are no slots.
    ///   - jitterMs: at least 1.
    static func all(slotMs: UInt64, jitterMs: UInt64) -> [SecondGuesser] {
        [
            SecondGuesser(name: "by the slot alone") { _, _ in 0 },
            SecondGuesser(name: "by the place in the slot") { seen, _ in
                let period = slotMs == 0 ? 2 * jitterMs : slotMs
                return Int(seen.at % period * 40 / period)
            },
            SecondGuesser(name: "by the order in the slot") { _, order in order },
            SecondGuesser(name: "by the expiration") { seen, _ in Int(seen.expiration) - Int(seen.at / 1_000) },
            SecondGuesser(name: "by the expiration and the slot") { seen, _ in
                Int(seen.expiration) - Int((slotMs == 0 ? seen.at : seen.at / slotMs * slotMs) / 1_000)
            },
            SecondGuesser(name: "by the apns-id") { seen, _ in Int(seen.apnsID.utf8.first ?? 0) },
        ]
    }

    /// Learns from the first half, and returns the share of right guesses in the second.
    func hits(_ sightings: [WatchedBroker.Sighting], slotMs: UInt64) -> Double {
        let orders = Self.orders(sightings, slotMs: slotMs)
        func base(_ seen: WatchedBroker.Sighting) -> UInt64 { slotMs == 0 ? seen.at : seen.at / slotMs * slotMs }
        func tenths(_ seen: WatchedBroker.Sighting) -> Int { Int((base(seen) + 1_000_000 - seen.knock) / 100) }
        let half = sightings.count / 2
        var seen: [Int: [Int: Int]] = [:]
        for index in 0..<half {
            seen[clue(sightings[index], orders[index]), default: [:]][tenths(sightings[index]), default: 0] += 1
        }
        var guesses: [Int: Int] = [:]
        for (clue, found) in seen {
            // The best second begins with an observed tenth.
            guesses[clue] = found.keys.max { left, right in
                let count = { (start: Int) in (start..<start + 10).reduce(0) { $0 + found[$1, default: 0] } }
                return (count(left), right) < (count(right), left)
            }
        }
        var right = 0
        for index in half..<sightings.count {
            guard let guess = guesses[clue(sightings[index], orders[index])] else { continue }
            if guess..<guess + 10 ~= tenths(sightings[index]) { right += 1 }
        }
        return Double(right) / Double(sightings.count - half)
    }

    /// The position of each push among its slot's pushes, in twentieths.
    private static func orders(_ sightings: [WatchedBroker.Sighting], slotMs: UInt64) -> [Int] {
        var counts: [UInt64: Int] = [:]
        let slot = { (seen: WatchedBroker.Sighting) in slotMs == 0 ? seen.at : seen.at / slotMs }
        for seen in sightings { counts[slot(seen), default: 0] += 1 }
        var places: [UInt64: Int] = [:]
        return sightings.map { seen in
            let place = places[slot(seen), default: 0]
            places[slot(seen)] = place + 1
            return place * 20 / (counts[slot(seen)] ?? 1)
        }
    }
}

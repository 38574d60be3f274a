/// What a test of chance needs. Its limits are passed by honest chance once in 10^9 runs or less often.
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
    /// - Parameter grain: how far apart values lie, as a part of the width.
    static func unevennessLimit(_ count: Int, grain: Double) -> Double { (21.42 / (2 * Double(count))).squareRoot() + grain }

    /// Spearman's, ties by their place.
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

    /// Of `count` guesses, each right with this probability.
    static func hitLimit(_ probability: Double, _ count: Int) -> Double {
        probability + 6.2 * (probability * (1 - probability) / Double(count)).squareRoot()
    }
}

/// Guesses in which second a push was asked for, from what Apple sees. It has learnt from knocks of its own what its clue is worth.
struct SecondGuesser {
    let name: String
    /// What of a push it looks at.
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

    /// The part of the second half that it guesses right after it has seen the first.
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
            // The best second is one that begins with something that was seen.
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

    /// In which twentieth of its slot's pushes each one came.
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

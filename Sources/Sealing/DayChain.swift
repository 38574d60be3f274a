import Sodium

/// The join index's keys, one a UTC day: `chain[d+1] = D(chain[d], "chain")`, `dayKey[d] = D(chain[d], "day")`.
///
/// Holds today's and the two days' before: a code lives 24 hours at most and stands 10 minutes longer once used, so one of the
/// day before yesterday may still be asked for.
struct DayChain: Sendable {
    static let daysBack: UInt64 = 2

    // 0: the base day's chain. 32: a chain walked forward. 64: the key made of it.
    private let memory: LockedMemory
    private(set) var base: UInt64

    /// `base`: the day (unix seconds / 86,400) whose chain `chain` fills.
    init(base: UInt64, chain: (inout MutableSpan<UInt8>) -> Void) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 96)
        memory.withMutableBytes(0..<32, chain)
        self.base = base
    }

    /// The base day when the base epoch is `epoch`: two before the day of the epoch after it, which is now.
    static func base(for epoch: Epoch) -> UInt64 { (epoch.number + 1) / Epoch.perDay - daysBack }

    /// The code's index under the key of each day from `today` back to the base, today's first.
    func indexes(_ joinID: Span<UInt8>, today: UInt64) -> [Digest] {
        var indexes: [Digest] = []
        memory.copy(from: 0, to: 32)
        for day in base...max(base, today) {
            if day + Self.daysBack >= today {
                memory.derive(from: 32, .day, to: 64)
                var derivation = memory.withBytes(64..<96) { Derivation($0, .join) }
                derivation.add(joinID)
                indexes.append(derivation.digest())
            }
            memory.derive(from: 32, .chain, to: 32)
        }
        memory.wipe(32..<96)
        return indexes.reversed()
    }

    /// Destroys every day before `day`.
    mutating func advance(to day: UInt64) {
        while base < day {
            memory.derive(from: 0, .chain, to: 0)
            base += 1
        }
    }

    /// Lends the base day's chain, for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }
}

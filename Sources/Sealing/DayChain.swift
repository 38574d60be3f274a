import Sodium
import Vocabulary

/// The join index's keys, one a UTC day: `chain[d+1] = D(chain[d], "chain")`, `dayKey[d] = D(chain[d], "day")`.
///
/// Holds today's and the two days' before: a code lives 24 hours at most and stands 10 minutes longer once used, so one of the
/// day before yesterday may still be asked for.
struct DayChain: Sendable {
    static let daysBack: UInt64 = 2

    // 0: the base day's chain. 32, 64, 96: the keys of the base day and the two after it. 128: the chain of the day after those.
    // 160: a key made in passing.
    private let memory: LockedMemory
    private(set) var base: UInt64

    /// `base`: the day (unix seconds / 86,400) whose chain `chain` fills.
    init(base: UInt64, chain: (inout MutableSpan<UInt8>) -> Void) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 192)
        memory.withMutableBytes(0..<32, chain)
        self.base = base
        makeKeys()
    }

    /// The base day when the base epoch is `epoch`: two before the day of the epoch after it, which is now.
    static func base(for epoch: Epoch) -> UInt64 { (epoch.number + 1) / Epoch.perDay - daysBack }

    /// The code's index under the key of each day from `today` back to `first` or the base, three days at most, today's first.
    func indexes(_ joinID: Span<UInt8>, from first: UInt64 = 0, today: UInt64) -> [Digest] {
        let today = max(base, today)
        let first = min(today, max(base, today - Self.daysBack, first))
        return (first...today).reversed().map { index(joinID, $0) }
    }

    /// Destroys every day before `day`.
    mutating func advance(to day: UInt64) {
        guard base < day else { return }
        while base < day {
            memory.derive(from: 0, .chain, to: 0)
            base += 1
        }
        makeKeys()
    }

    private func index(_ joinID: Span<UInt8>, _ day: UInt64) -> Digest {
        var key = 32 + 32 * Int(day - base)
        if day > base + Self.daysBack {
            // Broker time is ahead of a ratchet that is held.
            key = 160
            memory.copy(from: 128, to: key)
            for _ in base + Self.daysBack + 1..<day { memory.derive(from: key, .chain, to: key) }
            memory.derive(from: key, .day, to: key)
        }
        var derivation = memory.withBytes(key..<key + 32) { Derivation($0, .join) }
        derivation.add(joinID)
        memory.wipe(160..<192)
        return derivation.digest()
    }

    private func makeKeys() {
        memory.copy(from: 0, to: 128)
        for key in [32, 64, 96] {
            memory.derive(from: 128, .day, to: key)
            memory.derive(from: 128, .chain, to: 128)
        }
    }

    /// Lends the base day's chain, for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }
}

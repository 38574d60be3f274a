import Sodium

/// A chain of one-way steps that began with random bytes: `chain[e+1] = D(chain[e], "chain")`, `epochKey[e] = D(chain[e],
/// "epoch")`.
///
/// Holds the chain of its base epoch, nothing older, and the keys from there on as far as they have been asked for.
struct Generation: Sendable {
    let id: UInt32
    /// The epoch in which it began to take seals.
    let born: Epoch
    private(set) var base: Epoch

    // 0: the base's chain. 32: the frontier's. From 64 on: a ring of epoch keys, e at e % reach, for base..<frontier.
    private let memory: LockedMemory
    private let reach: UInt64
    private var frontier: UInt64

    /// `chain` fills the 32 bytes of the base's chain. `reach`: how many epochs from the base on have keys.
    init(
        id: UInt32, born: Epoch, base: Epoch, reach: UInt64, chain: (inout MutableSpan<UInt8>) -> Void
    ) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 64 + 32 * Int(reach))
        memory.withMutableBytes(0..<32, chain)
        self.id = id
        self.born = born
        self.base = base
        self.reach = reach
        frontier = base.number
        memory.copy(from: 0, to: 32)
    }

    func reaches(_ epoch: Epoch) -> Bool { epoch >= base && epoch.number - base.number < reach }

    /// Starts a derivation under the epoch's key, which must be within reach.
    mutating func derivation(_ epoch: Epoch, _ label: Label) -> Derivation {
        precondition(reaches(epoch))
        while frontier <= epoch.number {
            let key = Self.offset(frontier, reach)
            memory.derive(from: 32, .epoch, to: key)
            memory.derive(from: 32, .chain, to: 32)
            frontier += 1
        }
        let key = Self.offset(epoch.number, reach)
        return memory.withBytes(key..<key + 32) { Derivation($0, label) }
    }

    /// Destroys every epoch before `epoch`: the chain steps on and the keys are wiped.
    mutating func advance(to epoch: Epoch) {
        while base < epoch {
            memory.derive(from: 0, .chain, to: 0)
            let key = Self.offset(base.number, reach)
            memory.wipe(key..<key + 32)
            base = Epoch(base.number + 1)
        }
        if frontier < base.number {
            frontier = base.number
            memory.copy(from: 0, to: 32)
        }
    }

    /// Lends the base's chain, for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }

    private static func offset(_ epoch: UInt64, _ reach: UInt64) -> Int { 64 + 32 * Int(epoch % reach) }
}

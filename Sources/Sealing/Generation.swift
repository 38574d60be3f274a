import Sodium

/// A chain of one-way steps that began with random bytes: `chain[e+1] = D(chain[e], "chain")`, `epochKey[e] = D(chain[e],
/// "epoch")`.
///
/// Holds the chain of its base epoch, nothing older, and the keys from there on as far as they have been asked for: all of the next week,
/// and few beyond.
struct Generation: Sendable {
    /// The keys of so many epochs are all held: a week's, and a day's room for clocks that disagree.
    static let near: UInt64 = 7 * Epoch.perDay + 2 + Epoch.perDay

    let id: UInt32
    /// The epoch in which it began to take seals.
    let born: Epoch
    private(set) var base: Epoch

    // 0: the base's chain. 32: the frontier's.
    let memory: LockedMemory
    /// A ring of epoch keys, e at e % nearest, for base..<frontier.
    private(set) var ring: LockedMemory?
    private let nearest: UInt64
    private var frontier: UInt64
    /// Nil where there is nothing beyond.
    private(set) var far: FarKeys?
    private let reach: UInt64

    /// `chain` fills the 32 bytes of the base's chain. `reach`: how many epochs from the base on have keys. `isOld`: whether hardly
    /// anything is left that it sealed.
    init(
        id: UInt32, born: Epoch, base: Epoch, reach: UInt64, isOld: Bool = false, chain: (inout MutableSpan<UInt8>) -> Void
    ) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 64)
        nearest = min(reach, Self.near)
        if reach > nearest { far = try FarKeys(reach: reach) }
        if far == nil || !isOld { ring = try LockedMemory(count: 32 * Int(nearest)) }
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
        guard let ring, epoch.number - base.number < nearest else {
            return far!.derivation(epoch.number, label, base: base.number, chain: memory)
        }
        while frontier <= epoch.number {
            memory.derive(from: 32, .epoch, to: offset(frontier), of: ring)
            memory.derive(from: 32, .chain, to: 32)
            frontier += 1
        }
        let key = offset(epoch.number)
        return ring.withBytes(key..<key + 32) { Derivation($0, label) }
    }

    /// Destroys every epoch before `epoch`: the chain steps on and the keys are wiped.
    mutating func advance(to epoch: Epoch) {
        let before = base
        while base < epoch {
            memory.derive(from: 0, .chain, to: 0)
            let key = offset(base.number)
            ring?.wipe(key..<key + 32)
            base = Epoch(base.number + 1)
        }
        far?.advance(from: before.number, to: base.number)
        if frontier < base.number {
            frontier = base.number
            memory.copy(from: 0, to: 32)
        }
    }

    /// Gives back most of its memory: hardly anything is left that it sealed.
    mutating func growOld() {
        if far != nil { ring = nil }
    }

    /// Lends the base's chain, for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }

    private func offset(_ epoch: UInt64) -> Int { 32 * Int(epoch % nearest) }
}

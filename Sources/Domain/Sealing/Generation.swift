import Sodium

/// A one-way chain that starts with random bytes: `chain[e+1] = D(chain[e], "chain")`, `epochKey[e] = D(chain[e], "epoch")`.
///
/// Has the chain of its base epoch and nothing older. It computes later keys on demand and keeps all of the next week's and few beyond.
struct Generation: Sendable {
    /// The number of epochs whose keys are all kept: a week, plus a day for clock differences.
    static let nearCount: UInt64 = 7 * Epoch.perDay + 2 + Epoch.perDay

    let id: UInt32
    /// The first epoch with seals of this generation.
    let born: Epoch
    private(set) var base: Epoch

    // Offset 0: the chain of the base. 32: the chain of the frontier.
    let memory: LockedMemory
    /// A ring of the keys of `base..<frontier`. Epoch e is at index e % ringCount.
    private(set) var ring: LockedMemory?
    private let ringCount: UInt64
    private var frontier: UInt64
    /// Nil if the ring reaches all epochs.
    private(set) var far: FarKeys?
    private let reach: UInt64

    /// - Parameters:
    ///   - reach: the number of epochs with keys, from the base on.
    ///   - isOld: true if few of its seals are left, so the ring isn't needed.
    ///   - chain: fills the 32 bytes of the base's chain.
    init(
        id: UInt32, born: Epoch, base: Epoch, reach: UInt64, isOld: Bool = false, chain: (inout MutableSpan<UInt8>) -> Void
    ) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 64)
        ringCount = min(reach, Self.nearCount)
        if reach > ringCount { far = try FarKeys(reach: reach) }
        if far == nil || !isOld { ring = try LockedMemory(count: 32 * Int(ringCount)) }
        memory.withMutableBytes(0..<32, chain)
        self.id = id
        self.born = born
        self.base = base
        self.reach = reach
        frontier = base.number
        memory.copy(from: 0, to: 32)
    }

    func reaches(_ epoch: Epoch) -> Bool { epoch >= base && epoch.number - base.number < reach }

    /// Starts a derivation with the epoch's key.
    /// - Precondition: the epoch is within reach.
    mutating func derivation(_ epoch: Epoch, _ label: Label) -> Derivation {
        precondition(reaches(epoch))
        guard let ring, epoch.number - base.number < ringCount else {
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

    /// Destroys the keys of all epochs before `epoch`.
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

    /// Releases the ring, since few seals of this generation are left.
    mutating func releaseRing() {
        if far != nil { ring = nil }
    }

    /// Lends the base's chain for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }

    private func offset(_ epoch: UInt64) -> Int { 32 * Int(epoch % ringCount) }
}

/// The keys of epochs more than a week ahead. Keeps every 32nd chain and the last keys used.
///
/// Audiences' rows expire on a grid, so few of these keys are used. All keys of a month would be 280 KiB of locked memory per generation.
struct FarKeys: Sendable {
    private static let spacing: UInt64 = 32
    /// The number of cached keys. The key of epoch e is at index e % 16.
    private static let keys: UInt64 = 16

    // Offset 0: a temporary chain. From 32: the keys, then a ring of chains with epoch e at index e / spacing % chains.
    let memory: LockedMemory
    private let chains: UInt64
    /// The latest epoch with a stored chain. All multiples of the spacing between the base and it have one too.
    private var latest: UInt64?
    /// The epoch of each cached key. 0 if none.
    private var epochs = [UInt64](repeating: 0, count: Int(Self.keys))

    /// - Parameter reach: the number of epochs with keys, from the base on.
    init(reach: UInt64) throws(LockedMemory.Unavailable) {
        chains = reach / Self.spacing + 2
        memory = try LockedMemory(count: 32 + 32 * Int(Self.keys + chains))
    }

    /// Starts a derivation with the key of an epoch within reach.
    /// - Parameter chain: starts with the chain of `base`.
    mutating func derivation(_ epoch: UInt64, _ label: Label, base: UInt64, chain: LockedMemory) -> Derivation {
        let index = Int(epoch % Self.keys)
        let key = 32 + 32 * index
        if epochs[index] != epoch {
            computeChain(of: epoch, from: base, chain)
            memory.derive(from: 0, .epoch, to: key)
            memory.wipe(0..<32)
            epochs[index] = epoch
        }
        return memory.withBytes(key..<key + 32) { Derivation($0, label) }
    }

    /// Computes the epoch's chain at offset 0.
    private mutating func computeChain(of epoch: UInt64, from base: UInt64, _ chain: LockedMemory) {
        var current = min(epoch / Self.spacing * Self.spacing, latest ?? 0)
        if current > base {
            memory.copy(from: offset(current), to: 0)
        } else {
            current = base
            chain.withBytes(0..<32) { chain in memory.withMutableBytes(0..<32) { $0.write(chain, at: 0) } }
        }
        while current < epoch {
            memory.derive(from: 0, .chain, to: 0)
            current += 1
            if current.isMultiple(of: Self.spacing), current > latest ?? 0 {
                memory.copy(from: 0, to: offset(current))
                latest = current
            }
        }
    }

    /// Destroys the keys of the epochs from `before` until `base`.
    mutating func advance(from before: UInt64, to base: UInt64) {
        for index in epochs.indices where epochs[index] < base {
            memory.wipe(32 + 32 * index..<64 + 32 * index)
            epochs[index] = 0
        }
        guard let last = latest else { return }
        for multiple in before / Self.spacing...last / Self.spacing where multiple * Self.spacing < base {
            let chain = offset(multiple * Self.spacing)
            memory.wipe(chain..<chain + 32)
        }
        if last < base { latest = nil }
    }

    private func offset(_ epoch: UInt64) -> Int { 32 + 32 * Int(Self.keys + epoch / Self.spacing % chains) }
}

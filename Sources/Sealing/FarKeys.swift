import Sodium

/// The keys of epochs so far ahead that not all of them are held: every 32nd chain, and the keys that were asked for last.
///
/// Few are asked for more than a week ahead: an audience's rows expire on a grid. A month's keys would be 280 KiB of locked memory a
/// generation.
struct FarKeys: Sendable {
    private static let spacing: UInt64 = 32
    /// So many keys are held, e at e % 16.
    private static let keys: UInt64 = 16

    // 0: a chain in passing. From 32 on: the keys, then a ring of chains, e at e / spacing % chains.
    let memory: LockedMemory
    private let chains: UInt64
    /// The latest epoch whose chain is held, with all those between the base and it whose numbers are multiples of the spacing.
    private var latest: UInt64?
    /// Of which epoch each key is; 0 for none.
    private var epochs = [UInt64](repeating: 0, count: Int(Self.keys))

    /// `reach`: how many epochs from the base on have keys.
    init(reach: UInt64) throws(LockedMemory.Unavailable) {
        chains = reach / Self.spacing + 2
        memory = try LockedMemory(count: 32 + 32 * Int(Self.keys + chains))
    }

    /// Starts a derivation under the key of an epoch within reach. `chain`: begins with that of `base`.
    mutating func derivation(_ epoch: UInt64, _ label: Label, base: UInt64, chain: LockedMemory) -> Derivation {
        let place = Int(epoch % Self.keys)
        let key = 32 + 32 * place
        if epochs[place] != epoch {
            walk(to: epoch, from: base, chain)
            memory.derive(from: 0, .epoch, to: key)
            memory.wipe(0..<32)
            epochs[place] = epoch
        }
        return memory.withBytes(key..<key + 32) { Derivation($0, label) }
    }

    /// Leaves the epoch's chain in passing.
    private mutating func walk(to epoch: UInt64, from base: UInt64, _ chain: LockedMemory) {
        var at = min(epoch / Self.spacing * Self.spacing, latest ?? 0)
        if at > base {
            memory.copy(from: offset(at), to: 0)
        } else {
            at = base
            chain.withBytes(0..<32) { chain in memory.withMutableBytes(0..<32) { $0.write(chain, at: 0) } }
        }
        while at < epoch {
            memory.derive(from: 0, .chain, to: 0)
            at += 1
            if at.isMultiple(of: Self.spacing), at > latest ?? 0 {
                memory.copy(from: 0, to: offset(at))
                latest = at
            }
        }
    }

    /// Destroys every epoch before `base`, as far as `before` has not.
    mutating func advance(from before: UInt64, to base: UInt64) {
        for place in epochs.indices where epochs[place] < base {
            memory.wipe(32 + 32 * place..<64 + 32 * place)
            epochs[place] = 0
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

import Sodium

/// What a step did: to be recorded in the ledger and remembered as the node's last.
public struct RatchetStep: Sendable, Equatable {
    /// This epoch's keys and all before it are destroyed; nil when the step only began a generation.
    public let destroyed: Epoch?
    /// The generation that takes all new seals from now on, where one began.
    public let newGeneration: UInt32?
    /// How often the key file has been replaced, this time included.
    public let steps: UInt64
}

/// The keys in memory: the live generations, oldest first, all at one base epoch, and the day chain.
struct Ratchet: Sendable {
    private(set) var steps: UInt64
    private(set) var base: Epoch
    private(set) var days: DayChain
    private(set) var generations: [Generation]
    let longestLife: UInt64

    /// How many epochs beyond the base have keys: the longest life, and a day's room for clocks that disagree.
    private var reach: UInt64 { Self.reach(longestLife) }
    private static func reach(_ longestLife: UInt64) -> UInt64 { longestLife + 2 + Epoch.perDay }

    /// `longestLife`: of anything sealed, in epochs.
    init(_ image: KeyImage, longestLife: UInt64) throws(LockedMemory.Unavailable) {
        steps = image.steps
        base = image.base
        self.longestLife = longestLife
        days = try DayChain(base: DayChain.base(for: image.base)) { image.lend(KeyImage.dayChain, to: &$0) }
        generations = []
        for index in 0..<image.generations {
            let (id, born) = image.entry(index)
            let successor = index + 1 < image.generations ? image.entry(index + 1).born : nil
            generations.append(
                try Generation(
                    id: id, born: born, base: image.base, reach: Self.reach(longestLife),
                    isOld: Self.isOld(successor: successor, base)
                ) { image.lend(KeyImage.chain(index), to: &$0) })
        }
    }

    var current: UInt32 { generations[generations.count - 1].id }

    /// Starts a derivation under an epoch key; nil when the generation is gone or the epoch is out of reach.
    mutating func derivation(_ generation: UInt32, _ epoch: Epoch, _ label: Label) -> Derivation? {
        guard let index = generations.lastIndex(where: { $0.id == generation }), generations[index].reaches(epoch) else {
            return nil
        }
        return generations[index].derivation(epoch, label)
    }

    /// The file's content after stepping to `now`, or nil when there is nothing to do. Nothing is changed yet.
    func next(_ now: Epoch) throws(KeyFileError) -> KeyImage? {
        // The base stays one epoch behind, for what is decided at an epoch's very end.
        let newBase = max(base, Epoch(max(1, now.number) - 1))
        guard newBase.number - base.number < Self.longestPause else { throw .implausibleTime }
        let isBirth = now.number >= generations[generations.count - 1].born.number + Epoch.perDay
        guard newBase > base || isBirth else { return nil }

        let kept = generations.indices.filter { !isOver($0, newBase, successor: isBirth ? Epoch(newBase.number + 1) : nil) }
        let image = try KeyImage(generations: kept.count + (isBirth ? 1 : 0), steps: steps + 1, base: newBase)
        days.withChain { image.store($0, at: KeyImage.dayChain) }
        for _ in days.base..<DayChain.base(for: newBase) {
            image.memory.derive(from: KeyImage.dayChain, .chain, to: KeyImage.dayChain)
        }
        for (place, index) in kept.enumerated() {
            let (generation, chain) = (generations[index], KeyImage.chain(place))
            image.write(place, id: generation.id, born: generation.born)
            generation.withChain { image.store($0, at: chain) }
            for _ in base.number..<newBase.number { image.memory.derive(from: chain, .chain, to: chain) }
        }
        if isBirth {
            image.write(kept.count, id: current + 1, born: Epoch(newBase.number + 1))
            let chain = KeyImage.chain(kept.count)
            image.memory.withMutableBytes(chain..<chain + 32) { Sodium.fillRandom(&$0) }
        }
        image.finish()
        return image
    }

    /// Brings memory to what `image`, made by `next` and now on disk, says: `born` is its youngest generation, where that is new.
    mutating func adopt(_ image: KeyImage, born: Generation?) {
        let kept = Set((0..<image.generations).map { image.entry($0).id })
        generations.removeAll { !kept.contains($0.id) }
        for index in generations.indices { generations[index].advance(to: image.base) }
        if let born { generations.append(born) }
        for index in generations.indices.dropLast() where Self.isOld(successor: generations[index + 1].born, image.base) {
            generations[index].growOld()
        }
        days.advance(to: DayChain.base(for: image.base))
        base = image.base
        steps = image.steps
    }

    /// The generation that `image` begins, if it does.
    func birth(in image: KeyImage) throws(LockedMemory.Unavailable) -> Generation? {
        let last = image.generations - 1
        let (id, born) = image.entry(last)
        guard id != current else { return nil }
        return try Generation(id: id, born: born, base: image.base, reach: reach) { image.lend(KeyImage.chain(last), to: &$0) }
    }

    /// A generation takes seals until its successor's first epoch, the step in that one included; the last of them lives the
    /// longest life.
    private func isOver(_ index: Int, _ base: Epoch, successor: Epoch?) -> Bool {
        guard let end = index + 1 < generations.count ? generations[index + 1].born : successor else { return false }
        return base.number > end.number + longestLife
    }

    /// Whether all that expires within a week of its seal has expired.
    private static func isOld(successor: Epoch?, _ base: Epoch) -> Bool {
        guard let successor else { return false }
        return base.number > successor.number + 7 * Epoch.perDay
    }

    /// A century, in epochs: a clock that says so is wrong, and walking there would take its time.
    private static let longestPause: UInt64 = 100 * 366 * Epoch.perDay
}

extension KeyImage {
    func lend(_ offset: Int, to chain: inout MutableSpan<UInt8>) {
        memory.withBytes(offset..<offset + 32) { chain.write($0, at: 0) }
    }

    func store(_ chain: Span<UInt8>, at offset: Int) {
        memory.withMutableBytes(offset..<offset + 32) { $0.write(chain, at: 0) }
    }
}

import Sodium
import Vocabulary

/// The result of a ratchet step, for the ledger and the node's marks.
public struct RatchetStep: Sendable, Equatable {
    /// The last epoch whose keys are destroyed. Nil if the step only started a generation.
    public let destroyed: Epoch?
    /// The generation of all new seals, if the step started one.
    public let newGeneration: UInt32?
    /// The number of replacements of the key file, including this one.
    public let steps: UInt64
}

/// The keys in memory: the live generations, all at the same base epoch, and the day chain.
struct Ratchet: Sendable {
    private(set) var steps: UInt64
    private(set) var base: Epoch
    private(set) var days: DayChain
    /// Oldest first.
    private(set) var generations: [Generation]
    let longestLife: UInt64
    /// True while another node's new generation only opens rows here.
    private var isNewestHeldBack = false
    /// True if the last step was another node's.
    private var isFollowing = false

    /// The number of epochs with keys, from the base on: the longest life, plus a day for clock differences.
    private var reach: UInt64 { Self.reach(longestLife) }
    private static func reach(_ longestLife: UInt64) -> UInt64 { longestLife + 2 + Epoch.perDay }

    /// - Parameter longestLife: of anything sealed, in epochs.
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

    /// The generation that takes new seals.
    var sealing: Generation { generations[generations.count - (isNewestHeldBack ? 2 : 1)] }
    var current: UInt32 { sealing.id }

    /// True if another node may have this generation already.
    func isBehind(_ generation: UInt32) -> Bool { isFollowing && generation == generations[generations.count - 1].id + 1 }

    mutating func sealWithNewest() { isNewestHeldBack = false }

    mutating func beginFollowing() { (isFollowing, isNewestHeldBack) = (true, isNewestOnItsWay) }

    /// True until the step after the one that made the newest generation. Later, `isOver` would destroy the previous generation before its last seals
    /// expire.
    private var isNewestOnItsWay: Bool { generations.count > 1 && generations[generations.count - 1].born > base }

    /// Starts a derivation with an epoch key. Returns nil if the generation is gone or the epoch is out of reach.
    mutating func derivation(_ generation: UInt32, _ epoch: Epoch, _ label: Label) -> Derivation? {
        guard let index = generations.lastIndex(where: { $0.id == generation }), generations[index].reaches(epoch) else {
            return nil
        }
        return generations[index].derivation(epoch, label)
    }

    /// Returns the key file's content after a step to `now`, or nil if no step is due. Changes nothing.
    func next(_ now: Epoch) throws(KeyFileError) -> KeyImage? {
        // The base stays one epoch behind, since an operation may start at the very end of an epoch.
        let newBase = max(base, Epoch(max(1, now.number) - 1))
        guard newBase.number - base.number < Self.longestPause else { throw .implausibleTime }
        let isBirth = now.number >= generations[generations.count - 1].born.number + Epoch.perDay
        guard newBase > base || isBirth else { return nil }

        let kept = generations.indices.filter { !isOver($0, newBase, successor: isBirth ? Epoch(newBase.number + 1) : nil) }
        let image = try KeyImage(generations: kept.count + (isBirth ? 1 : 0), steps: steps + 1, base: newBase)
        store(kept, in: image)
        if isBirth {
            image.write(kept.count, id: generations[generations.count - 1].id + 1, born: Epoch(newBase.number + 1))
            let chain = KeyImage.chain(kept.count)
            image.memory.withMutableBytes(chain..<chain + 32) { Sodium.fillRandom(&$0) }
        }
        image.finish()
        return image
    }

    /// Returns the key file's content as it is now.
    func image() throws(KeyFileError) -> KeyImage {
        let image = try KeyImage(generations: generations.count, steps: steps, base: base)
        store(Array(generations.indices), in: image)
        image.finish()
        return image
    }

    /// Stores the day chain and these generations, advanced to the image's base.
    private func store(_ kept: [Int], in image: KeyImage) {
        days.withChain { image.store($0, at: KeyImage.dayChain) }
        for _ in days.base..<DayChain.base(for: image.base) {
            image.memory.derive(from: KeyImage.dayChain, .chain, to: KeyImage.dayChain)
        }
        for (position, index) in kept.enumerated() {
            let (generation, chain) = (generations[index], KeyImage.chain(position))
            image.write(position, id: generation.id, born: generation.born)
            generation.withChain { image.store($0, at: chain) }
            for _ in base.number..<image.base.number { image.memory.derive(from: chain, .chain, to: chain) }
        }
    }

    /// Updates memory to `image`, which `next` made and which is on disk now.
    /// - Parameter born: the new generation, if the step started one.
    mutating func adopt(_ image: KeyImage, born: Generation?) {
        let kept = Set((0..<image.generations).map { image.entry($0).id })
        generations.removeAll { !kept.contains($0.id) }
        for index in generations.indices { generations[index].advance(to: image.base) }
        if let born { generations.append(born) }
        (isNewestHeldBack, isFollowing) = (false, false)
        releaseRings(image)
        days.advance(to: DayChain.base(for: image.base))
        base = image.base
        steps = image.steps
    }

    private mutating func releaseRings(_ image: KeyImage) {
        for index in generations.indices.dropLast() where Self.isOld(successor: generations[index + 1].born, image.base) {
            generations[index].releaseRing()
        }
    }

    /// Updates memory to another node's keys.
    /// - Returns: true if there is a new generation.
    /// - Throws: `.otherKeys` if a generation in use has another chain there, or if no generation is the same.
    mutating func follow(_ image: KeyImage) throws(KeyFileError) -> Bool {
        let newest = image.generations - 1
        // The other node may offer a generation and take it back. Nobody has used it.
        if isNewestHeldBack, generations.count > 1, try !hasChain(generations.count - 1, of: image, newest) {
            generations.removeLast()
            isNewestHeldBack = false
        }
        let kept = Set((0...newest).map { image.entry($0).id })
        guard generations.contains(where: { kept.contains($0.id) }) else { throw .otherKeys }
        generations.removeAll { !kept.contains($0.id) }
        var isNew = false
        for position in 0...newest {
            let (id, born) = image.entry(position)
            if let known = generations.firstIndex(where: { $0.id == id }) {
                guard try hasChain(known, of: image, position) else { throw .otherKeys }
            } else {
                // Generations are only added at the end.
                guard id > generations.last?.id ?? 0 else { throw .otherKeys }
                do throws(LockedMemory.Unavailable) {
                    generations.append(
                        try Generation(id: id, born: born, base: image.base, reach: reach) {
                            image.lend(KeyImage.chain(position), to: &$0)
                        })
                } catch { throw .cannotLock }
                isNew = true
            }
        }
        // After a step that was taken back, this node is ahead by an epoch.
        base = max(base, image.base)
        for index in generations.indices { generations[index].advance(to: base) }
        days.advance(to: DayChain.base(for: base))
        steps = image.steps
        isFollowing = true
        isNewestHeldBack = isNew ? isNewestOnItsWay : isNewestHeldBack && generations.count > 1
        releaseRings(image)
        return isNewestHeldBack
    }

    /// Returns true if a generation is the same there.
    private func hasChain(_ index: Int, of image: KeyImage, _ position: Int) throws(KeyFileError) -> Bool {
        let own = generations[index]
        guard image.entry(position).id == own.id, image.entry(position).born == own.born else { return false }
        let memory: LockedMemory
        do throws(LockedMemory.Unavailable) { memory = try LockedMemory(count: 64) } catch { throw .cannotLock }
        memory.withMutableBytes(0..<32) { image.lend(KeyImage.chain(position), to: &$0) }
        memory.withMutableBytes(32..<64) { chain in own.withChain { chain.write($0, at: 0) } }
        for _ in min(image.base, own.base).number..<own.base.number { memory.derive(from: 0, .chain, to: 0) }
        for _ in min(image.base, own.base).number..<image.base.number { memory.derive(from: 32, .chain, to: 32) }
        return memory.withBytes(0..<64) { Sodium.equal($0.extracting(first: 32), $0.extracting(droppingFirst: 32)) }
    }

    /// Returns the new generation of `image`, if any.
    func birth(in image: KeyImage) throws(LockedMemory.Unavailable) -> Generation? {
        let last = image.generations - 1
        let (id, born) = image.entry(last)
        // Not `current`, while the newest is held back.
        guard id != generations[generations.count - 1].id else { return nil }
        return try Generation(id: id, born: born, base: image.base, reach: reach) { image.lend(KeyImage.chain(last), to: &$0) }
    }

    /// Returns true if all seals of a generation have expired. It takes seals until the step in its successor's first epoch.
    private func isOver(_ index: Int, _ base: Epoch, successor: Epoch?) -> Bool {
        guard let end = index + 1 < generations.count ? generations[index + 1].born : successor else { return false }
        return base.number > end.number + longestLife
    }

    /// Returns true if all seals with a life of a week or less have expired.
    private static func isOld(successor: Epoch?, _ base: Epoch) -> Bool {
        guard let successor else { return false }
        return base.number > successor.number + 7 * Epoch.perDay
    }

    /// A century in epochs. A clock that is further ahead is wrong, and stepping there would take too long.
    private static let longestPause: UInt64 = 100 * 366 * Epoch.perDay
}

extension KeyImage {
    fileprivate func lend(_ offset: Int, to chain: inout MutableSpan<UInt8>) {
        memory.withBytes(offset..<offset + 32) { chain.write($0, at: 0) }
    }

    fileprivate func store(_ chain: Span<UInt8>, at offset: Int) {
        memory.withMutableBytes(offset..<offset + 32) { $0.write(chain, at: 0) }
    }
}

/// The keys of join code indexes, one per UTC day: `chain[d+1] = D(chain[d], "chain")`, `dayKey[d] = D(chain[d], "day")`.
///
/// Keeps the keys of today and the two previous days. A code lives 24 hours at most, and 10 minutes longer after its use. So a code from the
/// day before yesterday may still be valid.
struct DayChain: Sendable {
    static let daysBack: UInt64 = 2

    // Offset 0: the base day's chain. 32, 64, 96: the keys of the base day and the next two. 128: the chain of the day after these.
    // 160: a temporary key.
    private let memory: LockedMemory
    private(set) var base: UInt64

    /// - Parameter base: the day (unix seconds / 86,400) of the chain that `chain` fills in.
    init(base: UInt64, chain: (inout MutableSpan<UInt8>) -> Void) throws(LockedMemory.Unavailable) {
        memory = try LockedMemory(count: 192)
        memory.withMutableBytes(0..<32, chain)
        self.base = base
        makeKeys()
    }

    /// Returns the base day for a base epoch. The current epoch is the one after it, and the base day is two days before.
    static func base(for epoch: Epoch) -> UInt64 { (epoch.number + 1) / Epoch.perDay - daysBack }

    /// Returns the code's index for each day from `today` back to `first` or the base, at most three. Today's comes first. That of `last` follows if it
    /// is a later day.
    func indexes(_ joinID: Span<UInt8>, from first: UInt64 = 0, today: UInt64, last: UInt64 = 0) -> [Digest] {
        let today = max(base, today)
        let first = min(today, max(base, today - Self.daysBack, first))
        return ((first...today).reversed() + (last > today ? [last] : [])).map { index(joinID, $0) }
    }

    /// Destroys the keys of all days before `day`.
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
            // The ratchet is held, so broker time is ahead of it.
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

    /// Lends the base day's chain for the key file.
    func withChain(_ body: (Span<UInt8>) -> Void) { memory.withBytes(0..<32, body) }
}

/// Five minutes of key time: `floor(unix seconds / 300)`.
public struct Epoch: Sendable, Hashable, Comparable, CustomStringConvertible {
    public static let lengthMs: UInt64 = 300_000
    /// Epochs in a day; days start with an epoch.
    public static let perDay: UInt64 = 288

    public let number: UInt64

    public init(_ number: UInt64) { self.number = number }

    /// The epoch of a time in unix ms.
    public init(atMs time: UInt64) { number = time / Self.lengthMs }

    /// The first ms of the epoch.
    public var startMs: UInt64 { number * Self.lengthMs }
    /// The first ms after it.
    public var endMs: UInt64 { startMs + Self.lengthMs }

    public static func < (left: Epoch, right: Epoch) -> Bool { left.number < right.number }
    public var description: String { String(number) }
}

import Sodium
import Synchronization
public import Vocabulary

/// Seals and opens stored data, and computes its indexes, with the keys of one `ratchet.key`. Thread-safe. Only what writes that file blocks.
public final class KeyRing: Sendable {
    /// The default for the longest life of anything sealed: a week, in seconds.
    public static let longestLifeSeconds: UInt64 = 604_800

    /// The limit for the longest life: 60 days, in seconds. There is a generation per day, and each is kept for the longest life.
    public static let largestLifeSeconds: UInt64 = 5_184_000

    /// Locked during a step, while seals and opens continue.
    /// Nil if the keys are in memory only.
    let file: Mutex<KeyFile?>
    let ratchet: Mutex<Ratchet>
    let editions = Mutex(KeyEditions())
    /// Random except for the published test vectors.
    let nonce: @Sendable () -> InlineArray<24, UInt8>

    convenience init(
        path: String, wrapping: WrappingKey? = nil, image: KeyImage, longestLifeSeconds: UInt64,
        nonce: @escaping @Sendable () -> InlineArray<24, UInt8> = { .random }
    ) throws(KeyFileError) {
        try self.init(
            file: KeyFile(path: path, wrapping: wrapping), image: image, longestLifeSeconds: longestLifeSeconds, nonce: nonce)
    }

    init(
        file: KeyFile?, image: KeyImage, longestLifeSeconds: UInt64,
        nonce: @escaping @Sendable () -> InlineArray<24, UInt8> = { .random }
    ) throws(KeyFileError) {
        precondition(longestLifeSeconds <= Self.largestLifeSeconds)
        let life = (longestLifeSeconds * 1000 + Epoch.lengthMs - 1) / Epoch.lengthMs
        do throws(LockedMemory.Unavailable) {
            ratchet = Mutex(try Ratchet(image, longestLife: life))
        } catch {
            throw .cannotLock
        }
        self.file = Mutex(file)
        self.nonce = nonce
    }

    /// Creates a key file with random keys, generation 1 and mode 0600.
    /// - Parameters:
    ///   - wrapping: the key that wraps the file. Nil for an unwrapped file.
    ///   - nowMs: unix ms.
    /// - Throws: `.alreadyExists` if `path` exists.
    public static func create(path: String, wrapping: WrappingKey? = nil, nowMs: UInt64) throws(KeyFileError) {
        try KeyFile(path: path, wrapping: wrapping).create(KeyImage.random(nowMs: nowMs))
    }

    /// Reads a key file without changing it. Compare `steps` with the node's recorded step to detect an old copy, then call `step`.
    public static func load(
        path: String, wrapping: WrappingKey? = nil, longestLifeSeconds: UInt64 = KeyRing.longestLifeSeconds
    ) throws(KeyFileError) -> KeyRing {
        let file = KeyFile(path: path, wrapping: wrapping)
        return try KeyRing(file: file, image: file.read(), longestLifeSeconds: longestLifeSeconds)
    }

    /// Destroys the keys of all epochs before `epoch(nowMs) - 1`, on disk and then in memory. Starts a new generation if one is due.
    ///
    /// Call it at `nextStepMs` and once at the start. It always zeroes older keys that a crash during a step left beside the file. It blocks for
    /// a few disk writes. If it throws, memory is unchanged: call it again.
    /// - Parameters:
    ///   - nowMs: `BrokerClock.Reading.ratchetMs`.
    ///   - offered: called between `offer` and `finish`.
    /// - Returns: nil if no step was due.
    public func step(nowMs: UInt64, offered: () -> Void = {}) throws(KeyFileError) -> RatchetStep? {
        guard let step = try offer(nowMs: nowMs) else { return nil }
        offered()
        return try finish(step)
    }

    /// Begins a step: from now on `sealed(for:)` returns the new keys, so that other nodes have them before the first use. Follow it by `finish`, and
    /// begin no other step before.
    /// - Returns: nil if no step is due.
    public func offer(nowMs: UInt64) throws(KeyFileError) -> OfferedStep? {
        let offered = try file.withLock { file throws(KeyFileError) -> OfferedStep? in
            try file?.prepareSpare()
            let now = Epoch(atMs: nowMs)
            let (image, before) = try ratchet.withLock { ratchet throws(KeyFileError) in (try ratchet.next(now), ratchet.base) }
            guard let image else { return nil }
            do throws(LockedMemory.Unavailable) {
                let born = try ratchet.withLock { ratchet throws(LockedMemory.Unavailable) in try ratchet.birth(in: image) }
                return OfferedStep(image: image, born: born, before: before)
            } catch {
                throw .cannotLock
            }
        }
        if let offered { renumber { $0 = offered.image } }
        return offered
    }

    /// Ends a step. If it throws, the offer is taken back.
    public func finish(_ step: OfferedStep) throws(KeyFileError) -> RatchetStep {
        let (image, born) = (step.image, step.born)
        do throws(KeyFileError) {
            try file.withLock { file throws(KeyFileError) in
                try file?.replace(image)
                ratchet.withLock { $0.adopt(image, born: born) }
            }
        } catch {
            renumber { $0 = nil }
            throw error
        }
        editions.withLock { $0.offered = nil }
        return RatchetStep(
            destroyed: image.base > step.before ? Epoch(image.base.number - 1) : nil, newGeneration: born?.id, steps: image.steps)
    }

    /// Returns the keys in use, or nil if no memory can be locked.
    func image() -> KeyImage? { try? ratchet.withLock { ratchet throws(KeyFileError) in try ratchet.image() } }

    /// The number of replacements of the key file. A file with fewer steps than this node has recorded is an old copy.
    public var steps: UInt64 { ratchet.withLock { $0.steps } }
    /// The first epoch whose keys still exist.
    public var baseEpoch: Epoch { ratchet.withLock { $0.base } }
    /// The generation of new seals.
    public var currentGeneration: UInt32 { ratchet.withLock { $0.current } }
    /// The live generations with their first epochs, oldest first.
    public var generations: [(id: UInt32, born: Epoch)] { ratchet.withLock { $0.generations.map { ($0.id, $0.born) } } }
    /// The time of the next step, unix ms.
    public var nextStepMs: UInt64 { ratchet.withLock { Epoch($0.base.number + 2).startMs } }
    /// The earliest possible current time, unix ms. Later steps have not happened yet, whatever the clock shows.
    public var earliestNowMs: UInt64 { ratchet.withLock { Epoch($0.base.number + 1).startMs } }

    /// Starts a derivation with the key of the epoch of `timeMs`. Returns nil if there is no such key.
    /// - Throws: `.outOf(.behind)` if another node has the key and this one may still get it.
    func derivation(_ generation: UInt32, _ timeMs: UInt64, _ label: Label) throws(SealingError) -> Derivation? {
        let found: Result<Derivation?, SealingError> = ratchet.withLock { ratchet in
            if let derivation = ratchet.derivation(generation, Epoch(atMs: timeMs), label) { return .success(derivation) }
            return ratchet.isBehind(generation) ? .failure(.outOf(.behind)) : .success(nil)
        }
        return try found.get()
    }

    /// `D(dayKey[d], "join", joinid)` for today and each earlier day from which a code may be left, today's first. Store a code under the first
    /// index, and look it up under all.
    /// - Parameters:
    ///   - retentionMs: the longest life of a code's row, in ms. Covers today and at most two earlier days.
    ///   - aheadMs: how far other nodes' clocks may be ahead. Shortly before midnight the next day's index comes last.
    public func codeIndexes(
        _ joinID: Span<UInt8>, nowMs: UInt64, retentionMs: UInt64 = .max, aheadMs: UInt64 = 0
    ) throws(SealingError) -> [Digest] {
        try ratchet.withLock { ratchet throws(SealingError) in
            let dayMs = Epoch.lengthMs * Epoch.perDay
            let today = nowMs / dayMs
            // Broker time may be ahead of a held ratchet, but not by a century.
            guard today < ratchet.days.base + 40_000 else { throw .outOfReach }
            let first = (nowMs - min(nowMs, retentionMs)) / dayMs
            return ratchet.days.indexes(joinID, from: first, today: today, last: (nowMs + aheadMs) / dayMs)
        }
    }
}

extension InlineArray where count == 24, Element == UInt8 {
    static var random: Self {
        var bytes = Self(repeating: 0)
        var span = bytes.mutableSpan
        Sodium.fillPublicRandom(&span)
        return bytes
    }
}

extension KeyRing {
    /// Returns the slot of a new row: `expiry = born + k * step + life`, for the largest k whose step has begun. So a row lives for at most
    /// `life`, at least `life` minus a step, and all rows of one step expire together.
    ///
    /// Broker time (`nowMs`) is limited to the ratchet's epoch. If it is ahead of a held ratchet, new rows live shorter but can still be found.
    public func expirySlot(lifeMs: UInt64, stepMs: UInt64, nowMs: UInt64) -> ExpirySlot {
        ratchet.withLock { $0.expirySlot(lifeMs, stepMs, nowMs) }
    }

    /// Returns all slots in which an unexpired row of this life may be, latest expiry first. There is about one per step in `lifeMs`, and one
    /// more per day.
    public func expirySlots(lifeMs: UInt64, stepMs: UInt64, nowMs: UInt64) -> [ExpirySlot] {
        ratchet.withLock { $0.expirySlots(lifeMs, stepMs, nowMs) }
    }

    /// Returns false if there is no key for the slot and none will come: its epoch is over, or its generation was lost.
    public func reaches(_ slot: ExpirySlot) -> Bool {
        // A generation that another node made may still come.
        do { return try derivation(slot.generation, slot.expiryMs, .ownerIndex) != nil } catch { return true }
    }

    /// Computes the keys of these slots in advance. After a start, a look-up over a month would otherwise take 0.1 s. It locks once per slot, so
    /// others aren't delayed. Call it on a thread that may block.
    public func prepare(_ slots: [ExpirySlot]) {
        for slot in slots { _ = (try? derivation(slot.generation, slot.expiryMs, .ownerIndex))??.digest() }
    }
}

extension Ratchet {
    func expirySlot(_ lifeMs: UInt64, _ stepMs: UInt64, _ nowMs: UInt64) -> ExpirySlot {
        precondition(stepMs > 0)
        let current = sealing
        let begun = (sealingTime(nowMs, current) - current.born.startMs) / stepMs * stepMs
        return ExpirySlot(generation: current.id, expiryMs: current.born.startMs + begun + lifeMs)
    }

    func expirySlots(_ lifeMs: UInt64, _ stepMs: UInt64, _ nowMs: UInt64) -> [ExpirySlot] {
        precondition(stepMs > 0)
        var slots: [ExpirySlot] = []
        // A generation's steps follow those of the previous generation. Other nodes may seal with the newest one already.
        var last = sealingTime(nowMs, generations[generations.count - 1])
        for generation in generations.reversed() {
            let first = generation.born.startMs
            last = min(last, lastSeal(generation))
            var start = first + (last - first) / stepMs * stepMs
            while start + lifeMs > nowMs {
                slots.append(ExpirySlot(generation: generation.id, expiryMs: start + lifeMs))
                if start == first { break }
                start -= stepMs
            }
            last = first - 1
        }
        return slots
    }

    /// Returns broker time, limited to the ratchet's epoch and to the generation's seals.
    private func sealingTime(_ nowMs: UInt64, _ generation: Generation) -> UInt64 {
        let now = min(max(nowMs, Epoch(base.number + 1).startMs), Epoch(base.number + 1).endMs - 1)
        return max(generation.born.startMs, min(now, lastSeal(generation)))
    }

    /// Returns the last ms of a generation's seals. It is replaced at the age of a day.
    private func lastSeal(_ generation: Generation) -> UInt64 { Epoch(generation.born.number + Epoch.perDay).startMs - 1 }
}

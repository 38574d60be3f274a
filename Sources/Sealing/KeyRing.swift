import Sodium
import Synchronization
import Vocabulary

/// All that seals, opens and names what is stored, under the keys of one `ratchet.key`. Thread-safe; every operation but `step`
/// is quick.
public final class KeyRing: Sendable {
    /// The longest life of anything sealed, in seconds, unless a policy says otherwise: a week.
    public static let longestLifeSeconds: UInt64 = 604_800

    /// 60 days: a generation's keys are held for the longest life, and as many generations.
    public static let largestLifeSeconds: UInt64 = 5_184_000

    /// One step at a time; seals and opens go on meanwhile.
    private let file: Mutex<KeyFile>
    private let ratchet: Mutex<Ratchet>
    /// Random, but for the published vectors.
    let nonce: @Sendable () -> InlineArray<24, UInt8>

    init(
        path: String, wrapping: WrappingKey? = nil, image: KeyImage, longestLifeSeconds: UInt64,
        nonce: @escaping @Sendable () -> InlineArray<24, UInt8> = { .random }
    ) throws(KeyFileError) {
        precondition(longestLifeSeconds <= Self.largestLifeSeconds)
        let life = (longestLifeSeconds * 1000 + Epoch.lengthMs - 1) / Epoch.lengthMs
        do throws(LockedMemory.Unavailable) {
            ratchet = Mutex(try Ratchet(image, longestLife: life))
        } catch {
            throw .cannotLock
        }
        file = Mutex(KeyFile(path: path, wrapping: wrapping))
        self.nonce = nonce
    }

    /// Makes a key file of random keys, mode 0600, with generation 1. `nowMs`: unix ms; `wrapping`: what it lies sealed under.
    /// - Throws: `alreadyExists` if anything lies at `path`.
    public static func create(path: String, wrapping: WrappingKey? = nil, nowMs: UInt64) throws(KeyFileError) {
        let now = Epoch(atMs: nowMs)
        guard now.number > Epoch.perDay * (DayChain.daysBack + 1) else { throw .implausibleTime }
        let image = try KeyImage(generations: 1, steps: 1, base: Epoch(now.number - 1))
        image.memory.withMutableBytes(KeyImage.dayChain..<KeyImage.dayChain + 32) { Sodium.fillRandom(&$0) }
        image.write(0, id: 1, born: now)
        let chain = KeyImage.chain(0)
        image.memory.withMutableBytes(chain..<chain + 32) { Sodium.fillRandom(&$0) }
        image.finish()
        try KeyFile(path: path, wrapping: wrapping).create(image)
    }

    /// Reads a key file and changes nothing: compare `steps` with the last recorded step (`stale_keys`), then call `step`.
    public static func load(
        path: String, wrapping: WrappingKey? = nil, longestLifeSeconds: UInt64 = KeyRing.longestLifeSeconds
    ) throws(KeyFileError) -> KeyRing {
        try KeyRing(
            path: path, wrapping: wrapping, image: KeyFile(path: path, wrapping: wrapping).read(),
            longestLifeSeconds: longestLifeSeconds)
    }

    /// Destroys the keys of every epoch before `epoch(nowMs) - 1` on disk and then in memory, and begins a generation when one is
    /// due; nil when nothing is due. Give it `BrokerClock.Reading.ratchetMs`; call it at `nextStepMs` and once at the start.
    ///
    /// Due or not, it first zeroes the older keys that a crash in the middle of a step left beside the file.
    ///
    /// It blocks for some disk writes, and waits for no other operation. When it throws, memory is as before: call it again.
    public func step(nowMs: UInt64) throws(KeyFileError) -> RatchetStep? {
        try file.withLock { file throws(KeyFileError) in
            try file.prepareSpare()
            let now = Epoch(atMs: nowMs)
            let (image, before) = try ratchet.withLock { ratchet throws(KeyFileError) in (try ratchet.next(now), ratchet.base) }
            guard let image else { return nil }
            let born: Generation?
            do throws(LockedMemory.Unavailable) {
                born = try ratchet.withLock { ratchet throws(LockedMemory.Unavailable) in try ratchet.birth(in: image) }
            } catch {
                throw .cannotLock
            }
            try file.replace(image)
            ratchet.withLock { $0.adopt(image, born: born) }
            return RatchetStep(
                destroyed: image.base > before ? Epoch(image.base.number - 1) : nil, newGeneration: born?.id, steps: image.steps)
        }
    }

    /// How often the key file has been replaced. A file with fewer steps than this node recorded is an old copy.
    public var steps: UInt64 { ratchet.withLock { $0.steps } }
    /// No key of an epoch before this one exists.
    public var baseEpoch: Epoch { ratchet.withLock { $0.base } }
    /// The generation that takes new seals.
    public var currentGeneration: UInt32 { ratchet.withLock { $0.current } }
    /// All that can still open something, oldest first, each with the epoch in which it began.
    public var generations: [(id: UInt32, born: Epoch)] { ratchet.withLock { $0.generations.map { ($0.id, $0.born) } } }
    /// When the next step is due, in unix ms.
    public var nextStepMs: UInt64 { ratchet.withLock { Epoch($0.base.number + 2).startMs } }
    /// The keys say that it is at least this late, whatever the clock does.
    public var earliestNowMs: UInt64 { ratchet.withLock { Epoch($0.base.number + 1).startMs } }

    /// A derivation under the key of the epoch that `timeMs` lies in.
    func derivation(_ generation: UInt32, _ timeMs: UInt64, _ label: Label) -> Derivation? {
        ratchet.withLock { $0.derivation(generation, Epoch(atMs: timeMs), label) }
    }

    func withRatchet<Result>(_ body: (borrowing Ratchet) -> Result) -> Result { ratchet.withLock { body($0) } }

    func dayIndexes(_ joinID: Span<UInt8>, nowMs: UInt64, standsMs: UInt64) throws(SealingError) -> [Digest] {
        try ratchet.withLock { ratchet throws(SealingError) in
            let dayMs = Epoch.lengthMs * Epoch.perDay
            let today = nowMs / dayMs
            // Broker time may run ahead of a held ratchet, but not by years.
            guard today < ratchet.days.base + 40_000 else { throw .outOfReach }
            return ratchet.days.indexes(joinID, from: (nowMs - min(nowMs, standsMs)) / dayMs, today: today)
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

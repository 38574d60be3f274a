import Sodium
import Vocabulary

/// The content of `ratchet.key` in locked memory, byte for byte. Numbers are big-endian.
///
/// ```
///  0  8  "mayflyrk"
///  8  4  version: 1
/// 12  4  n, how many generations follow: 1...64
/// 16  8  steps: how often the file was replaced
/// 24  8  base epoch: no chain is older
/// 32 32  day chain, at day (base + 1) / 288 - 2
/// 64  n * { 4 id, 8 epoch of birth, 32 chain at the base epoch }, oldest first
///    32  checksum D(0, "ratchet-file", all before)
/// ```
struct KeyImage: Sendable {
    static let version: UInt32 = 1
    private static let headCount = 64
    static let dayChain = 32
    private static let entryCount = 44
    private static let checksumCount = 32
    private static let largestGenerations = 64
    static let largestCount = headCount + largestGenerations * entryCount + checksumCount

    let memory: LockedMemory
    let generations: Int

    static func count(_ generations: Int) -> Int { headCount + generations * entryCount + checksumCount }

    /// Creates an image with its head. The caller fills in the rest and calls `finish`.
    init(generations: Int, steps: UInt64, base: Epoch) throws(KeyFileError) {
        precondition((1...Self.largestGenerations).contains(generations))
        do throws(LockedMemory.Unavailable) {
            memory = try LockedMemory(count: Self.count(generations))
        } catch {
            throw .cannotLock
        }
        self.generations = generations
        memory.withMutableBytes(0..<Self.headCount) { head in
            head.write(Array("mayflyrk".utf8).span, at: 0)
            head.write(bigEndian: Self.version, at: 8)
            head.write(bigEndian: UInt32(generations), at: 12)
            head.write(bigEndian: steps, at: 16)
            head.write(bigEndian: base.number, at: 24)
        }
    }

    /// Returns random keys: generation 1, born now.
    static func random(nowMs: UInt64) throws(KeyFileError) -> KeyImage {
        let now = Epoch(atMs: nowMs)
        guard now.number > Epoch.perDay * (DayChain.daysBack + 1) else { throw .implausibleTime }
        let image = try KeyImage(generations: 1, steps: 1, base: Epoch(now.number - 1))
        image.memory.withMutableBytes(dayChain..<dayChain + 32) { Sodium.fillRandom(&$0) }
        image.write(0, id: 1, born: now)
        image.memory.withMutableBytes(chain(0)..<chain(0) + 32) { Sodium.fillRandom(&$0) }
        image.finish()
        return image
    }

    /// Checks `count` bytes read from a file.
    init(checking memory: LockedMemory, count: Int) throws(KeyFileError) {
        self.memory = memory
        generations = try memory.withBytes(0..<count) { bytes throws(KeyFileError) in
            guard count >= 16 else { throw .truncated }
            guard Sodium.equal(bytes.extracting(first: 8), Array("mayflyrk".utf8).span) else { throw .notAKeyFile }
            let version = bytes.bigEndian32(at: 8)
            guard version == Self.version else { throw .unknownVersion(version) }
            let generations = Int(bytes.bigEndian32(at: 12))
            guard (1...Self.largestGenerations).contains(generations) else { throw .corrupt }
            guard count >= Self.count(generations) else { throw .truncated }
            guard count == Self.count(generations) else { throw .corrupt }
            return generations
        }
        let checksum = checksum()
        let stored = memory.withBytes(count - Self.checksumCount..<count) { Digest(bytes: $0) }
        guard checksum == stored, isPlausible else { throw .corrupt }
    }

    /// Writes the checksum. Call it last.
    func finish() {
        let end = Self.count(generations)
        checksum().withBytes { checksum in
            memory.withMutableBytes(end - Self.checksumCount..<end) { $0.write(checksum, at: 0) }
        }
    }

    var steps: UInt64 { memory.withBytes(0..<Self.headCount) { $0.bigEndian64(at: 16) } }
    var base: Epoch { Epoch(memory.withBytes(0..<Self.headCount) { $0.bigEndian64(at: 24) }) }

    func entry(_ index: Int) -> (id: UInt32, born: Epoch) {
        let start = Self.headCount + index * Self.entryCount
        return memory.withBytes(start..<start + 12) { ($0.bigEndian32(at: 0), Epoch($0.bigEndian64(at: 4))) }
    }

    func write(_ index: Int, id: UInt32, born: Epoch) {
        let start = Self.headCount + index * Self.entryCount
        memory.withMutableBytes(start..<start + 12) { entry in
            entry.write(bigEndian: id, at: 0)
            entry.write(bigEndian: born.number, at: 4)
        }
    }

    /// Returns the offset of a generation's chain.
    static func chain(_ index: Int) -> Int { headCount + index * entryCount + 12 }

    func withBytes<Failure: Error>(_ body: (Span<UInt8>) throws(Failure) -> Void) throws(Failure) {
        try memory.withBytes(0..<Self.count(generations), body)
    }

    private func checksum() -> Digest {
        memory.withBytes(0..<Self.count(generations) - Self.checksumCount) { bytes in
            var derivation = Derivation(.file)
            derivation.add(bytes)
            return derivation.digest()
        }
    }

    /// False if no step could have written these numbers, even if the checksum is right.
    private var isPlausible: Bool {
        guard base.number >= Epoch.perDay * DayChain.daysBack, base.number < UInt64.max / Epoch.lengthMs - Epoch.perDay * 10_000
        else { return false }
        guard steps < UInt64.max / 2 else { return false }
        for index in 0..<generations {
            let (id, born) = entry(index)
            guard id < UInt32.max / 2, born.number <= base.number + 1 else { return false }
            if index > 0 {
                let before = entry(index - 1)
                guard id > before.id, born > before.born else { return false }
            }
        }
        return true
    }
}

/// The content of `ratchet.key` sealed under a wrapping key. Numbers are big-endian.
///
/// ```
///  0  8  "mayflyrk"
///  8  4  version: 2
/// 12  4  n, the count of bytes inside: a file of version 1
/// 16 16  id of the wrapping key
/// 32 24  nonce
/// 56  n  the file of version 1, XChaCha20-Poly1305, associated data: bytes 0..<32
///    16  tag
/// ```
enum WrappedImage {
    static let version: UInt32 = 2
    private static let headCount = 32
    static let overhead = headCount + XChaCha20Poly1305.nonceCount + XChaCha20Poly1305.tagCount

    static func seal(
        _ image: KeyImage, under wrapping: WrappingKey, nonce: InlineArray<24, UInt8> = .random
    ) -> [UInt8] {
        let count = KeyImage.count(image.generations)
        var wrapped = [UInt8](repeating: 0, count: count + overhead)
        var all = wrapped.mutableSpan
        all.write(Array("mayflyrk".utf8).span, at: 0)
        all.write(bigEndian: version, at: 8)
        all.write(bigEndian: UInt32(count), at: 12)
        all.write(wrapping.id.span, at: 16)
        let head = Array(wrapped[..<headCount])
        all = wrapped.mutableSpan
        all.write(nonce.span, at: headCount)
        var box = all._mutatingExtracting(headCount + XChaCha20Poly1305.nonceCount..<all.count)
        image.withBytes { plaintext in
            wrapping.key.withBytes { key in
                XChaCha20Poly1305.seal(plaintext, into: &box, associatedData: head.span, nonce: nonce.span, key: key)
            }
        }
        Sodium.wipeStack()
        return wrapped
    }

    /// Returns true if the bytes start like a wrapped file.
    static func isOne(_ bytes: Span<UInt8>) -> Bool {
        bytes.count >= 16 && Sodium.equal(bytes.extracting(first: 8), Array("mayflyrk".utf8).span)
            && bytes.bigEndian32(at: 8) == version
    }

    static func open(_ bytes: Span<UInt8>, with wrapping: WrappingKey) throws(KeyFileError) -> KeyImage {
        guard bytes.count >= headCount else { throw .truncated }
        let count = Int(bytes.bigEndian32(at: 12))
        guard (1...KeyImage.largestCount).contains(count), bytes.count <= count + overhead else { throw .corrupt }
        guard bytes.count == count + overhead else { throw .truncated }
        guard Sodium.equal(bytes.extracting(16..<headCount), wrapping.id.span) else { throw .otherWrappingKey }
        let memory: LockedMemory
        do throws(LockedMemory.Unavailable) {
            memory = try LockedMemory(count: KeyImage.largestCount + 1)
        } catch {
            throw .cannotLock
        }
        let (nonce, box) = (
            headCount..<headCount + XChaCha20Poly1305.nonceCount, headCount + XChaCha20Poly1305.nonceCount..<bytes.count
        )
        let isGenuine = memory.withMutableBytes(0..<count) { plaintext in
            wrapping.key.withBytes { key in
                XChaCha20Poly1305.open(
                    bytes.extracting(box), into: &plaintext, associatedData: bytes.extracting(first: headCount),
                    nonce: bytes.extracting(nonce), key: key)
            }
        }
        Sodium.wipeStack()
        guard isGenuine else { throw .corrupt }
        return try KeyImage(checking: memory, count: count)
    }
}

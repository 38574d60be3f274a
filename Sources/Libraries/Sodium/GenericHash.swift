import CSodium
import Synchronization

/// Keyed BLAKE2b with 32 bytes of output (`crypto_generichash`, RFC 7693), incremental.
public struct GenericHash: ~Copyable {
    public static let digestCount = 32

    private let state = KeyedState(count: crypto_generichash_statebytes())
    /// The number of bytes hashed so far, the key counted as a block. BLAKE2b compresses all but the last two blocks at once.
    private var taken: Int
    private static let block = 128

    /// - Parameter key: empty, or 16 to 64 bytes.
    public init(key: Span<UInt8> = Span()) {
        precondition(key.isEmpty || (16...64).contains(key.count), "a key of 16 to 64 bytes")
        Sodium.initialize()
        taken = key.isEmpty ? 0 : Self.block
        unsafe key.withUnsafeBufferPointer {
            _ = unsafe crypto_generichash_init(OpaquePointer(state.address), $0.baseAddress, $0.count, Self.digestCount)
        }
    }

    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer {
            guard let start = $0.baseAddress else { return }
            _ = unsafe crypto_generichash_update(OpaquePointer(state.address), start, UInt64($0.count))
        }
        taken += bytes.count
        if taken > 2 * Self.block { Sodium.wipeStack() }
    }

    /// Writes the digest of 32 bytes. libsodium leaves words of the last block and the digest on the stack, so the stack is wiped.
    public consuming func finish(into digest: inout MutableSpan<UInt8>) {
        precondition(digest.count == Self.digestCount)
        unsafe digest.withUnsafeMutableBufferPointer {
            _ = unsafe crypto_generichash_final(OpaquePointer(state.address), $0.baseAddress!, $0.count)
        }
        Sodium.wipeStack()
    }

    /// Returns a digest that is not secret.
    public consuming func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Self.digestCount)
        var span = digest.mutableSpan
        finish(into: &span)
        return digest
    }

    public static func hash(_ message: Span<UInt8>, key: Span<UInt8> = Span()) -> [UInt8] {
        var hash = GenericHash(key: key)
        hash.update(message)
        return hash.finish()
    }
}

/// SipHash-2-4 (`crypto_shorthash`) under a random key: keys for hash tables that outsiders can't make collide.
///
/// The key is in ordinary memory. Anyone who reads the process's memory can test guesses of what was hashed.
public struct ShortHash: Sendable {
    private let key: InlineArray<2, UInt64>

    /// Creates a random key.
    public init() {
        Sodium.initialize()
        let bytes = Sodium.randomBytes(16)
        key = [bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, bytes.suffix(8).reduce(0) { $0 << 8 | UInt64($1) }]
    }

    public func hash(_ bytes: Span<UInt8>) -> UInt64 {
        var digest: UInt64 = 0
        let key = key
        unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe withUnsafeBytes(of: key) { key in
                unsafe withUnsafeMutableBytes(of: &digest) { digest in
                    _ = unsafe crypto_shorthash(
                        digest.baseAddress!.assumingMemoryBound(to: UInt8.self), bytes.baseAddress, UInt64(bytes.count),
                        key.baseAddress!.assumingMemoryBound(to: UInt8.self))
                }
            }
        }
        return digest
    }
}

/// Heap memory for the C state of a keyed function, wiped on deinit. A Swift value would leave copies behind when it moves.
@safe
struct KeyedState: ~Copyable {
    let address: UnsafeMutableRawPointer
    private let count: Int

    /// Wiped states for reuse: aligned allocation is slow.
    private static let spare = Mutex<[UInt]>([])
    private static let largestCount = 512
    private static let mostSpare = 16

    init(count: Int) {
        precondition(count <= Self.largestCount)
        if let known = Self.spare.withLock({ $0.popLast() }) {
            unsafe address = UnsafeMutableRawPointer(bitPattern: known)!
        } else {
            // BLAKE2b's state needs an alignment of 64, which Swift does not import.
            unsafe address = UnsafeMutableRawPointer.allocate(byteCount: Self.largestCount, alignment: 64)
        }
        self.count = count
    }

    deinit {
        unsafe sodium_memzero(address, count)
        let number = unsafe UInt(bitPattern: address)
        let isKept = Self.spare.withLock { spare in
            guard spare.count < Self.mostSpare else { return false }
            spare.append(number)
            return true
        }
        if !isKept { unsafe address.deallocate() }
    }
}

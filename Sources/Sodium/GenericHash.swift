import CSodium

/// Keyed BLAKE2b with 32 bytes of output (`crypto_generichash`, RFC 7693), fed span by span.
public struct GenericHash: ~Copyable {
    public static let digestCount = 32

    private let state = KeyedState(count: crypto_generichash_statebytes())
    /// How much it was given: the key is a block of its own, and all but the last two blocks are hashed as they come.
    private var taken: Int
    private static let block = 128

    /// `key`: empty, or 16 to 64 bytes.
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

    /// Writes the 32 bytes of the digest to `digest`. libsodium leaves the words of the last block and the digest on the stack.
    public consuming func finish(into digest: inout MutableSpan<UInt8>) {
        precondition(digest.count == Self.digestCount)
        unsafe digest.withUnsafeMutableBufferPointer {
            _ = unsafe crypto_generichash_final(OpaquePointer(state.address), $0.baseAddress!, $0.count)
        }
        Sodium.wipeStack()
    }

    /// The digest, where it is not secret.
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

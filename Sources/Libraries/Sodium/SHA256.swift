import CSodium

/// SHA-256 (FIPS 180-4), incremental.
public struct SHA256: ~Copyable {
    public static let digestCount = 32
    private var state = crypto_hash_sha256_state()

    public init() {
        Sodium.initialize()
        _ = unsafe crypto_hash_sha256_init(&state)
    }

    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer {
            guard let start = $0.baseAddress else { return }
            _ = unsafe crypto_hash_sha256_update(&state, start, UInt64($0.count))
        }
    }

    /// Writes the digest of 32 bytes.
    public consuming func finish(into digest: inout MutableSpan<UInt8>) {
        precondition(digest.count == Self.digestCount)
        unsafe digest.withUnsafeMutableBufferPointer {
            _ = unsafe crypto_hash_sha256_final(&state, $0.baseAddress!)
        }
    }

    public consuming func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Self.digestCount)
        var span = digest.mutableSpan
        finish(into: &span)
        return digest
    }

    public static func hash(_ message: Span<UInt8>) -> [UInt8] {
        var hash = SHA256()
        hash.update(message)
        return hash.finish()
    }
}

/// HMAC-SHA256 (RFC 2104) with a key of any length, incremental.
public struct HMACSHA256: ~Copyable {
    public static let digestCount = 32
    private let state = KeyedState(count: MemoryLayout<crypto_auth_hmacsha256_state>.size)

    public init(key: Span<UInt8>) {
        Sodium.initialize()
        unsafe key.withUnsafeBufferPointer {
            // libsodium needs a non-null pointer even for an empty key.
            var none: UInt8 = 0
            if let start = $0.baseAddress {
                _ = unsafe crypto_auth_hmacsha256_init(address, start, $0.count)
            } else {
                _ = unsafe crypto_auth_hmacsha256_init(address, &none, 0)
            }
        }
    }

    public mutating func update(_ bytes: Span<UInt8>) {
        unsafe bytes.withUnsafeBufferPointer {
            guard let start = $0.baseAddress else { return }
            _ = unsafe crypto_auth_hmacsha256_update(address, start, UInt64($0.count))
        }
    }

    public mutating func update(_ byte: UInt8) {
        var byte = byte
        _ = unsafe crypto_auth_hmacsha256_update(address, &byte, 1)
    }

    /// Writes the code of 32 bytes.
    public consuming func finish(into code: inout MutableSpan<UInt8>) {
        precondition(code.count == Self.digestCount)
        unsafe code.withUnsafeMutableBufferPointer {
            _ = unsafe crypto_auth_hmacsha256_final(address, $0.baseAddress!)
        }
    }

    public consuming func finish() -> [UInt8] {
        var code = [UInt8](repeating: 0, count: Self.digestCount)
        var span = code.mutableSpan
        finish(into: &span)
        return code
    }

    private var address: UnsafeMutablePointer<crypto_auth_hmacsha256_state> {
        unsafe state.address.assumingMemoryBound(to: crypto_auth_hmacsha256_state.self)
    }

    public static func code(_ message: Span<UInt8>, key: Span<UInt8>) -> [UInt8] {
        var code = HMACSHA256(key: key)
        code.update(message)
        return code.finish()
    }

    /// Compares `code` in constant time. A code of another length is invalid.
    public static func isValid(_ code: Span<UInt8>, for message: Span<UInt8>, key: Span<UInt8>) -> Bool {
        let expected = Self.code(message, key: key)
        return Sodium.equal(expected.span, code)
    }
}

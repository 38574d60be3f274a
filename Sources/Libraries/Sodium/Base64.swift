import CSodium

/// Strict base64 (RFC 4648): only canonical text decodes. libsodium's codec, whose time depends only on the length.
public enum Base64: Sendable {
    /// The alphabet of section 4, with padding.
    case standard
    /// The alphabet of section 5, without padding: room ids and member secrets.
    case url

    /// The number of characters for `count` bytes.
    public func encodedCount(_ count: Int) -> Int {
        switch self {
        case .standard: (count + 2) / 3 * 4
        case .url: (count * 4 + 2) / 3
        }
    }

    /// Writes ASCII to `text`. Its length must be `encodedCount` of the length of `bytes`.
    public func encode(_ bytes: Span<UInt8>, into text: inout MutableSpan<UInt8>) {
        precondition(text.count == encodedCount(bytes.count))
        unsafe withTerminated(text.count, &text) { buffer in
            unsafe bytes.withUnsafeBufferPointer { bytes in
                guard let start = bytes.baseAddress else { return }
                _ = unsafe sodium_bin2base64(buffer.baseAddress!, buffer.count, start, bytes.count, variant)
            }
        }
    }

    public func encode(_ bytes: Span<UInt8>) -> String {
        var text = [UInt8](repeating: 0, count: encodedCount(bytes.count))
        var span = text.mutableSpan
        encode(bytes, into: &span)
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes ASCII into the front of `bytes`.
    /// - Returns: the number of bytes. Nil, with undefined `bytes`, if a character is of another alphabet, padding is missing or superfluous, bits
    ///   are left over, or `bytes` is too short.
    public func decode(_ text: Span<UInt8>, into bytes: inout MutableSpan<UInt8>) -> Int? {
        if text.isEmpty { return 0 }
        // libsodium accepts any byte above ASCII as the alphabet's last character. Check all bytes in constant time.
        var bits: UInt8 = 0
        for index in text.indices { bits |= text[index] }
        guard bits < 0x80 else { return nil }
        var none: UInt8 = 0
        var count = 0
        let result = unsafe text.withUnsafeBytes { text in
            unsafe bytes.withUnsafeMutableBufferPointer { bytes in
                unsafe withUnsafeMutablePointer(to: &none) { none in
                    unsafe sodium_base642bin(
                        bytes.baseAddress ?? none, bytes.count, text.baseAddress!.assumingMemoryBound(to: CChar.self), text.count,
                        nil, &count, nil, variant)
                }
            }
        }
        return result == 0 ? count : nil
    }

    /// For values that are not secret.
    public func decode(_ text: String) -> [UInt8]? {
        let text = Array(text.utf8)
        var bytes = [UInt8](repeating: 0, count: text.count / 4 * 3 + 3)
        var span = bytes.mutableSpan
        guard let count = decode(text.span, into: &span) else { return nil }
        bytes.removeSubrange(count...)
        return bytes
    }

    private var variant: CInt {
        switch self {
        case .standard: sodium_base64_VARIANT_ORIGINAL
        case .url: sodium_base64_VARIANT_URLSAFE_NO_PADDING
        }
    }
}

/// Lends `body` room for `count` characters and the NUL that libsodium's encoder appends. Copies the characters out and wipes the room.
func withTerminated(_ count: Int, _ text: inout MutableSpan<UInt8>, _ body: (UnsafeMutableBufferPointer<CChar>) -> Void) {
    unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: count + 1) { buffer in
        unsafe buffer.initialize(repeating: 0)
        unsafe body(buffer)
        for index in 0..<count { text[index] = unsafe UInt8(bitPattern: buffer[index]) }
        unsafe sodium_memzero(buffer.baseAddress!, buffer.count)
    }
}

import CSodium

/// Lower-case hexadecimal out, either case in; libsodium's codec, whose time depends on the length only.
public enum Hex {
    /// Writes two ASCII digits a byte to `text`, whose length is twice that of `bytes`.
    public static func encode(_ bytes: Span<UInt8>, into text: inout MutableSpan<UInt8>) {
        precondition(text.count == bytes.count * 2)
        unsafe withTerminated(text.count, &text) { buffer in
            unsafe bytes.withUnsafeBufferPointer { bytes in
                guard let start = bytes.baseAddress else { return }
                _ = unsafe sodium_bin2hex(buffer.baseAddress!, buffer.count, start, bytes.count)
            }
        }
    }

    public static func encode(_ bytes: Span<UInt8>) -> String {
        var text = [UInt8](repeating: 0, count: bytes.count * 2)
        var span = text.mutableSpan
        encode(bytes, into: &span)
        return String(decoding: text, as: UTF8.self)
    }

    /// Reads ASCII digits into `bytes`; false, and `bytes` means nothing, unless `text` is exactly twice as many digits.
    public static func decode(_ text: Span<UInt8>, into bytes: inout MutableSpan<UInt8>) -> Bool {
        guard text.count == bytes.count * 2 else { return false }
        if text.isEmpty { return true }
        return unsafe text.withUnsafeBytes { text in
            unsafe bytes.withUnsafeMutableBufferPointer { bytes in
                unsafe sodium_hex2bin(
                    bytes.baseAddress!, bytes.count, text.baseAddress!.assumingMemoryBound(to: CChar.self), text.count, nil, nil,
                    nil) == 0
            }
        }
    }

    /// For values that are not secret.
    public static func decode(_ text: String) -> [UInt8]? {
        let text = Array(text.utf8)
        var bytes = [UInt8](repeating: 0, count: text.count / 2)
        var span = bytes.mutableSpan
        return decode(text.span, into: &span) ? bytes : nil
    }
}

/// Gives `body` room for `count` characters and the NUL that libsodium's encoders add, copies the characters out and wipes the
/// room.
func withTerminated(_ count: Int, _ text: inout MutableSpan<UInt8>, _ body: (UnsafeMutableBufferPointer<CChar>) -> Void) {
    unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: count + 1) { buffer in
        unsafe buffer.initialize(repeating: 0)
        unsafe body(buffer)
        for index in 0..<count { text[index] = unsafe UInt8(bitPattern: buffer[index]) }
        unsafe sodium_memzero(buffer.baseAddress!, buffer.count)
    }
}

extension ByteStore {
    /// Whether the bytes are `name` in any case. `name` is lower-case letters and hyphens.
    func isToken(_ range: Range<Int>, _ name: StaticString) -> Bool {
        guard range.count == name.utf8CodeUnitCount else { return false }
        return withSpan(range) { $0.isToken(name) }
    }
}

extension UInt8 {
    /// A byte of a header line's name (`tchar` of RFC 9110 section 5.6.2).
    var isTokenByte: Bool {
        self < 128 && (self < 64 ? 0x03FF_6CFA_0000_0000 : 0x57FF_FFFF_C7FF_FFFE) as UInt64 >> UInt64(self & 63) & 1 == 1
    }
}

extension Span<UInt8> {
    /// Whether the bytes are `name` in any case. `name` is lower-case letters and hyphens.
    public func isToken(_ name: StaticString) -> Bool {
        guard count == name.utf8CodeUnitCount else { return false }
        let wanted = unsafe name.utf8Start
        for index in indices where unsafe self[index] | 0x20 != wanted[index] { return false }
        return true
    }

    /// Whether a comma-separated list holds `token` in any case (RFC 9110 section 5.6.1).
    public func listContains(_ token: StaticString) -> Bool {
        var start = 0
        for end in 0...count where end == count || self[end] == UInt8(ascii: ",") {
            var (low, high) = (start, end)
            while low < high, self[low] == 0x20 || self[low] == 0x09 { low += 1 }
            while low < high, self[high - 1] == 0x20 || self[high - 1] == 0x09 { high -= 1 }
            if extracting(low..<high).isToken(token) { return true }
            start = end + 1
        }
        return false
    }
}

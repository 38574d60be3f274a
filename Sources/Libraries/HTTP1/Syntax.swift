extension ByteStore {
    /// Whether the bytes are `name` in any case. `name` is lower-case letters and hyphens.
    func isToken(_ range: Range<Int>, _ name: StaticString) -> Bool {
        guard range.count == name.utf8CodeUnitCount else { return false }
        return withSpan(range) { $0.isToken(name) }
    }
}

extension UInt8 {
    /// The byte as a lower-case ASCII letter if it is an upper-case one.
    public var lowercased: UInt8 { (0x41...0x5A).contains(self) ? self | 0x20 : self }

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

    /// True if a comma-separated list contains `token`, in any case (RFC 9110 section 5.6.1).
    public func listContains(_ token: StaticString) -> Bool { !allElements { !$0.isToken(token) } }

    /// True if a comma-separated list has elements and each is `token`, in any case.
    public func isListOf(_ token: StaticString) -> Bool { listContains(token) && allElements { $0.isToken(token) } }

    /// True if `check` returns true for each element. Empty elements are skipped (RFC 9110 section 5.6.1.2).
    private func allElements(_ check: (Span<UInt8>) -> Bool) -> Bool {
        var start = 0
        for end in 0...count where end == count || self[end] == UInt8(ascii: ",") {
            var (low, high) = (start, end)
            while low < high, self[low] == 0x20 || self[low] == 0x09 { low += 1 }
            while low < high, self[high - 1] == 0x20 || self[high - 1] == 0x09 { high -= 1 }
            if low < high, !check(extracting(low..<high)) { return false }
            start = end + 1
        }
        return true
    }
}

extension Span<UInt8> {
    /// Whether the bytes are empty or a host with an optional port, as in `Host` (RFC 9112 section 3.2, RFC 3986 section 3.2.2). Refuses the
    /// delimiters that RFC 3986 allows in a name (`,` `;` `=` ...): no real host has them.
    public var isAuthority: Bool {
        var index = hostCount
        if index < count, self[index] == UInt8(ascii: ":") {
            index += 1
            while index < count, self[index] &- 0x30 < 10 { index += 1 }
        }
        return index == count
    }

    /// The length of the host at the start: an IPv6 address in brackets, a name or an IPv4 address.
    private var hostCount: Int {
        var index = 0
        if count > 0, self[0] == UInt8(ascii: "[") {
            index = 1
            while index < count, self[index].isIPv6Byte { index += 1 }
            return index > 1 && index < count && self[index] == UInt8(ascii: "]") ? index + 1 : 0
        }
        while index < count {
            if self[index].isNameByte {
                index += 1
            } else if self[index] == UInt8(ascii: "%"), index + 2 < count, self[index + 1].isHexDigit, self[index + 2].isHexDigit
            {
                index += 3
            } else {
                break
            }
        }
        return index
    }
}

extension UInt8 {
    fileprivate var isHexDigit: Bool { self &- 0x30 < 10 || (self | 0x20) &- 0x61 < 6 }
    fileprivate var isIPv6Byte: Bool { isHexDigit || self == UInt8(ascii: ":") || self == UInt8(ascii: ".") }
    fileprivate var isNameByte: Bool {
        switch self {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"): true
        default: false
        }
    }
}

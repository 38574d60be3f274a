extension Span<UInt8> {
    /// Whether the bytes are nothing, or a host and perhaps a port, as `Host` names them (RFC 9112 section 3.2, RFC 3986 section 3.2.2).
    /// The signs that RFC 3986 would allow between the parts of a name (`,` `;` `=` ...) are in no host's name, and are refused.
    public var isAuthority: Bool {
        var index = hostCount
        if index < count, self[index] == UInt8(ascii: ":") {
            index += 1
            while index < count, self[index] &- 0x30 < 10 { index += 1 }
        }
        return index == count
    }

    /// How many bytes at the start can be a host: an IPv6 address in brackets, a name or an IPv4 address.
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

/// Writes one JSON object in the order it is told, as bytes.
struct JSONWriter {
    private(set) var bytes: [UInt8] = [UInt8(ascii: "{")]

    init() { bytes.reserveCapacity(256) }

    private mutating func name(_ name: StaticString) {
        if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
        bytes.append(UInt8(ascii: "\""))
        bytes += name.description.utf8
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
    }

    mutating func add(_ name: StaticString, _ value: String) {
        self.name(name)
        Self.append(value.utf8, to: &bytes)
    }

    /// Bytes that need no escaping, such as base64url.
    mutating func add(_ name: StaticString, plain value: Span<UInt8>) {
        self.name(name)
        bytes.append(UInt8(ascii: "\""))
        for index in value.indices { bytes.append(value[index]) }
        bytes.append(UInt8(ascii: "\""))
    }

    mutating func add(_ name: StaticString, _ value: Int) {
        self.name(name)
        bytes += String(value).utf8
    }

    mutating func add(_ name: StaticString, _ value: Bool) {
        self.name(name)
        bytes += (value ? "true" : "false").utf8
    }

    mutating func add(_ name: StaticString, _ values: [String]) {
        self.name(name)
        bytes.append(UInt8(ascii: "["))
        for (index, value) in values.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            Self.append(value.utf8, to: &bytes)
        }
        bytes.append(UInt8(ascii: "]"))
    }

    private static func append(_ text: String.UTF8View, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        for byte in text {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                bytes.append(UInt8(ascii: "\\"))
                bytes.append(byte)
            case 0x00..<0x20:
                bytes += "\\u00".utf8
                bytes.append("0123456789abcdef".utf8.map(\.self)[Int(byte >> 4)])
                bytes.append("0123456789abcdef".utf8.map(\.self)[Int(byte & 15)])
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// The object, closed.
    consuming func finish() -> [UInt8] {
        bytes.append(UInt8(ascii: "}"))
        return bytes
    }
}

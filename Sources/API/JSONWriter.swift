import Linux

/// Writes one JSON object in the order it is told, as bytes. They may hold a secret, so that no copy of them is left behind, neither on
/// growth nor with a copy of the writer.
struct JSONWriter: ~Copyable {
    private(set) var bytes: [UInt8] = []

    init() {
        // With room for what follows the object in a body.
        bytes.reserveCapacity(256)
        bytes.append(UInt8(ascii: "{"))
    }

    /// Makes room for `more` bytes and the object's end.
    private mutating func reserve(_ more: Int) {
        let needed = bytes.count + more + 2
        guard needed > bytes.capacity else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(max(needed, bytes.capacity * 2))
        larger.append(contentsOf: bytes)
        swap(&bytes, &larger)
        wipe(&larger)
    }

    private mutating func name(_ name: StaticString) {
        reserve(name.utf8CodeUnitCount + 4)
        if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
        bytes.append(UInt8(ascii: "\""))
        bytes += name.description.utf8
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
    }

    mutating func add(_ name: StaticString, _ value: String) {
        self.name(name)
        append(value.utf8)
    }

    /// Bytes that need no escaping, such as base64url.
    mutating func add(_ name: StaticString, plain value: Span<UInt8>) {
        self.name(name)
        reserve(value.count + 2)
        bytes.append(UInt8(ascii: "\""))
        for index in value.indices { bytes.append(value[index]) }
        bytes.append(UInt8(ascii: "\""))
    }

    /// A time in unix ms, as RFC 3339 writes it.
    mutating func add(_ name: StaticString, timeMs: UInt64) {
        self.name(name)
        reserve(26)
        bytes.append(UInt8(ascii: "\""))
        CalendarDate.append(ms: timeMs, to: &bytes)
        bytes.append(UInt8(ascii: "\""))
    }

    mutating func add(_ name: StaticString, _ value: Int) {
        self.name(name)
        append(plain: String(value))
    }

    mutating func add(_ name: StaticString, _ value: Bool) {
        self.name(name)
        append(plain: value ? "true" : "false")
    }

    mutating func add(_ name: StaticString, _ values: [String]) {
        self.name(name)
        append(list: values)
    }

    /// An object of lists, each name once.
    mutating func add(_ name: StaticString, lists: [(name: String, values: [String])]) {
        self.name(name)
        append(plain: "{")
        for (index, list) in lists.enumerated() {
            if index > 0 { append(plain: ",") }
            append(list.name.utf8)
            append(plain: ":")
            append(list: list.values)
        }
        append(plain: "}")
    }

    private mutating func append(list values: [String]) {
        append(plain: "[")
        for (index, value) in values.enumerated() {
            if index > 0 { append(plain: ",") }
            append(value.utf8)
        }
        append(plain: "]")
    }

    /// An array of objects.
    mutating func add<Values: Collection>(
        _ name: StaticString, objects values: Values, _ write: (inout JSONWriter, Values.Element) -> Void
    ) {
        self.name(name)
        append(plain: "[")
        var isFirst = true
        for value in values {
            if !isFirst { append(plain: ",") }
            isFirst = false
            var object = JSONWriter()
            write(&object, value)
            var bytes = object.finish()
            reserve(bytes.count)
            self.bytes += bytes
            wipe(&bytes)
        }
        append(plain: "]")
    }

    private mutating func append(plain text: String) {
        reserve(text.utf8.count)
        bytes += text.utf8
    }

    private static let digits = Array("0123456789abcdef".utf8)

    private mutating func append(_ text: String.UTF8View) {
        // A control character takes six bytes.
        reserve(text.count * 6 + 2)
        bytes.append(UInt8(ascii: "\""))
        for byte in text {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                bytes.append(UInt8(ascii: "\\"))
                bytes.append(byte)
            case 0x00..<0x20:
                bytes += "\\u00".utf8
                bytes.append(Self.digits[Int(byte >> 4)])
                bytes.append(Self.digits[Int(byte & 15)])
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// The object, closed. A line end still fits behind it.
    consuming func finish() -> [UInt8] {
        bytes.append(UInt8(ascii: "}"))
        return bytes
    }
}

import Linux
import Sealing
import Sodium
import Vocabulary

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

    /// A member whose name the configuration chooses.
    mutating func add(member name: String, _ value: String) {
        reserve(1)
        if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
        append(name.utf8)
        reserve(1)
        bytes.append(UInt8(ascii: ":"))
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

    /// A secret in base64url, written in place: an answer that is due must not depend on a free slot.
    mutating func add(_ name: StaticString, _ capability: some Capability) {
        self.name(name)
        let count = Base64.url.encodedCount(capability.secret.count)
        reserve(count + 2)
        bytes.append(UInt8(ascii: "\""))
        let start = bytes.count
        bytes.append(contentsOf: repeatElement(0, count: count))
        var all = bytes.mutableSpan
        var text = all._mutatingExtracting(start..<start + count)
        capability.secret.withBytes { Base64.url.encode($0, into: &text) }
        bytes.append(UInt8(ascii: "\""))
    }

    /// A time in unix ms, as RFC 3339 writes it in whole seconds: decoders of ISO 8601 such as Foundation's take no fraction.
    mutating func add(_ name: StaticString, timeMs: UInt64) {
        self.name(name)
        reserve(22)
        bytes.append(UInt8(ascii: "\""))
        Timestamp.append(timeMs, to: &bytes)
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

    mutating func add(_ name: StaticString, _ write: (inout JSONWriter) -> Void) {
        self.name(name)
        append(write)
    }

    private mutating func append(_ write: (inout JSONWriter) -> Void) {
        var object = JSONWriter()
        write(&object)
        var bytes = object.finish()
        reserve(bytes.count)
        self.bytes += bytes
        wipe(&bytes)
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
            append { write(&$0, value) }
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

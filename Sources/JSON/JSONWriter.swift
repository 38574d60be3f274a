import Linux
import Vocabulary

/// Writes one JSON object in the order it is told, as bytes. They may hold a secret, so no copy of them is left behind, neither on growth nor
/// with a copy of the writer.
public struct JSONWriter: ~Copyable {
    private var bytes: [UInt8] = []

    public init() {
        // With room for what follows the object in a body.
        bytes.reserveCapacity(256)
        bytes.append(UInt8(ascii: "{"))
    }

    /// Makes room for `more` bytes, the ends of objects and a line's end.
    private mutating func reserve(_ more: Int) {
        let needed = bytes.count + more + 2
        guard needed > bytes.capacity else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(max(needed, bytes.capacity * 2))
        larger.append(contentsOf: bytes)
        swap(&bytes, &larger)
        wipe(&larger)
    }

    private mutating func append(plain text: String) {
        reserve(text.utf8.count)
        bytes += text.utf8
    }

    private mutating func append(_ text: String) {
        reserve(JSONString.longest(text))
        JSONString.append(text, to: &bytes)
    }

    /// A comma, unless the object or array has just begun.
    private mutating func separate() {
        let last = bytes[bytes.count - 1]
        if last != UInt8(ascii: "{"), last != UInt8(ascii: "[") { append(plain: ",") }
    }

    private mutating func name(_ name: String) {
        separate()
        append(name)
        append(plain: ":")
    }

    public mutating func add(_ name: String, _ value: String) {
        self.name(name)
        append(value)
    }

    public mutating func add(_ name: String, _ value: some BinaryInteger) {
        self.name(name)
        append(plain: String(value))
    }

    public mutating func add(_ name: String, _ value: Double) {
        self.name(name)
        append(plain: "\(value)")
    }

    public mutating func add(_ name: String, _ value: Bool) {
        self.name(name)
        append(plain: value ? "true" : "false")
    }

    public mutating func add(_ name: String, orNull value: String?) {
        self.name(name)
        if let value { append(value) } else { append(plain: "null") }
    }

    public mutating func add(_ name: String, orNull value: (some BinaryInteger)?) {
        self.name(name)
        append(plain: value.map { String($0) } ?? "null")
    }

    /// A time in unix ms, as RFC 3339 writes it in whole seconds: decoders of ISO 8601 such as Foundation's take no fraction.
    public mutating func add(_ name: String, timeMs: UInt64) { add(name, Timestamp.text(timeMs)) }

    /// Bytes that need no escaping, such as base64url.
    public mutating func add(_ name: String, plain value: Span<UInt8>) {
        add(name, count: value.count) { text in
            for index in value.indices { text[index] = value[index] }
        }
    }

    /// A string of `count` bytes that need no escaping, which `fill` writes in place: a secret is in no other buffer.
    public mutating func add(_ name: String, count: Int, _ fill: (inout MutableSpan<UInt8>) -> Void) {
        self.name(name)
        reserve(count + 2)
        bytes.append(UInt8(ascii: "\""))
        let start = bytes.count
        bytes.append(contentsOf: repeatElement(0, count: count))
        var all = bytes.mutableSpan
        var text = all._mutatingExtracting(start..<start + count)
        fill(&text)
        bytes.append(UInt8(ascii: "\""))
    }

    /// An array of strings.
    public mutating func add(_ name: String, _ values: [String]) {
        self.name(name)
        append(plain: "[")
        for value in values {
            separate()
            append(value)
        }
        append(plain: "]")
    }

    /// A value that is JSON already.
    public mutating func add(_ name: String, encoded value: [UInt8]) {
        self.name(name)
        reserve(value.count)
        bytes += value
    }

    /// An object.
    public mutating func add(_ name: String, _ write: (inout JSONWriter) -> Void) {
        self.name(name)
        append(write)
    }

    /// An array of objects.
    public mutating func add<Values: Sequence>(
        _ name: String, objects values: Values, _ write: (inout JSONWriter, Values.Element) -> Void
    ) {
        self.name(name)
        append(plain: "[")
        for value in values {
            separate()
            append { write(&$0, value) }
        }
        append(plain: "]")
    }

    private mutating func append(_ write: (inout JSONWriter) -> Void) {
        append(plain: "{")
        write(&self)
        append(plain: "}")
    }

    /// The object, closed. A line end still fits behind it.
    public consuming func finish() -> [UInt8] {
        bytes.append(UInt8(ascii: "}"))
        return bytes
    }
}

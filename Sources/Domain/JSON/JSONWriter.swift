import Linux
import Vocabulary

/// Writes a JSON object member by member. The bytes may hold a secret, so growth leaves no copy behind, and the writer can't be copied.
public struct JSONWriter: ~Copyable {
    private var bytes: [UInt8] = []

    public init() {
        // Room for short objects.
        bytes.reserveCapacity(256)
        bytes.append(UInt8(ascii: "{"))
    }

    /// Makes room for `more` bytes plus a closing brace and a newline.
    private mutating func reserve(_ more: Int) {
        bytes.reserveWiping(more + 2)
    }

    private mutating func append(plain text: String) {
        reserve(text.utf8.count)
        bytes += text.utf8
    }

    private mutating func append(_ text: String) {
        reserve(JSONString.longest(text))
        JSONString.append(text, to: &bytes)
    }

    /// Appends a comma unless the object or array has just begun.
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

    /// Adds a time in unix ms as RFC 3339 text in whole seconds. Some ISO 8601 decoders, such as Foundation's, don't accept fractions.
    public mutating func add(_ name: String, timeMs: UInt64) { add(name, Timestamp.text(timeMs)) }

    /// Adds bytes that need no escaping, such as base64url.
    public mutating func add(_ name: String, plain value: Span<UInt8>) {
        add(name, count: value.count) { text in
            for index in value.indices { text[index] = value[index] }
        }
    }

    /// Adds a string of `count` bytes that need no escaping. `fill` writes it in place, so that no other buffer holds a secret.
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

    /// Adds an array of strings.
    public mutating func add(_ name: String, _ values: [String]) {
        self.name(name)
        append(plain: "[")
        for value in values {
            separate()
            append(value)
        }
        append(plain: "]")
    }

    /// Adds a value that is encoded already.
    public mutating func add(_ name: String, encoded value: [UInt8]) {
        self.name(name)
        reserve(value.count)
        bytes += value
    }

    /// Adds an object.
    public mutating func add(_ name: String, _ write: (inout JSONWriter) -> Void) {
        self.name(name)
        append(write)
    }

    /// Adds an array of objects.
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

    /// Returns the closed object. A newline still fits in its capacity.
    public consuming func finish() -> [UInt8] {
        bytes.append(UInt8(ascii: "}"))
        return bytes
    }
}

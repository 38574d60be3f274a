import Vocabulary

/// Writes the members of an entry in the order of its keys, and its op where it belongs.
struct EntryWriter {
    private let op: OpName
    /// The least key that may follow.
    private var next: UInt8 = 0

    init(_ op: OpName) { self.op = op }

    /// Begins a member.
    /// - Precondition: the keys are sorted.
    @inline(__always)
    private mutating func begin(_ key: EntryFields.Key, _ json: inout [UInt8]) {
        precondition(key.rawValue >= next, "an entry's keys are sorted")
        let op = EntryFields.Key.op.rawValue
        if next <= op, key.rawValue > op { addOp(&json) }
        if next > 0 { json.append(UInt8(ascii: ",")) }
        json += EntryFields.Key.names[Int(key.rawValue)]
        next = key.rawValue + 1
    }

    private func addOp(_ json: inout [UInt8]) {
        json.append(",\"op\":\"")
        json += op.name
        json.append(UInt8(ascii: "\""))
    }

    func end(_ json: inout [UInt8]) {
        if next <= EntryFields.Key.op.rawValue { addOp(&json) }
        json.append(UInt8(ascii: "}"))
    }

    mutating func add(_ key: EntryFields.Key, _ number: UInt64, to json: inout [UInt8]) {
        begin(key, &json)
        json.append(decimal: number)
    }

    mutating func add(_ key: EntryFields.Key, _ text: EntryText, to json: inout [UInt8]) {
        add(key, choice: text.description, to: &json)
    }

    mutating func add(_ key: EntryFields.Key, choice text: String, to json: inout [UInt8]) {
        quote(key, &json) { $0.append(contentsOf: text.utf8) }
    }

    mutating func add(_ key: EntryFields.Key, time: UInt64, to json: inout [UInt8]) {
        quote(key, &json) { $0.append(timeMs: time) }
    }
    mutating func add(_ key: EntryFields.Key, _ id: some OpaqueID, to json: inout [UInt8]) {
        quote(key, &json) { $0.append(hexOf: id) }
    }
    mutating func add(_ key: EntryFields.Key, _ digest: Digest, to json: inout [UInt8]) {
        quote(key, &json) { $0.append(hexOf: digest) }
    }

    @inline(__always)
    private mutating func quote(_ key: EntryFields.Key, _ json: inout [UInt8], _ value: (inout [UInt8]) -> Void) {
        begin(key, &json)
        json.append(UInt8(ascii: "\""))
        value(&json)
        json.append(UInt8(ascii: "\""))
    }
}

extension [UInt8] {
    @inline(__always)
    mutating func append(_ text: String) { append(contentsOf: text.utf8) }

    /// Appends a time in RFC 3339, to the second.
    /// - Precondition: the time is before the year 10000.
    @inline(__always)
    mutating func append(timeMs: UInt64) {
        precondition(timeMs < Timestamp.endMs, "a time beyond year 9999")
        Timestamp.append(timeMs, to: &self)
    }

    mutating func append(decimal number: UInt64) {
        var power: UInt64 = 1
        while number / power >= 10 { power *= 10 }
        while power > 0 {
            append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / power % 10))
            power /= 10
        }
    }

    mutating func append(hexOf id: some OpaqueID) {
        Hex.append(id.high, to: &self)
        Hex.append(id.low, to: &self)
    }

    mutating func append(hexOf digest: Digest) {
        Hex.append(digest.first, to: &self)
        Hex.append(digest.second, to: &self)
        Hex.append(digest.third, to: &self)
        Hex.append(digest.fourth, to: &self)
    }
}

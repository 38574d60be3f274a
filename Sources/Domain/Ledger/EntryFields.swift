import Vocabulary

/// A parsed entry. It is read and checked in one pass, without a `String` or an allocation.
///
/// Only canonical bytes are accepted: sorted keys, and one spelling for each value. An accepted entry encodes to the same bytes.
struct EntryFields {
    /// The keys, in the order of an entry.
    enum Key: UInt8, CaseIterable {
        case at, binary, cause, count, ended, epoch, expired, generation, id, job, jobs, live, name, next, node, op, policy,
            previous, reason, resolution, root, sealed, size, status, swept, template, until, version

        var bit: UInt32 { 1 << UInt32(rawValue) }
        /// Each as `"key":`.
        static let names = allCases.map { Array("\"\($0)\":".utf8) }
    }

    var op = OpName.brokerStarted
    var atMs: UInt64 = 0
    var untilMs: UInt64 = 0
    var id = EntryID(0)
    var job = JobID(0)
    /// Count, epoch, generation, live, resolution, sealed, size or status. No op has two of them.
    var number: UInt64 = 0
    /// Ended, jobs or swept. No op has two of them.
    var second: UInt64 = 0
    var expired: UInt64 = 0
    /// True if the entry has `until`. Among purges, only those of expired tokens have it.
    var hasUntil: Bool { present & Key.until.bit != 0 }
    /// Name, next, node, previous or template. No op has two of them.
    var text = 0..<0
    var version = 0..<0
    /// The 64 hexadecimal digits of the policy's digest.
    var policy = 0..<0
    /// The 64 hexadecimal digits of `binary` or `root`.
    var digest = 0..<0
    /// Cause or reason.
    var choice = 0..<0
    private var present: UInt32 = 0

    init(_ bytes: Span<UInt8>) throws(EntryError) {
        var scanner = EntryScanner()
        try scanner.expect("{", in: bytes)
        var next: UInt8 = 0
        var opRange = 0..<0
        repeat {
            let start = scanner.position
            guard let key = scanner.key(from: next, in: bytes) else { throw .key(position: start) }
            next = key.rawValue + 1
            present |= key.bit
            let value = scanner.position
            switch key {
            case .at: atMs = try scanner.time(in: bytes)
            case .until: untilMs = try scanner.time(in: bytes)
            case .id: id = try scanner.id(in: bytes)
            case .job: job = try scanner.id(in: bytes)
            case .count, .generation: number = try scanner.number(upTo: UInt64(UInt32.max), in: bytes)
            case .epoch, .sealed, .size: number = try scanner.number(upTo: Entry.numberLimit, in: bytes)
            case .live:
                number = try scanner.number(upTo: Entry.numberLimit, in: bytes)
                guard number > 0 else { throw .value(position: value) }
            case .ended, .jobs, .swept: second = try scanner.number(upTo: Entry.numberLimit, in: bytes)
            case .expired: expired = try scanner.number(upTo: Entry.numberLimit, in: bytes)
            case .resolution:
                number = try scanner.number(upTo: Entry.resolutionLimit, in: bytes)
                guard number > 0 else { throw .value(position: value) }
            case .status: number = try scanner.number(upTo: 999, in: bytes)
            case .name, .next, .node, .previous, .template: text = try scanner.text(in: bytes)
            case .version: version = try scanner.text(in: bytes)
            case .cause, .reason: choice = try scanner.text(in: bytes)
            case .op:
                opRange = try scanner.text(in: bytes)
                guard let name = OpName(bytes, opRange) else { throw .unknownOp(position: value) }
                op = name
            case .policy: policy = try scanner.digest(in: bytes)
            case .binary, .root: digest = try scanner.digest(in: bytes)
            }
        } while scanner.skip(",", in: bytes)
        try scanner.expect("}", in: bytes)
        guard scanner.position == bytes.count else { throw .syntax(position: scanner.position) }
        let keys = op.keys | (op == .tokenPurged && bytes.matches(Self.expiredName, at: choice) ? Key.until.bit : 0)
        guard !opRange.isEmpty, present == keys else {
            throw .keys(op: opRange.isEmpty ? "an entry" : String(decoding: op.name, as: UTF8.self))
        }
        guard op.allows(choice, in: bytes) else { throw .value(position: choice.lowerBound) }
    }

    private static let expiredName = Array("expired".utf8)
}

extension Entry {
    /// Every JSON reader represents numbers up to this exactly.
    fileprivate static let numberLimit: UInt64 = 1 << 53 - 1
    /// The longest window, in seconds.
    static let resolutionLimit: UInt64 = 60
}

/// Reads the parts of a canonical entry in order. A span can't be stored, so each call passes the bytes.
private struct EntryScanner {
    private(set) var position = 0

    /// Reads `"key":`. Returns nil unless the key is `first` or a later one.
    mutating func key(from first: UInt8, in bytes: Span<UInt8>) -> EntryFields.Key? {
        for index in Int(first)..<EntryFields.Key.names.count {
            let text = EntryFields.Key.names[index]
            let end = position + text.count
            if end <= bytes.count, bytes.matches(text, at: position..<end) {
                position = end
                return EntryFields.Key(rawValue: UInt8(index))
            }
        }
        return nil
    }

    mutating func expect(_ mark: Unicode.Scalar, in bytes: Span<UInt8>) throws(EntryError) {
        guard skip(mark, in: bytes) else { throw .syntax(position: position) }
    }

    mutating func skip(_ mark: Unicode.Scalar, in bytes: Span<UInt8>) -> Bool {
        guard position < bytes.count, bytes[position] == UInt8(ascii: mark) else { return false }
        position += 1
        return true
    }

    /// Reads a string of 1 to 128 characters that `EntryText` allows. Returns its range without the quotes.
    mutating func text(in bytes: Span<UInt8>) throws(EntryError) -> Range<Int> {
        try expect("\"", in: bytes)
        let start = position
        while position < bytes.count, EntryText.allows(bytes[position]) { position += 1 }
        let range = start..<position
        guard (1...EntryText.limit).contains(range.count) else { throw .value(position: start) }
        try expect("\"", in: bytes)
        return range
    }

    mutating func time(in bytes: Span<UInt8>) throws(EntryError) -> UInt64 {
        try expect("\"", in: bytes)
        guard let time = Timestamp.parse(bytes, at: position) else { throw .value(position: position) }
        position += Timestamp.count
        try expect("\"", in: bytes)
        return time
    }

    mutating func id<ID: OpaqueID>(in bytes: Span<UInt8>) throws(EntryError) -> ID {
        try expect("\"", in: bytes)
        let end = position + 2 * ID.count
        guard end <= bytes.count, let id = ID(hex: bytes.extracting(position..<end)) else {
            throw .value(position: position)
        }
        position = end
        try expect("\"", in: bytes)
        return id
    }

    /// Returns the range of a digest's 64 digits, without the quotes.
    mutating func digest(in bytes: Span<UInt8>) throws(EntryError) -> Range<Int> {
        let start = position
        let range = try text(in: bytes)
        guard Digest(hex: bytes.extracting(range)) != nil else { throw .value(position: start) }
        return range
    }

    /// Reads decimal digits without a leading zero.
    mutating func number(upTo limit: UInt64, in bytes: Span<UInt8>) throws(EntryError) -> UInt64 {
        let start = position
        var number: UInt64 = 0
        while position < bytes.count, case let digit = bytes[position] &- UInt8(ascii: "0"), digit < 10 {
            guard position == start || number > 0 else { throw .value(position: start) }
            number = number * 10 + UInt64(digit)
            guard number <= limit else { throw .value(position: start) }
            position += 1
        }
        guard position > start else { throw .value(position: start) }
        return number
    }
}

/// Why bytes are not a valid entry. Positions are byte offsets in the entry.
public enum EntryError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Not canonical JSON: another structure, a space, an escape, or text after the end.
    case syntax(position: Int)
    /// A key that is unknown, repeated or out of order.
    case key(position: Int)
    /// A value of the wrong kind, out of range, or not in its canonical spelling.
    case value(position: Int)
    /// An unknown event.
    case unknownOp(position: Int)
    /// The event has missing or extra keys.
    case keys(op: String)

    public var description: String {
        switch self {
        case .syntax(let position): "not canonical JSON at byte \(position)"
        case .key(let position): "a key that is unknown, repeated or out of order at byte \(position)"
        case .value(let position): "a value that is invalid or not canonical at byte \(position)"
        case .unknownOp(let position): "an unknown op at byte \(position)"
        case .keys(let op): "\(op) with missing or extra keys"
        }
    }
}

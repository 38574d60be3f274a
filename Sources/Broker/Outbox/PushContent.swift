import Policy
import Vocabulary

/// The content of a push to an audience. It is sealed in its job, or in an activity whose window is still closed.
struct PushContent: Sendable, Equatable {
    var template: String
    /// When the event happened, unix ms.
    var stampMs: UInt64
    /// Pushes with the same handle replace each other.
    var collapse: Handle
    var fields: [String: FieldValue]

    /// `stamp u64be || collapse[16] || template || count u8 || (name || kind u8 || value)...`, texts behind their length in one byte.
    var encoded: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: stampMs)
        bytes.append(collapse)
        Self.append(template, to: &bytes)
        bytes.append(UInt8(clamping: fields.count))
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) {
            Self.append(name, to: &bytes)
            switch value {
            case .handle(let handle):
                bytes.append(1)
                bytes.append(handle)
            case .choice(let word):
                bytes.append(2)
                Self.append(word, to: &bytes)
            case .number(let number):
                bytes.append(3)
                bytes.append(bigEndian: Int64(number))
            case .flag(let flag): bytes += [4, flag ? 1 : 0]
            }
        }
        return bytes
    }

    init(template: String, stampMs: UInt64, collapse: Handle, fields: [String: FieldValue]) {
        self.template = template
        self.stampMs = stampMs
        self.collapse = collapse
        self.fields = fields
    }

    /// Returns nil if `encoded` did not write these bytes.
    init?(_ bytes: [UInt8]) {
        var rest = bytes[...]
        guard let stamp = Self.number(&rest), let collapse = Self.handle(&rest), let template = Self.text(&rest),
            let count = rest.popFirst()
        else { return nil }
        (stampMs, self.collapse, self.template, fields) = (stamp, collapse, template, [:])
        for _ in 0..<count {
            guard let name = Self.text(&rest), let kind = rest.popFirst() else { return nil }
            switch kind {
            case 1:
                guard let handle = Self.handle(&rest) else { return nil }
                fields[name] = .handle(handle)
            case 2:
                guard let word = Self.text(&rest) else { return nil }
                fields[name] = .choice(word)
            case 3:
                guard let number = Self.number(&rest) else { return nil }
                fields[name] = .number(Int(Int64(bitPattern: number)))
            case 4:
                guard let flag = rest.popFirst() else { return nil }
                fields[name] = .flag(flag != 0)
            default: return nil
            }
        }
        guard rest.isEmpty else { return nil }
    }

    private static func append(_ text: String, to bytes: inout [UInt8]) {
        precondition(text.utf8.count < 256)
        bytes.append(UInt8(text.utf8.count))
        bytes += text.utf8
    }

    private static func take(_ count: Int, from rest: inout ArraySlice<UInt8>) -> [UInt8]? {
        guard rest.count >= count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    private static func handle(_ rest: inout ArraySlice<UInt8>) -> Handle? {
        take(Handle.count, from: &rest).flatMap { Handle(bytes: $0.span) }
    }

    private static func text(_ rest: inout ArraySlice<UInt8>) -> String? {
        guard let count = rest.popFirst(), let bytes = take(Int(count), from: &rest) else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func number(_ rest: inout ArraySlice<UInt8>) -> UInt64? {
        take(8, from: &rest)?.reduce(0) { $0 << 8 | UInt64($1) }
    }
}

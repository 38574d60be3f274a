/// An entry as it lies in its bytes: read and checked in one pass, without a `String` or an allocation.
///
/// Only canonical bytes are read: each key in its place, each value in its one spelling, so that what is read encodes to the same bytes.
struct EntryFields {
    /// The keys, in the order in which they stand.
    enum Key: UInt8, CaseIterable {
        case at, cause, count, epoch, generation, job, kind, name, next, node, op, policy, reason, ref, resolution, status,
            template,
            until, version

        var bit: UInt32 { 1 << UInt32(rawValue) }
    }

    var op = OpName.brokerStarted
    var atMs: UInt64 = 0
    var untilMs: UInt64 = 0
    var ref = OpaqueID(0)
    var job = OpaqueID(0)
    /// Count, epoch, generation, resolution or status: no op has two of them.
    var number: UInt64 = 0
    /// Name, next, node or template: no op has two of them.
    var text = 0..<0
    var version = 0..<0
    /// The 64 digits of the policy's digest.
    var policy = 0..<0
    /// Cause, kind or reason; checked against the op's own list.
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
            case .ref: ref = try scanner.id(in: bytes)
            case .job: job = try scanner.id(in: bytes)
            case .count: number = try scanner.number(upTo: UInt64(UInt32.max), in: bytes)
            case .generation: number = try scanner.number(upTo: UInt64(UInt32.max), in: bytes)
            case .epoch: number = try scanner.number(upTo: Entry.epochLimit, in: bytes)
            case .resolution:
                number = try scanner.number(upTo: Entry.resolutionLimit, in: bytes)
                guard number > 0 else { throw .value(position: value) }
            case .status: number = try scanner.number(upTo: 999, in: bytes)
            case .name, .next, .node, .template: text = try scanner.text(in: bytes)
            case .version: version = try scanner.text(in: bytes)
            case .cause, .kind, .reason: choice = try scanner.text(in: bytes)
            case .op:
                opRange = try scanner.text(in: bytes)
                guard let name = OpName(bytes, opRange) else { throw .unknownOp(position: value) }
                op = name
            case .policy:
                policy = try scanner.text(in: bytes)
                guard Digest(hex: bytes.extracting(policy)) != nil else { throw .value(position: value) }
            }
        } while scanner.skip(",", in: bytes)
        try scanner.expect("}", in: bytes)
        guard scanner.position == bytes.count else { throw .syntax(position: scanner.position) }
        guard !opRange.isEmpty, present == op.keys else { throw .keys(op: opRange.isEmpty ? "an entry" : op.rawValue) }
        guard op.allows(choice, in: bytes) else { throw .value(position: choice.lowerBound) }
        guard op != .tokenSealed || atMs < untilMs else { throw .ended }
    }
}

extension Entry {
    /// Any number up to this is exact in every JSON reader.
    static let epochLimit: UInt64 = 1 << 53 - 1
    /// The longest window, in seconds. A longer one would excuse for as long what is late.
    static let resolutionLimit: UInt64 = 3_600

    /// Reads canonical bytes, and nothing else: what it accepts encodes to the same bytes.
    public init(canonical bytes: Span<UInt8>) throws(EntryError) {
        let fields = try EntryFields(bytes)
        func text(_ range: Range<Int>) -> String {
            let part = bytes.extracting(range)
            return String(decoding: part.indices.map { part[$0] }, as: UTF8.self)
        }
        // EntryFields has checked each part against the rules of its type.
        func name(_ range: Range<Int>) -> EntryText { EntryText(text(range))! }
        func choice<Choice: RawRepresentable<String>>() -> Choice { Choice(rawValue: text(fields.choice))! }
        func policy() -> Digest { Digest(hex: bytes.extracting(fields.policy))! }
        let op: Op =
            switch fields.op {
            case .brokerStarted:
                .brokerStarted(
                    node: name(fields.text), version: name(fields.version), policy: policy(),
                    resolutionSeconds: UInt32(fields.number))
            case .brokerStopped: .brokerStopped(node: name(fields.text))
            case .policyLoaded: .policyLoaded(name: name(fields.text), policy: policy())
            case .keysGenerated: .keysGenerated(generation: UInt32(fields.number))
            case .keysRatcheted: .keysRatcheted(epoch: fields.number)
            case .tokenSealed: .tokenSealed(ref: fields.ref, kind: choice(), untilMs: fields.untilMs)
            case .tokenOpened: .tokenOpened(ref: fields.ref, job: fields.job, template: name(fields.text))
            case .pushDelivered: .pushDelivered(ref: fields.ref, job: fields.job, status: UInt16(fields.number))
            case .pushFailed: .pushFailed(ref: fields.ref, job: fields.job, status: UInt16(fields.number), reason: choice())
            case .tokenPurged: .tokenPurged(ref: fields.ref, cause: choice())
            case .requestRefused: .requestRefused(cause: choice(), count: UInt32(fields.number))
            case .ledgerClosed: .ledgerClosed(next: name(fields.text))
            }
        self.init(atMs: fields.atMs, op)
    }
}

import Vocabulary

/// A parsed entry: read and checked in one pass, without a `String` or an allocation.
///
/// Only canonical bytes are read: each key in its place, each value in its one spelling, so that what is read encodes to the same bytes.
struct EntryFields {
    /// The keys, in the order in which they stand.
    enum Key: UInt8, CaseIterable {
        case at, binary, cause, count, ended, epoch, expired, generation, id, job, jobs, live, name, next, node, op, policy,
            previous, reason, resolution, root, sealed, size, status, swept, template, until, version

        var bit: UInt32 { 1 << UInt32(rawValue) }
    }

    var op = OpName.brokerStarted
    var atMs: UInt64 = 0
    var untilMs: UInt64 = 0
    var id = EntryID(0)
    var job = JobID(0)
    /// Count, epoch, generation, live, resolution, sealed, size or status: no op has two of them.
    var number: UInt64 = 0
    /// Ended, jobs or swept: no op has two of them.
    var second: UInt64 = 0
    var expired: UInt64 = 0
    /// True if the entry has `until`. Of purges, only those of expired tokens have one.
    var hasUntil: Bool { present & Key.until.bit != 0 }
    /// Name, next, node, previous or template: no op has two of them.
    var text = 0..<0
    var version = 0..<0
    /// The 64 digits of the policy's digest.
    var policy = 0..<0
    /// The 64 digits of `binary` or `root`.
    var digest = 0..<0
    /// Cause or reason; checked against the op's own list.
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
        guard !opRange.isEmpty, present == keys else { throw .keys(op: opRange.isEmpty ? "an entry" : op.rawValue) }
        guard op.allows(choice, in: bytes) else { throw .value(position: choice.lowerBound) }
    }

    private static let expiredName = Array("expired".utf8)
}

extension Entry {
    /// Any number up to this is exact in every JSON reader.
    static let numberLimit: UInt64 = 1 << 53 - 1
    /// The longest window, in seconds.
    static let resolutionLimit: UInt64 = 60

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
        func digest(_ range: Range<Int>) -> Digest { Digest(hex: bytes.extracting(range))! }
        let op: Op =
            switch fields.op {
            case .brokerStarted:
                .brokerStarted(
                    node: name(fields.text), version: name(fields.version), policy: digest(fields.policy),
                    resolutionSeconds: UInt32(fields.number), binary: digest(fields.digest))
            case .brokerStopped: .brokerStopped(node: name(fields.text))
            case .policyLoaded: .policyLoaded(name: name(fields.text), policy: digest(fields.policy))
            case .keysGenerated: .keysGenerated(generation: UInt32(fields.number))
            case .keysRatcheted: .keysRatcheted(epoch: fields.number, swept: fields.second)
            case .tokenOpened: .tokenOpened(id: fields.id, job: fields.job, template: name(fields.text))
            case .pushDelivered: .pushDelivered(job: fields.job, status: UInt16(fields.number))
            case .pushFailed: .pushFailed(job: fields.job, status: UInt16(fields.number), reason: choice())
            case .tokenSealed: .tokenSealed(id: fields.id, untilMs: fields.untilMs)
            case .tokenPurged:
                .tokenPurged(
                    id: fields.id,
                    cause: fields.hasUntil
                        ? .expired(untilMs: fields.untilMs) : text(fields.choice) == "ended" ? .ended : .policy)
            case .bucketClosed:
                .bucketClosed(
                    untilMs: fields.untilMs, sealed: fields.number, expired: fields.expired, ended: fields.second)
            case .requestRefused: .requestRefused(cause: choice(), count: UInt32(fields.number))
            case .ledgerClosed: .ledgerClosed(next: name(fields.text))
            case .ledgerOpened:
                .ledgerOpened(
                    previous: name(fields.text), size: fields.number, root: digest(fields.digest), jobs: fields.second)
            case .bucketCarried: .bucketCarried(untilMs: fields.untilMs, live: fields.number)
            }
        self.init(atMs: fields.atMs, op)
    }
}

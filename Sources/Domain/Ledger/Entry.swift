import Sodium
public import Vocabulary

/// One event in the ledger. Its fields are a closed list: none can hold a token, ref, room, code, client, user or address.
public struct Entry: Sendable, Hashable {
    /// Start of the window, unix ms. The log has it to the second.
    public var atMs: UInt64
    public var op: Op

    public init(atMs: UInt64, _ op: Op) {
        self.atMs = atMs
        self.op = op
    }

    /// What happened. Times are unix ms, and the log has them to the second.
    ///
    /// `untilMs` identifies a bucket: the end of the policy's day in which the token expires.
    public enum Op: Sendable, Hashable {
        /// - `policy`: digest of the rooms policy in force, which sets the ledger's timing.
        /// - `resolutionSeconds`: length of a window.
        /// - `binary`: SHA-256 of the program.
        case brokerStarted(node: EntryText, version: EntryText, policy: Digest, resolutionSeconds: UInt32, binary: Digest)
        case brokerStopped(node: EntryText)
        /// `policy`: SHA-256 of the policy, and its file's name in `policies/`.
        case policyLoaded(name: EntryText, policy: Digest)
        case keysGenerated(generation: UInt32)
        /// The keys of `epoch` and all earlier epochs are destroyed. Everything due before the epoch `swept` is purged.
        case keysRatcheted(epoch: UInt64, swept: UInt64)
        case tokenOpened(id: EntryID, job: JobID, template: EntryText)
        /// `status`: the push service's HTTP status, as recorded (see `WebPushAnswer`).
        case pushDelivered(job: JobID, status: UInt16)
        /// `status`: the push service's HTTP status, as recorded (see `WebPushAnswer`). 0 without an answer.
        case pushFailed(job: JobID, status: UInt16, reason: PushReason)
        case tokenSealed(id: EntryID, untilMs: UInt64)
        case tokenPurged(id: EntryID, cause: PurgeCause)
        /// The totals that this log published for a bucket. `ended` counts all purges except expiries.
        case bucketClosed(untilMs: UInt64, sealed: UInt64, expired: UInt64, ended: UInt64)
        /// `count`: rounded. A run of a broker writes at most one for a cause in a window.
        case requestRefused(cause: RefusalCause, count: UInt32)
        /// `next`: the origin of the log that follows.
        case ledgerClosed(next: EntryText)
        /// The first entry of a log that continues another, whose final head is `size` and `root`. `jobs` counts its open pushes.
        case ledgerOpened(previous: EntryText, size: UInt64, root: Digest, jobs: UInt64)
        /// The number of live tokens in a bucket of the previous log.
        case bucketCarried(untilMs: UInt64, live: UInt64)
    }

    public enum RefusalCause: String, Sendable, CaseIterable {
        case malformed, unauthorized, forbidden, conflict, throttled, unavailable, other
        case notFound = "not_found"
        case tooLarge = "too_large"
    }
}

extension Entry.Op {
    /// The position among the entries of one window: see `OpName.rank`.
    public var rank: UInt8 { name.rank }

    /// Orders the entries of one rank: 16 bytes of an id or job, or the end of a bucket as 8 big-endian bytes of seconds. Empty if entries
    /// keep the order in which they were recorded.
    public var sortKey: [UInt8] {
        switch self {
        case .tokenOpened(let id, _, _), .tokenSealed(let id, _), .tokenPurged(let id, _): id.bytes
        case .pushDelivered(let job, _), .pushFailed(let job, _, _): job.bytes
        case .bucketClosed(let untilMs, _, _, _): [UInt8](bigEndian: untilMs / 1000)
        default: []
        }
    }

    var name: OpName {
        switch self {
        case .brokerStarted: .brokerStarted
        case .brokerStopped: .brokerStopped
        case .policyLoaded: .policyLoaded
        case .keysGenerated: .keysGenerated
        case .keysRatcheted: .keysRatcheted
        case .tokenOpened: .tokenOpened
        case .pushDelivered: .pushDelivered
        case .pushFailed: .pushFailed
        case .tokenSealed: .tokenSealed
        case .tokenPurged: .tokenPurged
        case .bucketClosed: .bucketClosed
        case .requestRefused: .requestRefused
        case .ledgerClosed: .ledgerClosed
        case .ledgerOpened: .ledgerOpened
        case .bucketCarried: .bucketCarried
        }
    }
}

extension Entry {
    /// The entry's canonical encoding: ASCII JSON with sorted keys and no spaces. `audit/entry.schema.json` describes it.
    public var encoded: [UInt8] {
        var json: [UInt8] = []
        json.reserveCapacity(192)
        encode(into: &json)
        return json
    }

    /// Appends `encoded`.
    public func encode(into json: inout [UInt8]) {
        json.append(UInt8(ascii: "{"))
        var writer = EntryWriter(op.name)
        writer.add(.at, time: atMs, to: &json)
        switch op {
        case .brokerStarted(let node, let version, let policy, let resolution, let binary):
            writer.add(.binary, binary, to: &json)
            writer.add(.node, node, to: &json)
            writer.add(.policy, policy, to: &json)
            writer.add(.resolution, UInt64(resolution), to: &json)
            writer.add(.version, version, to: &json)
        case .brokerStopped(let node): writer.add(.node, node, to: &json)
        case .policyLoaded(let name, let policy):
            writer.add(.name, name, to: &json)
            writer.add(.policy, policy, to: &json)
        case .keysGenerated(let generation): writer.add(.generation, UInt64(generation), to: &json)
        case .keysRatcheted(let epoch, let swept):
            writer.add(.epoch, epoch, to: &json)
            writer.add(.swept, swept, to: &json)
        case .tokenOpened(let id, let job, let template):
            writer.add(.id, id, to: &json)
            writer.add(.job, job, to: &json)
            writer.add(.template, template, to: &json)
        case .pushDelivered(let job, let status):
            writer.add(.job, job, to: &json)
            writer.add(.status, UInt64(status), to: &json)
        case .pushFailed(let job, let status, let reason):
            writer.add(.job, job, to: &json)
            writer.add(.reason, choice: reason.rawValue, to: &json)
            writer.add(.status, UInt64(status), to: &json)
        case .tokenSealed(let id, let untilMs):
            writer.add(.id, id, to: &json)
            writer.add(.until, time: untilMs, to: &json)
        case .tokenPurged(let id, let cause):
            writer.add(.cause, choice: cause.name, to: &json)
            writer.add(.id, id, to: &json)
            if case .expired(let untilMs) = cause { writer.add(.until, time: untilMs, to: &json) }
        case .bucketClosed(let untilMs, let sealed, let expired, let ended):
            writer.add(.ended, ended, to: &json)
            writer.add(.expired, expired, to: &json)
            writer.add(.sealed, sealed, to: &json)
            writer.add(.until, time: untilMs, to: &json)
        case .requestRefused(let cause, let count):
            writer.add(.cause, choice: cause.rawValue, to: &json)
            writer.add(.count, UInt64(count), to: &json)
        case .ledgerClosed(let next): writer.add(.next, next, to: &json)
        case .ledgerOpened(let previous, let size, let root, let jobs):
            writer.add(.jobs, jobs, to: &json)
            writer.add(.previous, previous, to: &json)
            writer.add(.root, root, to: &json)
            writer.add(.size, size, to: &json)
        case .bucketCarried(let untilMs, let live):
            writer.add(.live, live, to: &json)
            writer.add(.until, time: untilMs, to: &json)
        }
        writer.end(&json)
    }
}

extension Entry {
    /// Reads canonical bytes. An accepted entry encodes to the same bytes.
    public init(canonical bytes: Span<UInt8>) throws(EntryError) {
        let fields = try EntryFields(bytes)
        func text(_ range: Range<Int>) -> String {
            let part = bytes.extracting(range)
            return String(decoding: part.indices.map { part[$0] }, as: UTF8.self)
        }
        // `EntryFields` has checked each part against the rules of its type.
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

extension Entry {
    /// The entry as one line of text for people. Times are starts of windows.
    public var sentence: String {
        let at = Timestamp.text(atMs)
        return switch op {
        case .brokerStarted(let node, let version, _, let resolution, let binary):
            "the broker \(node), version \(version), program \(binary.hex), started at \(at), with windows of \(resolution) s"
        case .brokerStopped(let node): "the broker \(node) stopped at \(at)"
        case .policyLoaded(let name, let policy): "from \(at) on the policy \(name) was in force, policies/\(policy.hex).json"
        case .keysGenerated(let generation): "generation \(generation) of the keys began at \(at)"
        case .keysRatcheted(let epoch, let swept):
            "at \(at) the keys of epoch \(epoch) and of all before it were destroyed, and every token due before epoch \(swept) was purged"
        case .tokenOpened(let id, let job, let template):
            "a token was opened at \(at) for one push, id \(id), job \(job), template \(template). \(Self.unpurged)"
        case .pushDelivered(let job, let status):
            "the push of job \(job) was accepted by the push service at \(at), status \(status). \(Self.unpurged)"
        case .pushFailed(let job, let status, let reason):
            "the push of job \(job) ended at \(at): \(reason.outcome(status: status)). \(Self.unpurged)"
        case .tokenSealed(let id, let untilMs):
            "a token was sealed before \(at), id \(id), to be purged by \(Timestamp.text(untilMs)). \(Self.unpurged)"
        case .tokenPurged(let id, let cause): "a token was purged before \(at), id \(id), cause \(cause.name)"
        case .bucketClosed(let untilMs, let sealed, let expired, let ended):
            "the tokens due by \(Timestamp.text(untilMs)) were settled at \(at): \(sealed) sealed, \(expired) expired, \(ended) ended early"
        case .requestRefused(let cause, let count): "about \(count) requests were refused at \(at), cause \(cause.rawValue)"
        case .ledgerClosed(let next): "the log was closed at \(at); \(next) follows it"
        case .ledgerOpened(let previous, let size, _, let jobs):
            "the log was opened at \(at); it continues \(previous), which had \(size) entries, with \(jobs) pushes under way"
        case .bucketCarried(let untilMs, let live):
            "the log before left \(live) live tokens that are due by \(Timestamp.text(untilMs))"
        }
    }

    private static let unpurged = "This doesn't prove that the token was purged"
}

/// A name in an entry: 1 to 128 visible ASCII characters without `"` and `\`, so JSON never escapes it.
public struct EntryText: Sendable, Hashable, CustomStringConvertible {
    public static let limit = 128

    public let description: String

    /// Returns nil if `text` is empty, too long or has another character.
    public init?(_ text: String) {
        guard (1...Self.limit).contains(text.utf8.count), text.utf8.allSatisfy(Self.allows) else { return nil }
        description = text
    }

    @inline(__always)
    static func allows(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7f && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }
}

/// The ops, with their keys and the values allowed for causes and reasons. `Conservation` stores their raw values, so the order of the cases stays.
enum OpName: Int, CaseIterable {
    case tokenSealed, tokenPurged, tokenOpened, pushDelivered, pushFailed, keysRatcheted, requestRefused, bucketClosed,
        brokerStarted
    case brokerStopped, policyLoaded, keysGenerated, ledgerClosed, ledgerOpened, bucketCarried

    init?(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        guard let index = Self.rows.firstIndex(where: { bytes.matches($0.name, at: range) }) else { return nil }
        self.init(rawValue: index)
    }

    /// The name, rank and keys of an op.
    struct Row {
        /// The op in JSON.
        let name: [UInt8]
        /// The position among the entries of one window. The rank never decreases until an entry of rank 0 restarts the order.
        let rank: UInt8
        /// The bits of exactly its keys. Purges with the cause `expired` also have `until`.
        let keys: UInt32

        init(_ name: String, _ rank: UInt8, _ keys: EntryFields.Key...) {
            (self.name, self.rank, self.keys) = (Array(name.utf8), rank, (keys + [.at, .op]).reduce(0) { $0 | $1.bit })
        }
    }

    private var row: Row {
        switch self {
        case .brokerStarted: Row("broker.started", 0, .binary, .node, .policy, .resolution, .version)
        case .brokerStopped: Row("broker.stopped", 0, .node)
        case .policyLoaded: Row("policy.loaded", 0, .name, .policy)
        case .keysGenerated: Row("keys.generated", 0, .generation)
        case .keysRatcheted: Row("keys.ratcheted", 0, .epoch, .swept)
        case .requestRefused: Row("request.refused", 0, .cause, .count)
        case .ledgerOpened: Row("ledger.opened", 0, .jobs, .previous, .root, .size)
        case .bucketCarried: Row("bucket.carried", 0, .live, .until)
        case .tokenOpened: Row("token.opened", 1, .id, .job, .template)
        case .pushDelivered: Row("push.delivered", 2, .job, .status)
        case .pushFailed: Row("push.failed", 2, .job, .reason, .status)
        case .tokenSealed: Row("token.sealed", 3, .id, .until)
        case .tokenPurged: Row("token.purged", 4, .cause, .id)
        case .bucketClosed: Row("bucket.closed", 5, .ended, .expired, .sealed, .until)
        case .ledgerClosed: Row("ledger.closed", 6, .next)
        }
    }

    private static let rows = allCases.map(\.row)
    var name: [UInt8] { Self.rows[rawValue].name }
    var rank: UInt8 { Self.rows[rawValue].rank }
    var keys: UInt32 { Self.rows[rawValue].keys }

    /// Returns true if the op allows the cause or reason in `range`, or has neither.
    func allows(_ range: Range<Int>, in bytes: Span<UInt8>) -> Bool {
        switch self {
        case .pushFailed: Self.reasons.contains { bytes.matches($0, at: range) }
        case .tokenPurged: Self.purges.contains { bytes.matches($0, at: range) }
        case .requestRefused: Self.refusals.contains { bytes.matches($0, at: range) }
        default: true
        }
    }

    private static let reasons = PushReason.allRecorded.map { Array($0.rawValue.utf8) }
    private static let purges = PurgeCause.names.map { Array($0.utf8) }
    private static let refusals = Entry.RefusalCause.allCases.map { Array($0.rawValue.utf8) }
}

extension Span<UInt8> {
    /// Returns true if the bytes in `range` equal `text`.
    @inline(__always)
    func matches(_ text: [UInt8], at range: Range<Int>) -> Bool {
        guard text.count == range.count else { return false }
        for index in 0..<text.count where self[range.lowerBound + index] != text[index] { return false }
        return true
    }
}

// The ids of a token's entries: the first 16 bytes of `D(ref, "ledger/" || label, field)`.
extension Ref {
    /// - Parameter untilMs: the end of the day in which the token expires.
    public func sealedID(untilMs: UInt64) -> EntryID { derive(Self.sealed, [UInt8](bigEndian: untilMs / 1_000)) }

    public func openedID(_ job: JobID) -> EntryID { derive(Self.opened, job.bytes) }

    /// - Parameter untilMs: the end of the day in which the token expires.
    public func purgeID(untilMs: UInt64) -> EntryID { derive(Self.purged, [UInt8](bigEndian: untilMs / 1_000)) }

    private static let sealed = prefix("sealed")
    private static let opened = prefix("opened")
    private static let purged = prefix("purged")

    private static func prefix(_ label: String) -> [UInt8] { Array("mayfly/v1 ledger/\(label)\0".utf8) }

    private func derive(_ prefix: [UInt8], _ field: [UInt8]) -> EntryID {
        var hash = withBytes { GenericHash(key: $0) }
        hash.update(prefix.span)
        hash.update([UInt8](bigEndian: UInt32(field.count)).span)
        hash.update(field.span)
        var digest = InlineArray<32, UInt8>(repeating: 0)
        var span = digest.mutableSpan
        hash.finish(into: &span)
        return EntryID(bytes: digest.span.extracting(first: EntryID.count))!
    }
}

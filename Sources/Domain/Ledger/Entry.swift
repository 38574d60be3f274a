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
        /// `status`: APNs' HTTP status.
        case pushDelivered(job: JobID, status: UInt16)
        /// `status`: APNs' HTTP status, or 0 without an answer.
        case pushFailed(job: JobID, status: UInt16, reason: APNsReason)
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
            "the push of job \(job) was accepted by Apple at \(at), status \(status). \(Self.unpurged)"
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

/// The ops by their JSON names, with their keys and the values allowed for causes and reasons.
enum OpName: String, CaseIterable {
    case tokenSealed = "token.sealed"
    case tokenPurged = "token.purged"
    case tokenOpened = "token.opened"
    case pushDelivered = "push.delivered"
    case pushFailed = "push.failed"
    case keysRatcheted = "keys.ratcheted"
    case requestRefused = "request.refused"
    case bucketClosed = "bucket.closed"
    case brokerStarted = "broker.started"
    case brokerStopped = "broker.stopped"
    case policyLoaded = "policy.loaded"
    case keysGenerated = "keys.generated"
    case ledgerClosed = "ledger.closed"
    case ledgerOpened = "ledger.opened"
    case bucketCarried = "bucket.carried"

    init?(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        for (name, op) in zip(Self.names, Self.allCases) where bytes.matches(name, at: range) {
            self = op
            return
        }
        return nil
    }

    /// The bits of exactly the keys that an entry of this op has. Purges with the cause `expired` also have `until`.
    var keys: UInt32 {
        let own: UInt32 =
            switch self {
            case .brokerStarted: Self.bits(.binary, .node, .policy, .resolution, .version)
            case .brokerStopped: Self.bits(.node)
            case .policyLoaded: Self.bits(.name, .policy)
            case .keysGenerated: Self.bits(.generation)
            case .keysRatcheted: Self.bits(.epoch, .swept)
            case .tokenOpened: Self.bits(.id, .job, .template)
            case .pushDelivered: Self.bits(.job, .status)
            case .pushFailed: Self.bits(.job, .reason, .status)
            case .tokenSealed: Self.bits(.id, .until)
            case .tokenPurged: Self.bits(.cause, .id)
            case .bucketClosed: Self.bits(.ended, .expired, .sealed, .until)
            case .requestRefused: Self.bits(.cause, .count)
            case .ledgerClosed: Self.bits(.next)
            case .ledgerOpened: Self.bits(.jobs, .previous, .root, .size)
            case .bucketCarried: Self.bits(.live, .until)
            }
        return own | Self.bits(.at, .op)
    }

    /// The position among the entries of one window. The rank never decreases until an entry of rank 0 restarts the order.
    var rank: UInt8 {
        switch self {
        case .brokerStarted, .brokerStopped, .policyLoaded, .keysGenerated, .keysRatcheted, .requestRefused, .ledgerOpened,
            .bucketCarried:
            0
        case .tokenOpened: 1
        case .pushDelivered, .pushFailed: 2
        case .tokenSealed: 3
        case .tokenPurged: 4
        case .bucketClosed: 5
        case .ledgerClosed: 6
        }
    }

    /// Returns true if the op allows the cause or reason in `range`, or has neither.
    func allows(_ range: Range<Int>, in bytes: Span<UInt8>) -> Bool {
        switch self {
        case .pushFailed: Self.reasons.contains { bytes.matches($0, at: range) }
        case .tokenPurged: Self.purges.contains { bytes.matches($0, at: range) }
        case .requestRefused: Self.refusals.contains { bytes.matches($0, at: range) }
        default: true
        }
    }

    @inline(__always)
    private static func bits(_ keys: EntryFields.Key...) -> UInt32 { keys.reduce(0) { $0 | $1.bit } }

    private static let names = allCases.map { Array($0.rawValue.utf8) }
    private static let reasons = APNsReason.allRecorded.map { Array($0.rawValue.utf8) }
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

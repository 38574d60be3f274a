public import Vocabulary

/// One event in the ledger. What it may hold is closed: no token, ref, room, code, client, user or address has a place here.
public struct Entry: Sendable, Hashable {
    /// Start of the window, unix ms; written to the second.
    public var atMs: UInt64
    public var op: Op

    public init(atMs: UInt64, _ op: Op) {
        self.atMs = atMs
        self.op = op
    }

    /// What happened. Times are unix ms, written to the second.
    ///
    /// `untilMs` names a bucket: the end of the policy's day in which the token expires.
    public enum Op: Sendable, Hashable {
        /// - `policy`: digest of the rooms policy in force; it has the ledger's timing.
        /// - `resolutionSeconds`: length of a window.
        /// - `binary`: SHA-256 of the program.
        case brokerStarted(node: EntryText, version: EntryText, policy: Digest, resolutionSeconds: UInt32, binary: Digest)
        case brokerStopped(node: EntryText)
        /// `policy`: the SHA-256 that names the file in `policies/`.
        case policyLoaded(name: EntryText, policy: Digest)
        case keysGenerated(generation: UInt32)
        /// The keys of `epoch` and of all epochs before it are destroyed. Everything due before the epoch `swept` is purged.
        case keysRatcheted(epoch: UInt64, swept: UInt64)
        case tokenOpened(id: EntryID, job: JobID, template: EntryText)
        /// `status`: APNs' HTTP status.
        case pushDelivered(job: JobID, status: UInt16)
        /// `status`: APNs' HTTP status, 0 without an answer.
        case pushFailed(job: JobID, status: UInt16, reason: APNsReason)
        case tokenSealed(id: EntryID, untilMs: UInt64)
        case tokenPurged(id: EntryID, cause: PurgeCause)
        /// The totals that this log published for a bucket. `ended` counts all purges except expiries.
        case bucketClosed(untilMs: UInt64, sealed: UInt64, expired: UInt64, ended: UInt64)
        /// `count`: rounded; at most one entry a window and cause.
        case requestRefused(cause: RefusalCause, count: UInt32)
        /// `next`: the origin of the log that follows.
        case ledgerClosed(next: EntryText)
        /// The first entry of a log that continues another, whose final head is `size` and `root`. `jobs` are under way.
        case ledgerOpened(previous: EntryText, size: UInt64, root: Digest, jobs: UInt64)
        /// The tokens that live on in a bucket of the previous log.
        case bucketCarried(untilMs: UInt64, live: UInt64)
    }

    public enum RefusalCause: String, Sendable, CaseIterable {
        case malformed, unauthorized, forbidden, conflict, throttled, unavailable, other
        case notFound = "not_found"
        case tooLarge = "too_large"
    }
}

extension Entry.Op {
    /// The place among the entries of one window.
    public var rank: UInt8 { name.rank }

    /// Orders entries of one rank: 16 bytes of an id or job, or 8 of a bucket's end in big-endian seconds. Empty if the order of recording counts.
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

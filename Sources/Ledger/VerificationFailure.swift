/// What is wrong with a log, and where. Whoever holds a checkpoint and this can show it to others.
public struct VerificationFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kinds of failure; the raw value is stable, for programs.
    public enum Code: String, Sendable, CaseIterable {
        // The files.
        case unreadable, missing, damaged
        /// The checkpoint, or an older one to compare with, is malformed or not signed by the key.
        case signature
        /// Entries and tiles, or the tiles and the signed root, are of different trees.
        case tree
        /// The log is not a continuation of what an older checkpoint signed.
        case rewritten
        /// Bytes that are no entry, or one that is out of order.
        case entry
        /// Time runs backwards, or in other windows than the log states.
        case time
        /// The log goes on after it was closed.
        case afterClosed = "after_closed"
        // The life of a ref.
        case sealedTwice = "sealed_twice"
        case neverSealed = "never_sealed"
        case openedLate = "opened_late"
        case afterPurge = "after_purge"
        case jobTwice = "job_twice"
        /// An outcome of a job that was never opened, or of another ref's.
        case jobUnknown = "job_unknown"
        case outcomeTwice = "outcome_twice"
        case purgedTwice = "purged_twice"
        case purgedLate = "purged_late"
        case neverPurged = "never_purged"
        // The keys.
        case ratchetLate = "ratchet_late"
        case ratchetEarly = "ratchet_early"
        /// The witnesses that are asked for have not cosigned.
        case cosignatures
        /// The last entry is older than the auditor allows.
        case stale
    }

    public var code: Code
    public var detail: String
    /// Number of the entry in the log, from 0.
    public var index: UInt64?
    public var ref: OpaqueID?
    public var file: String?

    public init(_ code: Code, _ detail: String, index: UInt64? = nil, ref: OpaqueID? = nil, file: String? = nil) {
        (self.code, self.detail, self.index, self.ref, self.file) = (code, detail, index, ref, file)
    }

    public var description: String {
        var place: [String] = []
        if let index { place.append("entry \(index)") }
        if let ref { place.append("ref \(ref)") }
        if let file { place.append(file) }
        return place.isEmpty ? detail : "\(place.joined(separator: ", ")): \(detail)"
    }
}

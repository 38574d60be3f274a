import Vocabulary

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
        // The order of entries.
        /// Bytes that are no entry, or one that is out of order.
        case entry
        /// Time runs backwards, or in other windows than the log states.
        case time
        /// The log goes on after it was closed.
        case afterClosed = "after_closed"
        /// The balances that a log carries over are malformed or out of place.
        case carry
        // Pauses and rules.
        /// The broker was away for too long in one day.
        case gaps
        /// A start names another timing than the one before it.
        case policyChanged = "policy_changed"
        /// No policy in force has the template.
        case templateUnknown = "template_unknown"
        /// No policy of the log so far allows so long a life.
        case lifeTooLong = "life_too_long"
        // Pushes.
        case jobTwice = "job_twice"
        /// An outcome of a job that is not open.
        case jobUnknown = "job_unknown"
        /// The outcome is late, or missing.
        case outcomeLate = "outcome_late"
        // Seals and purges.
        /// The time names no bucket that is open.
        case bucketUnknown = "bucket_unknown"
        /// A token expired before its bucket's day.
        case purgedEarly = "purged_early"
        /// A bucket doesn't balance.
        case unbalanced
        /// More early purges are claimed than were published, or more were published than tokens live.
        case overbooked
        case smallBatch = "small_batch"
        case batchLate = "batch_late"
        case midnightMissing = "midnight_missing"
        // The keys.
        case ratchetLate = "ratchet_late"
        case ratchetEarly = "ratchet_early"
        case sweptLate = "swept_late"
        case sweptEarly = "swept_early"
        /// An id comes twice.
        case idTwice = "id_twice"
        /// The witnesses that are asked for have not cosigned.
        case cosignatures
        /// The last entry is older than the auditor allows.
        case stale
    }

    public var code: Code
    public var detail: String
    /// Number of the entry in the log, from 0.
    public var index: UInt64?
    /// The id or job that it is about.
    public var id: String?
    public var file: String?

    public init(_ code: Code, _ detail: String, index: UInt64? = nil, id: (any OpaqueID)? = nil, file: String? = nil) {
        (self.code, self.detail, self.index, self.id, self.file) = (code, detail, index, id?.description, file)
    }

    public var description: String {
        var place: [String] = []
        if let index { place.append("entry \(index)") }
        if let id { place.append("id \(id)") }
        if let file { place.append(file) }
        return place.isEmpty ? detail : "\(place.joined(separator: ", ")): \(detail)"
    }
}

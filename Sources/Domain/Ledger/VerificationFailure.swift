import Vocabulary

/// What is wrong with a log, and where.
public struct VerificationFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kinds of failure. Raw values are stable.
    public enum Code: String, Sendable, CaseIterable {
        // The files.
        case unreadable, missing, damaged
        /// The checkpoint or an older one is malformed or not signed by the key.
        case signature
        /// Entries, tiles and the signed root don't match.
        case tree
        /// The log doesn't continue an older checkpoint.
        case rewritten
        // The order of entries.
        /// An invalid entry, or one that is out of order.
        case entry
        /// Time goes backwards, or a window doesn't have the stated length.
        case time
        /// The log has entries after its closing.
        case afterClosed = "after_closed"
        /// The balances from the previous log are malformed or misplaced.
        case carry
        // Gaps and policies.
        /// The broker was absent for too long in one day.
        case gaps
        /// A start names a policy with another timing.
        case policyChanged = "policy_changed"
        /// No policy in force has the template.
        case templateUnknown = "template_unknown"
        /// No policy so far allows such a long life.
        case lifeTooLong = "life_too_long"
        // Pushes.
        case jobTwice = "job_twice"
        /// The job of an outcome isn't open.
        case jobUnknown = "job_unknown"
        /// The outcome is late or missing.
        case outcomeLate = "outcome_late"
        // Seals and purges.
        /// There is no open bucket for the time.
        case bucketUnknown = "bucket_unknown"
        /// A token expired before its bucket's day.
        case purgedEarly = "purged_early"
        /// A bucket doesn't balance.
        case unbalanced
        /// Buckets claim more early purges than were published, or more were published than tokens are live.
        case overbooked
        case smallBatch = "small_batch"
        case batchLate = "batch_late"
        case midnightMissing = "midnight_missing"
        // The keys.
        case ratchetLate = "ratchet_late"
        case ratchetEarly = "ratchet_early"
        case sweptLate = "swept_late"
        case sweptEarly = "swept_early"
        /// An id repeats.
        case idTwice = "id_twice"
        /// The required witnesses have not cosigned.
        case cosignatures
        /// The last entry is older than the auditor allows.
        case stale
        /// The watch can't use its own folder. The log was not checked.
        case folder
    }

    public var code: Code
    public var detail: String
    /// The entry's index in the log.
    public var index: UInt64?
    /// The entry's id or job.
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

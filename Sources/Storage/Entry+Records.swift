import Ledger

/// The ledger's words for what happens to a job.
extension Entry.Op {
    static func opened(_ job: NewJob) -> Entry.Op {
        .tokenOpened(
            id: OpaqueID(row: job.openedID), job: OpaqueID(row: job.record.job), template: EntryText(column: job.record.template))
    }

    static func ended(_ job: [UInt8], _ outcome: JobOutcome) -> Entry.Op {
        let id = OpaqueID(row: job)
        guard let reason = outcome.reason else { return .pushDelivered(job: id, status: outcome.status) }
        return .pushFailed(job: id, status: outcome.status, reason: reason)
    }
}

extension OpaqueID {
    /// A column of 16 bytes; this program wrote it.
    init(row bytes: [UInt8]) {
        guard let id = OpaqueID(bytes.span) else { preconditionFailure("an id is not 16 bytes") }
        self = id
    }
}

extension EntryText {
    /// A template's name, which the policy's lint has held to this alphabet.
    init(column: String) {
        guard let text = EntryText(column) else { preconditionFailure("a template's name can't stand in the ledger") }
        self = text
    }
}

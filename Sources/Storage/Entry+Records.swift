import Ledger
import Vocabulary

/// The ledger's words for what happens to a job.
extension Entry.Op {
    static func opened(_ job: NewJob) -> Entry.Op {
        .tokenOpened(
            id: job.openedID, job: job.record.job, template: EntryText(column: job.record.template))
    }

    static func ended(_ job: JobID, _ outcome: JobOutcome) -> Entry.Op {
        guard let reason = outcome.reason else { return .pushDelivered(job: job, status: outcome.status) }
        return .pushFailed(job: job, status: outcome.status, reason: reason)
    }
}

extension EntryText {
    /// A template's name, which the policy's lint has held to this alphabet.
    init(column: String) {
        guard let text = EntryText(column) else { preconditionFailure("a template's name can't stand in the ledger") }
        self = text
    }
}

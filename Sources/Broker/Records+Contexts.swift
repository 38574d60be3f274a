import Sealing
import Storage
import Vocabulary

// What a row says of itself, as its seal binds it. Nil for a row that was edited into something that is none.
extension TokenRecord {
    var context: TokenContext? {
        guard let purgeID = PurgeID(bytes: purgeID.span) else { return nil }
        return TokenContext(
            generation: generation, kind: kind, environment: environment, slot: slot, expiryMs: expires, purgeID: purgeID,
            topic: topic)
    }
}

extension JobRecord {
    var context: JobContext? {
        guard let id = JobID(bytes: job.span), let purgeID = PurgeID(bytes: purgeID.span) else { return nil }
        return JobContext(
            generation: generation, job: id, purgeID: purgeID, kind: kind, environment: environment, topic: topic,
            template: template,
            deadlineMs: deadline, expiryMs: expires)
    }
}

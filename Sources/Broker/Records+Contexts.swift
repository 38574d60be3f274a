import Sealing
import Storage
import Vocabulary

// What a row says of itself, as its seal binds it.
extension TokenRecord {
    var context: TokenContext {
        TokenContext(
            generation: generation, kind: kind, environment: environment, slot: slot, expiryMs: expires, purgeID: purgeID,
            topic: topic)
    }
}

extension JobRecord {
    var context: JobContext {
        JobContext(
            generation: generation, job: job, purgeID: purgeID, kind: kind, environment: environment, topic: topic,
            template: template,
            deadlineMs: deadline, expiryMs: expires)
    }
}

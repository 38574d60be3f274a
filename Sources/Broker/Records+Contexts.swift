import Sealing
import Storage
import Vocabulary

// The part of a row that its seal is bound to.
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

extension RegistrationRecord {
    var place: ExpirySlot { ExpirySlot(generation: generation, expiryMs: expires) }

    var context: TokenContext {
        TokenContext(
            generation: generation, kind: kind, environment: environment, slot: 0, expiryMs: expires, purgeID: purgeID,
            topic: topic)
    }
}

extension TokenContext {
    private static let longestShort: UInt64 = 86_400_000

    /// True for a long life. Seals and purges of long lives are published only at the end of a day. Times are unix ms.
    static func isLong(from sealed: UInt64, to expiry: UInt64) -> Bool { expiry > sealed + longestShort }
}

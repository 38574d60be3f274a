import Sealing
import Storage
import Vocabulary

// Rows and their seals. The context of a row is the part that its seal is bound to.

extension TokenRecord {
    var context: TokenContext {
        TokenContext(
            generation: generation, kind: kind, environment: environment, slot: slot, expiryMs: expires, purgeID: purgeID,
            topic: topic)
    }
}

extension RegistrationRecord {
    var expirySlot: ExpirySlot { ExpirySlot(generation: generation, expiryMs: expires) }

    var context: TokenContext {
        TokenContext(
            generation: generation, kind: kind, environment: environment, slot: 0, expiryMs: expires, purgeID: purgeID,
            topic: topic)
    }
}

extension JobRecord {
    var context: JobContext {
        JobContext(
            generation: generation, job: job, purgeID: purgeID, kind: kind, environment: environment, topic: topic,
            template: template, deadlineMs: deadline, expiryMs: expires)
    }
}

extension TokenContext {
    private static let longestShort: UInt64 = 86_400_000

    /// True for a long life. Seals and purges of long lives are published only at the end of a day. Times are unix ms.
    static func isLong(from sealed: UInt64, to expiry: UInt64) -> Bool { expiry > sealed + longestShort }
}

// MARK: Errors

/// Seals or derives something. Failures are the broker's fault, not the caller's.
/// - Throws: `.overloaded` after a shortage of slots, otherwise `.storageUnavailable`.
func available<Value>(_ body: () throws(SealingError) -> Value) throws(BrokerError) -> Value {
    do {
        return try body()
    } catch {
        throw BrokerError(error)
    }
}

/// - Throws: `.overloaded` after a shortage, which doesn't show whether the secret is valid.
func throwingOverload<Value>(_ body: () throws(SlotShortage) -> Value) throws(BrokerError) -> Value {
    do {
        return try body()
    } catch {
        throw .overloaded(error)
    }
}

/// Opens something sealed. Returns nil if it is invalid or its key is gone.
/// - Throws: `.overloaded` after a shortage.
func ifItOpens<Value>(_ open: () throws(SealingError) -> Value) throws(BrokerError) -> Value? {
    try throwingOverload { () throws(SlotShortage) in try opened(open) }
}

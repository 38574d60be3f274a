import Sealing
import Vocabulary

/// The result of a send.
struct Receipt: Sendable {
    var outcome: Outcome
    /// `apns-unique-id` of the last answer.
    var uniqueID: String?
}

/// One push on its way, and who waits for it.
final class Delivery {
    let push: Push
    let topic: Topic
    /// On the loop's clock.
    let deadline: UInt64
    var history = History()
    /// Times that Apple's end refused to look at it.
    var refusals = 0
    /// How it stands: what is told when the deadline passes.
    var standing: (status: Int, reason: APNsReason)?
    /// True if the sender asked for Apple's name of the delivery. The broker's own pushes never ask: a stored id would
    /// lead from a ledger entry to a phone for as long as Apple keeps its records.
    let isTraced: Bool
    var uniqueID: String?
    private var continuation: CheckedContinuation<Receipt, Never>?

    init(
        _ push: Push, _ topic: Topic, deadline: UInt64, traced: Bool, _ continuation: CheckedContinuation<Receipt, Never>
    ) {
        isTraced = traced
        self.push = push
        self.topic = topic
        self.deadline = deadline
        self.continuation = continuation
    }

    func finish(_ outcome: Outcome) {
        continuation.take()?.resume(returning: Receipt(outcome: outcome, uniqueID: uniqueID))
    }

    /// Names the token among those that are held: a hash that means nothing in another process.
    var tokenKey: Int {
        var hasher = Hasher()
        push.token.withBytes { bytes in
            for index in bytes.indices { hasher.combine(bytes[index]) }
        }
        return hasher.finalize()
    }
}

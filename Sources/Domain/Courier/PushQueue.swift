import Sealing
import Vocabulary

/// A lane's state for one topic. Used only on the loop's thread.
final class Topic {
    let name: String
    var breaker = PurgeBreaker()
    fileprivate var waiting = Queue<Delivery>()
    /// Pushes in flight.
    fileprivate var underWay = 0
    /// A push was lost, and none has been answered since.
    fileprivate var isSilent = false

    init(_ name: String) { self.name = name }

    /// A silent topic sends one push at a time, so that it doesn't take the streams of others.
    fileprivate var maySend: Bool { !isSilent || underWay == 0 }
}

/// Pushes that wait for a stream. Topics take turns, so that a busy or silent one doesn't delay the others.
struct PushQueue {
    /// Topics with waiting pushes, in the order of their turns.
    private var order = Queue<Topic>()
    private var count = 0

    var isEmpty: Bool { count == 0 }
    /// True if a push could be sent on a free stream.
    var wantsStream: Bool { order.contains { $0.maySend } }

    mutating func append(_ delivery: Delivery) { add(delivery) { $0.append(delivery) } }
    /// Adds a push at the front of its topic.
    mutating func prepend(_ delivery: Delivery) { add(delivery) { $0.prepend(delivery) } }

    private mutating func add(_ delivery: Delivery, _ place: (inout Queue<Delivery>) -> Void) {
        if delivery.topic.waiting.isEmpty { order.append(delivery.topic) }
        place(&delivery.topic.waiting)
        count += 1
    }

    /// Returns the next push, or nil if none may be sent now.
    /// - Parameter trying: the connection takes one push until a response. Prefer one of a topic that isn't silent.
    mutating func popFirst(trying: Bool) -> Delivery? {
        if trying, let delivery = popFirst(where: { !$0.isSilent }) { return delivery }
        return popFirst { $0.maySend }
    }

    private mutating func popFirst(where mayGo: (Topic) -> Bool) -> Delivery? {
        for _ in 0..<order.count {
            guard let topic = order.popFirst() else { return nil }
            guard mayGo(topic), let delivery = topic.waiting.popFirst() else {
                order.append(topic)
                continue
            }
            if !topic.waiting.isEmpty { order.append(topic) }
            count -= 1
            return delivery
        }
        return nil
    }

    /// Removes and returns the pushes that match `predicate`.
    mutating func extract(where predicate: (Delivery) -> Bool) -> [Delivery] {
        var taken: [Delivery] = []
        for _ in 0..<order.count {
            guard let topic = order.popFirst() else { break }
            taken += topic.waiting.extract(where: predicate)
            if !topic.waiting.isEmpty { order.append(topic) }
        }
        count -= taken.count
        return taken
    }
}

/// The results of pushes that were sent.
extension Topic {
    func isSent() { underWay += 1 }

    func isAnswered() {
        underWay -= 1
        isSilent = false
    }

    /// The push left its connection unanswered, through no fault of the topic.
    func isReturned() { underWay -= 1 }

    func isLost() {
        underWay -= 1
        isSilent = true
    }
}

/// The result of a send.
struct Receipt: Sendable {
    var outcome: Outcome
    /// `apns-unique-id` of the last answer.
    var uniqueID: String?
}

/// One push and the continuation of its caller.
final class Delivery {
    let push: Push
    let topic: Topic
    /// On the loop's clock.
    let deadline: UInt64
    var history = History()
    /// The push has left a silent connection for another one, which happens only once.
    var isSecondAttempt = false
    /// How often the peer refused the stream.
    var refusals = 0
    /// The last failure. It is reported if the deadline passes.
    var lastFailure: (status: Int, reason: PushReason)?
    /// True if the caller asked for `apns-unique-id`. The broker's own pushes never do: a stored id would link a ledger entry to a phone
    /// for as long as Apple keeps its records.
    let isTraced: Bool
    var uniqueID: String?
    private var continuation: CheckedContinuation<Receipt, Never>?
    /// Called with the outcome.
    private let ended: ((Outcome) -> Void)?

    init(
        _ push: Push, _ topic: Topic, deadline: UInt64, traced: Bool, _ continuation: CheckedContinuation<Receipt, Never>,
        ended: ((Outcome) -> Void)? = nil
    ) {
        self.ended = ended
        isTraced = traced
        self.push = push
        self.topic = topic
        self.deadline = deadline
        self.continuation = continuation
    }

    func finish(_ outcome: Outcome) {
        ended?(outcome)
        continuation.take()?.resume(returning: Receipt(outcome: outcome, uniqueID: uniqueID))
    }

    /// A hash of the token, which is meaningless outside this process.
    var tokenKey: Int {
        var hasher = Hasher()
        push.address.device.withBytes { bytes in
            for index in bytes.indices { hasher.combine(bytes[index]) }
        }
        return hasher.finalize()
    }
}

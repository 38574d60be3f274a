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
    /// While it is under way.
    var flight: Flight?
    /// True if the sender asked for Apple's name of the delivery. The broker's own pushes never do. See
    /// docs/decisions/0056-unique-ids-are-not-kept.md.
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
        continuation?.resume(returning: Receipt(outcome: outcome, uniqueID: uniqueID))
        continuation = nil
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

/// First in, first out, in amortised constant time.
struct Queue<Element> {
    private var elements: [Element?] = []
    private var head = 0

    var count: Int { elements.count - head }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func prepend(_ element: Element) {
        if head > 0 {
            head -= 1
            elements[head] = element
        } else {
            elements.insert(element, at: 0)
        }
    }

    mutating func popFirst() -> Element? {
        guard head < elements.count else { return nil }
        let element = elements[head]
        elements[head] = nil
        head += 1
        if head == elements.count || head > 1024 && head * 2 > elements.count {
            elements.removeFirst(head)
            head = 0
        }
        return element
    }

    func contains(where predicate: (Element) -> Bool) -> Bool {
        elements[head...].contains { $0.map(predicate) ?? false }
    }

    /// Takes out what `predicate` holds of, in order.
    mutating func extract(where predicate: (Element) -> Bool) -> [Element] {
        // Nearly always none: the queue is looked through again and again, and need not be built anew each time.
        guard contains(where: predicate) else { return [] }
        var taken: [Element] = []
        var kept: [Element?] = []
        for element in elements[head...].lazy.compactMap({ $0 }) {
            if predicate(element) { taken.append(element) } else { kept.append(element) }
        }
        elements = kept
        head = 0
        return taken
    }
}

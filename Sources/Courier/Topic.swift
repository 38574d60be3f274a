import Vocabulary

/// What a lane knows of one topic. Touched on the loop's thread only.
final class Topic {
    let name: String
    var breaker = PurgeBreaker()
    fileprivate var waiting = Queue<Delivery>()
    /// Sent, and neither answered nor lost.
    fileprivate var underWay = 0
    /// A push of it was lost and none was answered since.
    fileprivate var isSilent = false

    init(_ name: String) { self.name = name }

    /// One at a time, until one is answered: many would only take the streams that others' pushes need.
    fileprivate var maySend: Bool { !isSilent || underWay == 0 }
}

/// Pushes that wait for a stream. Topics take turns, so that one whose pushes are many, or are never answered, does not hold up the others'.
struct Turns {
    /// Those of which a push waits, the next first.
    private var order = Queue<Topic>()
    private var count = 0

    var isEmpty: Bool { count == 0 }
    /// Whether a push waits for nothing but a stream.
    var wantsStream: Bool { order.contains { $0.maySend } }

    mutating func append(_ delivery: Delivery) { add(delivery) { $0.append(delivery) } }
    /// The first of its topic.
    mutating func prepend(_ delivery: Delivery) { add(delivery) { $0.prepend(delivery) } }

    private mutating func add(_ delivery: Delivery, _ place: (inout Queue<Delivery>) -> Void) {
        if delivery.topic.waiting.isEmpty { order.append(delivery.topic) }
        place(&delivery.topic.waiting)
        count += 1
    }

    /// The next one; nil where all must wait for more than a stream.
    /// - Parameter trying: on a connection that takes one push until that is answered: rather not one of those that get no answers.
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

    /// Takes out what `predicate` holds of, in order of their topics.
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

/// What became of a push that was given a stream.
extension Topic {
    func isSent() { underWay += 1 }

    func isAnswered() {
        underWay -= 1
        isSilent = false
    }

    func isRefused() { underWay -= 1 }

    func isLost() {
        underWay -= 1
        isSilent = true
    }
}

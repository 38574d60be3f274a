/// A first-in, first-out queue with amortised constant time.
@frozen
public struct Queue<Element> {
    @usableFromInline var elements: [Element?] = []
    @usableFromInline var head = 0

    @inlinable public init() {}

    @inlinable public var count: Int { elements.count - head }
    @inlinable public var isEmpty: Bool { count == 0 }
    @inlinable public var first: Element? { isEmpty ? nil : elements[head] }

    @inlinable public mutating func append(_ element: Element) { elements.append(element) }
    @inlinable
    public mutating func append(contentsOf more: some Sequence<Element>) { for element in more { append(element) } }

    @inlinable
    public mutating func prepend(_ element: Element) {
        if head > 0 {
            head -= 1
            elements[head] = element
        } else {
            elements.insert(element, at: 0)
        }
    }

    @inlinable
    public mutating func popFirst() -> Element? {
        guard head < elements.count else { return nil }
        let element = elements[head].take()
        head += 1
        if isEmpty {
            // Free the memory after a burst.
            elements.removeAll(keepingCapacity: head <= 1_024)
            head = 0
        } else if head > 1_024, head * 2 > elements.count {
            elements.removeFirst(head)
            head = 0
        }
        return element
    }

    @inlinable
    public func contains(where predicate: (Element) -> Bool) -> Bool {
        elements[head...].contains { $0.map(predicate) ?? false }
    }

    /// Removes and returns the elements that satisfy `predicate`, in order.
    @inlinable
    public mutating func extract(where predicate: (Element) -> Bool) -> [Element] {
        // Usually there is none. Then don't rebuild the queue.
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

extension Queue: Sendable where Element: Sendable {}

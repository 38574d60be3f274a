public import Vocabulary

/// The right edge of a growing tree: the roots of its complete subtrees, largest first. All that appending and the root need.
public struct TreeEdge: Sendable, Hashable {
    public private(set) var size: UInt64 = 0
    private var peaks: [Digest] = []

    public init() {}

    public mutating func append(leaf: Digest) {
        var node = leaf
        // Each low one-bit of the size is a complete subtree that the new leaf completes to one of twice its size.
        for _ in 0..<(~size).trailingZeroBitCount { node = .node(peaks.removeLast(), node) }
        peaks.append(node)
        size += 1
    }

    /// Appends a complete subtree of `2^level` leaves; the size must be a multiple of that.
    mutating func append(subtree: Digest, level: Int) {
        precondition(size & (1 << UInt64(level) - 1) == 0)
        var node = subtree
        for _ in 0..<(~(size >> UInt64(level))).trailingZeroBitCount { node = .node(peaks.removeLast(), node) }
        peaks.append(node)
        size += 1 << UInt64(level)
    }

    public var root: Digest { Self.fold(peaks) ?? .emptyRoot }

    /// The root of the tree that goes on with the leaves of `next`, which are fewer than the smallest complete subtree here has.
    func root(with next: TreeEdge) -> Digest { Self.fold(peaks + next.peaks) ?? .emptyRoot }

    /// The hash of a range from the roots of its complete subtrees, leftmost first; nil for an empty range.
    static func fold(_ peaks: [Digest]) -> Digest? {
        guard var root = peaks.last else { return nil }
        for peak in peaks.dropLast().reversed() { root = .node(peak, root) }
        return root
    }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&size)
        coder.code(&peaks)
    }
}

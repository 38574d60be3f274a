public import Vocabulary

/// That a tree begins with all of an older one (RFC 9162, section 2.1.4).
public struct ConsistencyProof: Sendable, Hashable {
    public var oldSize: UInt64
    public var newSize: UInt64
    public var hashes: [Digest]

    public init(oldSize: UInt64, newSize: UInt64, hashes: [Digest]) {
        (self.oldSize, self.newSize, self.hashes) = (oldSize, newSize, hashes)
    }

    /// The check of RFC 9162, section 2.1.4.2. From the empty tree nothing can be proved, so that is never valid but to itself.
    public func isValid(oldRoot: Digest, newRoot: Digest) -> Bool {
        if oldSize == newSize { return hashes.isEmpty && oldRoot == newRoot }
        guard oldSize > 0, oldSize < newSize, !hashes.isEmpty else { return false }
        var path = hashes[...]
        // A complete old tree is itself the first node of the proof, and so is left out of it.
        if oldSize & (oldSize - 1) == 0 { path = [oldRoot] + path }
        var (node, last) = (oldSize - 1, newSize - 1)
        while node & 1 == 1 { (node, last) = (node >> 1, last >> 1) }
        let first = path.removeFirst()
        var (old, new) = (first, first)
        for sibling in path {
            guard last != 0 else { return false }
            if node & 1 == 1 || node == last {
                (old, new) = (.node(sibling, old), .node(sibling, new))
                if node & 1 == 0 {
                    repeat { (node, last) = (node >> 1, last >> 1) } while node & 1 == 0 && node != 0
                }
            } else {
                new = .node(new, sibling)
            }
            (node, last) = (node >> 1, last >> 1)
        }
        return last == 0 && old == oldRoot && new == newRoot
    }

    /// The ranges of leaves whose hashes make up the proof, in its order.
    static func ranges(oldSize: UInt64, newSize: UInt64) -> [Range<UInt64>] {
        precondition(oldSize > 0 && oldSize <= newSize)
        var (ranges, tree, whole) = ([Range<UInt64>](), 0..<newSize, true)
        while tree.upperBound != oldSize {
            let middle = tree.lowerBound + Subtree.split(UInt64(tree.count))
            if oldSize <= middle {
                ranges.append(middle..<tree.upperBound)
                tree = tree.lowerBound..<middle
            } else {
                ranges.append(tree.lowerBound..<middle)
                tree = middle..<tree.upperBound
                whole = false
            }
        }
        if !whole { ranges.append(tree) }
        return ranges.reversed()
    }
}

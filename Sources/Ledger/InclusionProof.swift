public import Vocabulary

/// That an entry is in a tree (RFC 9162, section 2.1.3): the sibling hashes from the leaf to the root.
public struct InclusionProof: Sendable, Hashable {
    public var index: UInt64
    public var size: UInt64
    public var hashes: [Digest]

    public init(index: UInt64, size: UInt64, hashes: [Digest]) {
        (self.index, self.size, self.hashes) = (index, size, hashes)
    }

    /// The check of RFC 9162, section 2.1.3.2.
    public func isValid(leaf: Digest, root: Digest) -> Bool {
        guard index < size else { return false }
        var (node, last, hash) = (index, size - 1, leaf)
        for sibling in hashes {
            guard last != 0 else { return false }
            if node & 1 == 1 || node == last {
                hash = .node(sibling, hash)
                if node & 1 == 0 {
                    repeat { (node, last) = (node >> 1, last >> 1) } while node & 1 == 0 && node != 0
                }
            } else {
                hash = .node(hash, sibling)
            }
            (node, last) = (node >> 1, last >> 1)
        }
        return last == 0 && hash == root
    }

    /// The ranges of leaves whose hashes make up the proof, the leaf's sibling first.
    static func ranges(index: UInt64, size: UInt64) -> [Range<UInt64>] {
        precondition(index < size)
        var (ranges, tree) = ([Range<UInt64>](), 0..<size)
        while tree.count > 1 {
            let middle = tree.lowerBound + Subtree.split(UInt64(tree.count))
            if index < middle {
                ranges.append(middle..<tree.upperBound)
                tree = tree.lowerBound..<middle
            } else {
                ranges.append(tree.lowerBound..<middle)
                tree = middle..<tree.upperBound
            }
        }
        return ranges.reversed()
    }
}

/// A complete subtree: the leaves `index * 2^level ..< (index + 1) * 2^level`.
struct Subtree: Sendable, Hashable {
    var level: Int
    var index: UInt64

    /// Where a tree of `size` (at least 2) leaves splits: the largest power of two below it.
    static func split(_ size: UInt64) -> UInt64 { 1 << UInt64(63 - (size - 1).leadingZeroBitCount) }

    /// The complete subtrees that make up a range which the tree's own splits give, leftmost and largest first.
    static func covering(_ range: Range<UInt64>) -> [Subtree] {
        var (subtrees, start) = ([Subtree](), range.lowerBound)
        while start < range.upperBound {
            let level = 63 - (range.upperBound - start).leadingZeroBitCount
            subtrees.append(Subtree(level: level, index: start >> UInt64(level)))
            start += 1 << UInt64(level)
        }
        return subtrees
    }
}

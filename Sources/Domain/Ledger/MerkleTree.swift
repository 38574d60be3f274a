import Sodium
import TLS
public import Vocabulary

/// The hashes of the Merkle tree (RFC 6962). Leaves and nodes have different prefixes, so neither can pass for the other.
extension Digest {
    /// The root of the empty tree: SHA-256 of the empty string.
    public static let emptyRoot = Digest(finishing: SHA256())

    public static func leaf(_ entry: Span<UInt8>) -> Digest { prefixed(0, entry) }

    public static func node(_ left: Digest, _ right: Digest) -> Digest {
        left.withBytes { left in right.withBytes { prefixed(1, left, $0) } }
    }

    private static func prefixed(_ prefix: UInt8, _ first: Span<UInt8>, _ second: Span<UInt8> = Span()) -> Digest {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var digest = bytes.mutableSpan
        PrefixedSHA256.hash(prefix, first, second, into: &digest)
        return Digest(bytes)
    }
}

/// The right edge of a growing tree: the roots of its complete subtrees, largest first. Enough to append and to compute the root.
public struct TreeEdge: Sendable, Hashable {
    public private(set) var size: UInt64 = 0
    private var peaks: [Digest] = []

    public init() {}

    public mutating func append(leaf: Digest) {
        var node = leaf
        // Each trailing one-bit of the size is a complete subtree, which the new leaf merges into one of twice the size.
        for _ in 0..<(~size).trailingZeroBitCount { node = .node(peaks.removeLast(), node) }
        peaks.append(node)
        size += 1
    }

    /// Appends a complete subtree of `2^level` leaves.
    /// - Precondition: the size is a multiple of `2^level`.
    mutating func append(subtree: Digest, level: Int) {
        precondition(size & (1 << UInt64(level) - 1) == 0)
        var node = subtree
        for _ in 0..<(~(size >> UInt64(level))).trailingZeroBitCount { node = .node(peaks.removeLast(), node) }
        peaks.append(node)
        size += 1 << UInt64(level)
    }

    public var root: Digest { Self.fold(peaks) ?? .emptyRoot }

    /// Returns the root of this tree followed by the leaves of `next`.
    /// - Precondition: `next` is smaller than the smallest complete subtree here.
    func root(with next: TreeEdge) -> Digest { Self.fold(peaks + next.peaks) ?? .emptyRoot }

    /// Returns the hash of a range, given the roots of its complete subtrees, leftmost first. Returns nil if the range is empty.
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

/// A complete subtree: the leaves `index * 2^level ..< (index + 1) * 2^level`.
struct Subtree: Sendable, Hashable {
    var level: Int
    var index: UInt64

    /// Returns the number of leaves on the left of a tree of `size` (at least 2) leaves: the largest power of two below `size`.
    static func split(_ size: UInt64) -> UInt64 { 1 << UInt64(63 - (size - 1).leadingZeroBitCount) }

    /// Returns the complete subtrees that make up a node's range, leftmost and largest first.
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

/// Proves that an entry is in a tree (RFC 9162, section 2.1.3): the sibling hashes from the leaf to the root.
public struct InclusionProof: Sendable, Hashable {
    public var index: UInt64
    public var size: UInt64
    public var hashes: [Digest]

    public init(index: UInt64, size: UInt64, hashes: [Digest]) {
        (self.index, self.size, self.hashes) = (index, size, hashes)
    }

    /// Verifies the proof as in RFC 9162, section 2.1.3.2.
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

    /// Returns the ranges of leaves whose hashes form the proof, the leaf's sibling first.
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

/// Proves that a tree begins with all leaves of an older one (RFC 9162, section 2.1.4).
public struct ConsistencyProof: Sendable, Hashable {
    public var oldSize: UInt64
    public var newSize: UInt64
    public var hashes: [Digest]

    public init(oldSize: UInt64, newSize: UInt64, hashes: [Digest]) {
        (self.oldSize, self.newSize, self.hashes) = (oldSize, newSize, hashes)
    }

    /// Verifies the proof as in RFC 9162, section 2.1.4.2. An empty old tree is valid only against an empty new one.
    public func isValid(oldRoot: Digest, newRoot: Digest) -> Bool {
        if oldSize == newSize { return hashes.isEmpty && oldRoot == newRoot }
        guard oldSize > 0, oldSize < newSize, !hashes.isEmpty else { return false }
        var path = hashes[...]
        // A complete old tree is the first node of the proof, which therefore omits it.
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

    /// Returns the ranges of leaves whose hashes form the proof, in order.
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

import Testing
import Vocabulary

@testable import Ledger

@Suite struct TreeTests {
    let vectors = Vectors.all

    /// RFC 6962's definition, word by word.
    static func root(_ leaves: ArraySlice<Digest>) -> Digest {
        switch leaves.count {
        case 0: return .emptyRoot
        case 1: return leaves.first!
        default:
            var split = 1
            while split * 2 < leaves.count { split *= 2 }
            return .node(root(leaves.prefix(split)), root(leaves.dropFirst(split)))
        }
    }

    static func hash(_ range: Range<UInt64>, _ leaves: [Digest]) -> Digest {
        root(leaves[Int(range.lowerBound)..<Int(range.upperBound)])
    }

    static func inclusion(_ index: Int, _ size: Int, _ leaves: [Digest]) -> InclusionProof {
        let hashes = InclusionProof.ranges(index: UInt64(index), size: UInt64(size)).map { hash($0, leaves) }
        return InclusionProof(index: UInt64(index), size: UInt64(size), hashes: hashes)
    }

    static func consistency(_ old: Int, _ new: Int, _ leaves: [Digest]) -> ConsistencyProof {
        let hashes = ConsistencyProof.ranges(oldSize: UInt64(old), newSize: UInt64(new)).map { hash($0, leaves) }
        return ConsistencyProof(oldSize: UInt64(old), newSize: UInt64(new), hashes: hashes)
    }

    static let leaves = (0..<140).map { Digest.leaf(leaf($0).span) }

    @Test func hashesAreThoseOfTheVectors() {
        var edge = TreeEdge()
        #expect(edge.root.base64 == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
        for number in 0..<3 {
            #expect(Self.leaves[number] == Digest(vectors.leaves[number]))
            edge.append(leaf: Self.leaves[number])
            #expect(edge.root.hex == vectors.roots[number].hex)
            #expect(edge.root.base64 == vectors.roots[number].base64)
        }
    }

    @Test func proofsAreThoseOfTheVectors() {
        for index in 0..<3 {
            #expect(Self.inclusion(index, 3, Self.leaves).hashes == vectors.inclusion[index].map { Digest($0) })
        }
        for old in [1, 2] {
            #expect(Self.consistency(old, 3, Self.leaves).hashes == vectors.consistency["\(old)"]!.map { Digest($0) })
        }
    }

    @Test func edgeGivesTheRootOfEverySize() {
        var edge = TreeEdge()
        for size in 0...Self.leaves.count {
            #expect(edge.size == UInt64(size))
            #expect(edge.root == Self.root(Self.leaves.prefix(size)))
            if size < Self.leaves.count { edge.append(leaf: Self.leaves[size]) }
        }
    }

    @Test func edgeTakesWholeSubtrees() {
        var edge = TreeEdge()
        for start in stride(from: 0, to: 136, by: 8) { edge.append(subtree: Self.root(Self.leaves[start..<start + 8]), level: 3) }
        #expect(edge.root == Self.root(Self.leaves.prefix(136)))
        var next = TreeEdge()
        for leaf in Self.leaves[136..<139] { next.append(leaf: leaf) }
        #expect(edge.root(with: next) == Self.root(Self.leaves.prefix(139)))
    }

    @Test func coversRangesByCompleteSubtrees() {
        for size in 1...40 {
            for range in InclusionProof.ranges(index: UInt64(size / 2), size: UInt64(size)) {
                let peaks = Subtree.covering(range).map { subtree in
                    Self.hash(subtree.index << UInt64(subtree.level)..<(subtree.index + 1) << UInt64(subtree.level), Self.leaves)
                }
                #expect(TreeEdge.fold(peaks) == Self.hash(range, Self.leaves))
            }
        }
    }

    @Test func everyInclusionHoldsAndNothingElse() {
        for size in 1...35 {
            let root = Self.root(Self.leaves.prefix(size))
            for index in 0..<size {
                let proof = Self.inclusion(index, size, Self.leaves)
                #expect(proof.isValid(leaf: Self.leaves[index], root: root))
                #expect(!proof.isValid(leaf: Self.leaves[index + 1], root: root))
                #expect(!proof.isValid(leaf: Self.leaves[index], root: Self.leaves[139]))
                for wrong in Self.damaged(proof.hashes) {
                    #expect(
                        !InclusionProof(index: proof.index, size: proof.size, hashes: wrong).isValid(
                            leaf: Self.leaves[index], root: root))
                }
                for other in 0..<size where other != index {
                    #expect(
                        !InclusionProof(index: UInt64(other), size: proof.size, hashes: proof.hashes).isValid(
                            leaf: Self.leaves[index], root: root))
                }
            }
        }
    }

    @Test func everyConsistencyHoldsAndNothingElse() {
        for new in 1...35 {
            let newRoot = Self.root(Self.leaves.prefix(new))
            for old in 1...new {
                let (oldRoot, proof) = (Self.root(Self.leaves.prefix(old)), Self.consistency(old, new, Self.leaves))
                #expect(proof.isValid(oldRoot: oldRoot, newRoot: newRoot))
                #expect(!proof.isValid(oldRoot: Self.leaves[139], newRoot: newRoot))
                #expect(!proof.isValid(oldRoot: oldRoot, newRoot: Self.leaves[139]))
                for wrong in Self.damaged(proof.hashes) {
                    let other = ConsistencyProof(oldSize: proof.oldSize, newSize: proof.newSize, hashes: wrong)
                    #expect(!other.isValid(oldRoot: oldRoot, newRoot: newRoot))
                }
            }
        }
    }

    @Test func nothingFollowsFromTheEmptyTree() {
        let root = Self.root(Self.leaves.prefix(3))
        #expect(!ConsistencyProof(oldSize: 0, newSize: 3, hashes: []).isValid(oldRoot: .emptyRoot, newRoot: root))
        #expect(!ConsistencyProof(oldSize: 0, newSize: 3, hashes: [root]).isValid(oldRoot: root, newRoot: root))
        #expect(!ConsistencyProof(oldSize: 3, newSize: 2, hashes: [root]).isValid(oldRoot: root, newRoot: root))
        #expect(ConsistencyProof(oldSize: 0, newSize: 0, hashes: []).isValid(oldRoot: .emptyRoot, newRoot: .emptyRoot))
        #expect(!InclusionProof(index: 0, size: 0, hashes: []).isValid(leaf: Self.leaves[0], root: .emptyRoot))
        #expect(!InclusionProof(index: 3, size: 3, hashes: []).isValid(leaf: Self.leaves[0], root: Self.leaves[0]))
    }

    /// Each hash changed alone, one left out, one too many: a check that skips a step accepts one of them.
    static func damaged(_ hashes: [Digest]) -> [[Digest]] {
        var wrong = [hashes + [leaves[138]], [leaves[138]] + hashes]
        for index in hashes.indices {
            var changed = hashes
            changed[index] = leaves[138]
            wrong.append(changed)
            changed.remove(at: index)
            wrong.append(changed)
        }
        return wrong
    }
}

import Sodium
import Testing
import Vocabulary

@testable import Ledger

@Suite struct TreeTests {
    let vectors = Vectors.all

    /// The definition of RFC 6962.
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

    @Test func hashesMatchTheVectors() {
        var edge = TreeEdge()
        #expect(edge.root.base64 == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
        for number in 0..<3 {
            #expect(Self.leaves[number] == Digest(vectors.leaves[number]))
            edge.append(leaf: Self.leaves[number])
            #expect(edge.root.hex == vectors.roots[number].hex)
            #expect(edge.root.base64 == vectors.roots[number].base64)
        }
    }

    @Test func proofsMatchTheVectors() {
        for index in 0..<3 {
            #expect(Self.inclusion(index, 3, Self.leaves).hashes == vectors.inclusion[index].map { Digest($0) })
        }
        for old in [1, 2] {
            #expect(Self.consistency(old, 3, Self.leaves).hashes == vectors.consistency["\(old)"]!.map { Digest($0) })
        }
    }

    @Test func theEdgeHasTheRootOfEverySize() {
        var edge = TreeEdge()
        for size in 0...Self.leaves.count {
            #expect(edge.size == UInt64(size))
            #expect(edge.root == Self.root(Self.leaves.prefix(size)))
            if size < Self.leaves.count { edge.append(leaf: Self.leaves[size]) }
        }
    }

    @Test func theEdgeAcceptsWholeSubtrees() {
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

    @Test func onlyCorrectInclusionProofsAreValid() {
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

    @Test func onlyCorrectConsistencyProofsAreValid() {
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

    @Test func nothingIsConsistentWithTheEmptyTree() {
        let root = Self.root(Self.leaves.prefix(3))
        #expect(!ConsistencyProof(oldSize: 0, newSize: 3, hashes: []).isValid(oldRoot: .emptyRoot, newRoot: root))
        #expect(!ConsistencyProof(oldSize: 0, newSize: 3, hashes: [root]).isValid(oldRoot: root, newRoot: root))
        #expect(!ConsistencyProof(oldSize: 3, newSize: 2, hashes: [root]).isValid(oldRoot: root, newRoot: root))
        #expect(ConsistencyProof(oldSize: 0, newSize: 0, hashes: []).isValid(oldRoot: .emptyRoot, newRoot: .emptyRoot))
        #expect(!InclusionProof(index: 0, size: 0, hashes: []).isValid(leaf: Self.leaves[0], root: .emptyRoot))
        #expect(!InclusionProof(index: 3, size: 3, hashes: []).isValid(leaf: Self.leaves[0], root: Self.leaves[0]))
    }

    /// Variants with one hash changed, missing or added. A check that skips a step would accept one of them.
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

@Suite struct TileLogTests {
    @Test func writesTheVectorsBundle() {
        let plan = TileLog().append((0..<3).map(leaf))
        let files = Dictionary(uniqueKeysWithValues: plan.files.map { ($0.path, $0.bytes) })
        #expect(files.keys.sorted() == ["tile/0/000.p/3", "tile/entries/000.p/3"])
        #expect(hex(files["tile/entries/000.p/3"]!) == Vectors.all.bundle)
        #expect(hex(files["tile/0/000.p/3"]!) == Vectors.all.leaves.joined())
        #expect(plan.root.hex == Vectors.all.roots[2].hex)
    }

    @Test func seventyThousandLeaves() {
        let plan = TileLog().append((0..<70_000).map(leaf))
        #expect(plan.root.hex == Vectors.all.root70000)
        #expect(plan.newSize == 70_000)
        let paths = Set(plan.files.map(\.path))
        #expect(paths.count == plan.files.count)
        // 273 full tiles and bundles, 112 leaves over; 256 + 17 hashes at level 1; 1 at level 2.
        #expect(
            paths.isSuperset(of: [
                "tile/0/272", "tile/0/273.p/112", "tile/1/000", "tile/1/001.p/17", "tile/2/000.p/1", "tile/entries/273.p/112",
            ]))
        #expect(paths.count == 273 * 2 + 2 + 1 + 1 + 1)
    }

    /// A log has the same tiles for any batches and restorations in between.
    @Test func batchSizesDontMatter() throws {
        var random = SeededGenerator(seed: 2)
        let entries = (0..<3000).map(leaf)
        let whole = TileLog().append(entries)
        var (log, files, start) = (TileLog(), [String: [UInt8]](), 0)
        var edge = TreeEdge()
        while start < entries.count {
            let end = min(entries.count, start + [0, 1, 2, 255, 256, 257, 300].randomElement(using: &random)!)
            let plan = log.append(Array(entries[start..<end]))
            #expect(plan.files == log.append(Array(entries[start..<end])).files)
            for file in plan.files { #expect(files.updateValue(file.bytes, forKey: file.path) == nil, "\(file.path) twice") }
            for entry in entries[start..<end] { edge.append(leaf: .leaf(entry.span)) }
            #expect(plan.root == edge.root)
            #expect(plan.newSize == edge.size)
            for path in TileLog.statePaths(size: plan.newSize) { #expect(files[path] != nil, "\(path)") }
            log = try TileLog(size: plan.newSize, files: files)
            #expect(log == plan.log)
            start = end
        }
        for file in whole.files { #expect(files[file.path] == file.bytes) }
    }

    @Test func refusesADamagedState() throws {
        let plan = TileLog().append((0..<300).map(leaf))
        let files = Dictionary(uniqueKeysWithValues: plan.files.map { ($0.path, $0.bytes) })
        #expect(try TileLog(size: 300, files: files).root == plan.root)
        for path in TileLog.statePaths(size: 300) {
            var damaged = files
            damaged[path] = nil
            #expect(throws: TileLog.RestoreFailure.missing(path: path)) { try TileLog(size: 300, files: damaged) }
            damaged[path] = files[path]!.dropLast()
            #expect(throws: TileLog.RestoreFailure.damaged(path: path)) { try TileLog(size: 300, files: damaged) }
            damaged[path] = files[path]! + [0]
            #expect(throws: TileLog.RestoreFailure.damaged(path: path)) { try TileLog(size: 300, files: damaged) }
            damaged[path]![5] ^= 1
            damaged[path]!.removeLast()
            let log = try? TileLog(size: 300, files: damaged)
            #expect(log?.root != plan.root)
        }
    }

    static let numbers: [(UInt64, String)] = [
        (0, "000"), (7, "007"), (12, "012"), (999, "999"), (1000, "x001/000"), (1_234_067, "x001/x234/067"),
        (1_000_000_000, "x001/x000/x000/000"),
    ]

    @Test(arguments: numbers) func tileNumbersAreGrouped(index: UInt64, expected: String) {
        #expect(TilePath.hashes(level: 0, index: index) == "tile/0/\(expected)")
        #expect(TilePath.path(TilePath.entries(index: index), width: 255) == "tile/entries/\(expected).p/255")
        #expect(TilePath.path(TilePath.entries(index: index), width: 256) == "tile/entries/\(expected)")
    }

    @Test func theLongestEntryFits() throws {
        let entry = [UInt8](repeating: 0x61, count: 65_535)
        let plan = TileLog().append([entry, []])
        var bundle = EntryBundle(plan.files.last!.bytes)
        #expect(bundle.next()?.count == 65_535)
        #expect(bundle.next()?.count == 0)
        #expect(bundle.isAtEnd && bundle.next() == nil)
    }
}

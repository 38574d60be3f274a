import Sodium
import Testing
import Vocabulary

@testable import Ledger

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

    /// However a log is cut into batches, and read back between them, it comes to the same tiles.
    @Test func batchesDoNotMatter() throws {
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

    @Test(arguments: numbers) func numbersAreGroups(index: UInt64, expected: String) {
        #expect(TilePath.hashes(level: 0, index: index) == "tile/0/\(expected)")
        #expect(TilePath.path(TilePath.entries(index: index), width: 255) == "tile/entries/\(expected).p/255")
        #expect(TilePath.path(TilePath.entries(index: index), width: 256) == "tile/entries/\(expected)")
    }

    @Test func anEntryMayFillItsLength() throws {
        let entry = [UInt8](repeating: 0x61, count: 65_535)
        let plan = TileLog().append([entry, []])
        var bundle = EntryBundle(plan.files.last!.bytes)
        #expect(bundle.next()?.count == 65_535)
        #expect(bundle.next()?.count == 0)
        #expect(bundle.isAtEnd && bundle.next() == nil)
    }
}

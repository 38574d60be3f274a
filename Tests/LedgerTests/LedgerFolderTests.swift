import Linux
import Sodium
import Testing
import Vocabulary

@testable import Ledger

@Suite final class LedgerFolderTests {
    let key = try! signingKey("log.example/a")
    /// Uses memory if possible, since each file is synced.
    let path = try! File.makeTemporaryFolder(prefix: File.exists("/dev/shm") ? "../dev/shm/mayfly" : "mayfly")
    var folder: LedgerFolder { LedgerFolder(path + "/ledger") }

    deinit { try? File.removeTree(path) }

    func publish(_ plan: PublicationPlan) throws {
        try folder.publish(plan, checkpoint: key.sign(size: plan.newSize, root: plan.root))
    }

    func head(_ plan: PublicationPlan) -> Checkpoint {
        Checkpoint(origin: key.verifierKey.name, size: plan.newSize, root: plan.root)
    }

    func compare(_ plan: PublicationPlan?) throws -> LedgerFolder.Comparison {
        try folder.compare(with: plan.map(head), key: key.verifierKey)
    }

    func isCurrent(_ plan: PublicationPlan?) throws -> Bool {
        if case .current(let log) = try compare(plan) { log == plan?.log ?? TileLog() } else { false }
    }

    /// All files of the folder by their paths.
    func tree(_ below: String = "") throws -> [String: [UInt8]] {
        var files: [String: [UInt8]] = [:]
        for name in try File.list("\(folder.path)\(below)") {
            let place = "\(below)/\(name)"
            if try File.status(folder.path + place)?.kind == .folder {
                files.merge(try tree(place)) { _, new in new }
            } else {
                files[place] = try File.read(folder.path + place, limit: 1 << 20)
            }
        }
        return files
    }

    // Promise: tile-folder
    @Test func publishesAndReadsBack() throws {
        #expect(try isCurrent(nil))
        var log = TileLog()
        for batch in [0..<0, 0..<3, 3..<256, 256..<700] {
            let plan = log.append(batch.map(leaf))
            try publish(plan)
            #expect(try isCurrent(plan))
            log = plan.log
        }
        let files = try tree()
        #expect(
            files.keys.sorted() == [
                "/checkpoint", "/tile/0/000", "/tile/0/001", "/tile/0/002.p/188", "/tile/1/000.p/1", "/tile/1/000.p/2",
                "/tile/entries/000",
                "/tile/entries/001", "/tile/entries/002.p/188",
            ], "partials go once the full tile stands")
        #expect(try File.status(folder.path + "/checkpoint")?.mode == 0o644)
    }

    @Test func publishingAgainChangesNothing() throws {
        let first = TileLog().append((0..<300).map(leaf))
        try publish(first)
        let files = try tree()
        try publish(first)
        #expect(try tree() == files)
        try publish(TileLog().append((0..<300).map(leaf)))
        #expect(try tree() == files)
    }

    /// After a crash at any file, the old checkpoint is intact and the batch can be published again.
    // Promise: folder-behind-is-repaired
    @Test func aPublicationIsRepeatableAfterAnyCrash() throws {
        let first = TileLog().append((0..<200).map(leaf))
        let second = first.log.append((200..<1300).map(leaf))
        #expect(second.files.count > 8, "so many that they are synced together")
        for written in 0...second.files.count {
            try? File.removeTree(folder.path)
            try publish(first)
            try folder.write(Array(second.files.prefix(written)))
            // Truncated files under temporary names.
            for file in second.files.dropFirst(written) {
                let beside = "\(folder.path)/\(file.path).new"
                try File.makeFolder(File.folder(of: beside), mode: 0o755)
                let part = written % 2 == 0 ? Array(file.bytes.prefix(7)) : file.bytes + file.bytes
                try File.write(beside, part.span, mode: 0o644)
            }
            guard case .behind(let log) = try compare(second) else {
                Issue.record("not behind after \(written) files")
                return
            }
            #expect(log == first.log)
            let plan = log.append((200..<1300).map(leaf))
            #expect(plan.root == second.root)
            try publish(plan)
            #expect(try isCurrent(second))
            #expect(try !tree().keys.contains { $0.hasSuffix(".new") })
        }
    }

    /// Readable data may not have reached the disk, and after a failed fsync a second one proves nothing.
    @Test func publishingAgainWritesAgain() throws {
        let plan = TileLog().append((0..<300).map(leaf))
        try publish(plan)
        let places = ["/checkpoint"] + plan.files.map { "/\($0.path)" }
        let before = try places.map { try File.status(folder.path + $0)?.identity }
        let files = try tree()
        try publish(plan)
        #expect(try tree() == files)
        for (place, old) in zip(places, before) { #expect(try File.status(folder.path + place)?.identity != old, "\(place)") }
    }

    @Test func aFolderBeforeItsFirstPublicationIsBehind() throws {
        guard case .behind(let log) = try compare(TileLog().append([leaf(0)])) else {
            Issue.record("not behind")
            return
        }
        #expect(log == TileLog())
    }

    // Promise: folder-ahead-or-different-is-refused
    @Test func aFolderAheadOfTheStoreStopsTheStart() throws {
        let first = TileLog().append((0..<3).map(leaf))
        let second = first.log.append([leaf(3)])
        try publish(first)
        try publish(second)
        #expect(throws: LedgerFolder.Failure.ahead(folder: 4, store: 3)) { try compare(first) }
        #expect(throws: LedgerFolder.Failure.ahead(folder: 4, store: 0)) { try compare(nil) }
        #expect(throws: LedgerFolder.Failure.ahead(folder: 4, store: 3)) { try publish(first) }
        #expect(try isCurrent(second))
    }

    // Promise: folder-ahead-or-different-is-refused
    @Test func anotherHistoryStopsTheStart() throws {
        try publish(TileLog().append((0..<3).map(leaf)))
        let other = TileLog().append([leaf(0), leaf(1), leaf(9)])
        #expect(throws: LedgerFolder.Failure.different(size: 3)) { try compare(other) }
        #expect(throws: LedgerFolder.Failure.different(size: 3)) { try publish(other) }
        let stranger = try signingKey("log.example/a", seed: 2).verifierKey
        #expect(throws: LedgerFolder.Failure.foreignCheckpoint) {
            try folder.compare(with: head(other), key: stranger)
        }
    }

    @Test func filesAreNeverOverwritten() throws {
        let first = TileLog().append((0..<3).map(leaf))
        try publish(first)
        let files = try tree()
        // Another history of the same size, so with the same paths.
        let fork = TileLog().append([leaf(7), leaf(8), leaf(9)])
        #expect(throws: LedgerFolder.Failure.conflict(path: "tile/0/000.p/3")) { try folder.write(fork.files) }
        #expect(try tree() == files)
        let next = first.log.append([leaf(3)])
        try folder.write(next.files)
        let other = first.log.append([leaf(4)])
        #expect(throws: LedgerFolder.Failure.conflict(path: "tile/0/000.p/4")) { try publish(other) }
        #expect(try folder.checkpoint() == key.sign(size: 3, root: first.root).encoded)
    }

    /// The plan doesn't match the signed head.
    @Test func aPlanIsPublishedOnlyWithItsOwnCheckpoint() throws {
        let (plan, other) = (TileLog().append([leaf(0), leaf(1)]), TileLog().append([leaf(0), leaf(2)]))
        for checkpoint in [key.sign(size: 2, root: other.root), key.sign(size: 3, root: plan.root)] {
            #expect(throws: LedgerFolder.Failure.different(size: 2)) { try folder.publish(plan, checkpoint: checkpoint) }
        }
        #expect(!File.exists(folder.path))
    }

    @Test func aDamagedStateStopsTheStart() throws {
        let plan = TileLog().append((0..<300).map(leaf))
        try publish(plan)
        for state in TileLog.statePaths(size: 300) {
            let good = try File.read("\(folder.path)/\(state)", limit: 1 << 20)
            for damage in [Array(good.dropLast()), good + [0], [good[0] ^ 1] + good.dropFirst()] {
                try File.write("\(folder.path)/\(state)", damage.span, mode: 0o644)
                #expect(throws: LedgerFolder.Failure.self, "\(state)") { try compare(plan) }
            }
            try File.remove("\(folder.path)/\(state)")
            #expect(throws: LedgerFolder.Failure.missing(path: state)) { try compare(plan) }
            try File.write("\(folder.path)/\(state)", good.span, mode: 0o644)
        }
        try File.write("\(folder.path)/checkpoint", bytes("nonsense").span, mode: 0o644)
        #expect(throws: LedgerFolder.Failure.foreignCheckpoint) { try compare(plan) }
        #expect(throws: LedgerFolder.Failure.foreignCheckpoint) { try publish(plan) }
    }

    @Test func aFailedWriteKeepsTheHead() throws {
        let first = TileLog().append((0..<3).map(leaf))
        try publish(first)
        // A file where a folder must be.
        try File.write(folder.path + "/tile/1", bytes("x").span, mode: 0o644)
        let second = first.log.append((3..<300).map(leaf))
        #expect(throws: LedgerFolder.Failure.self) { try publish(second) }
        #expect(try folder.checkpoint() == key.sign(size: 3, root: first.root).encoded)
        try File.remove(folder.path + "/tile/1")
        try publish(second)
        #expect(try isCurrent(second))
    }

    /// A checkpoint can be published again with more cosignatures. Another one of the same size can't.
    @Test func cosignaturesCanBeAddedLater() throws {
        let plan = TileLog().append((0..<3).map(leaf))
        try publish(plan)
        var note = key.sign(size: 3, root: plan.root)
        for seed in 1...3 as ClosedRange<UInt8> {
            note.append(TestWitness(seed).cosign(note.text, at: 1_800_000_000))
            try folder.publish(plan.log.append([]), checkpoint: note)
            #expect(try folder.checkpoint() == note.encoded)
            #expect(try isCurrent(plan))
        }
        let next = plan.log.append([leaf(3)])
        guard case .behind(let log) = try compare(next) else {
            Issue.record("not behind")
            return
        }
        #expect(log == plan.log)
    }

    /// Proofs of a head are made before its publication.
    @Test func aPlansSourceShowsTheFolderAfterPublication() async throws {
        let first = TileLog().append((0..<300).map(leaf))
        try publish(first)
        let next = first.log.append((300..<700).map(leaf))
        var tiles = TileReader(folder.source(after: next), size: 700)
        for old in [1, 255, 256, 299, 300, 512, 699] as [UInt64] {
            let proof = try await tiles.consistencyProof(oldSize: old, leadingTo: next.root)
            #expect(!proof.isEmpty)
        }
        #expect(try isCurrent(first), "nothing was written")
    }

    @Test func storesPoliciesUnderTheirDigest() throws {
        let policy = bytes("{\"name\":\"rooms\"}")
        let digest = try folder.writePolicy(policy)
        #expect(digest.hex == hex(SHA256.hash(policy.span)))
        #expect(try folder.read("policies/\(digest.hex).json") == policy)
        #expect(try folder.writePolicy(policy) == digest)
    }
}

/// A start removes what a crash left in the ledger's folder and keeps the published log.
@Suite final class TidyingTests {
    let key = try! signingKey("log.example/a")
    let path = try! File.makeTemporaryFolder()
    var folder: LedgerFolder { LedgerFolder(path + "/ledger") }

    deinit { try? File.removeTree(path) }

    func publish(_ plan: PublicationPlan) throws {
        try folder.publish(plan, checkpoint: key.sign(size: plan.newSize, root: plan.root))
    }

    func put(_ file: String) throws {
        try File.makeFolder(File.folder(of: "\(folder.path)/\(file)"), mode: 0o755)
        try File.write("\(folder.path)/\(file)", bytes("left").span, mode: 0o644)
    }

    /// The paths of all files.
    func files(_ below: String = "") throws -> [String] {
        try File.list("\(folder.path)/\(below)").flatMap { name in
            let place = below.isEmpty ? name : "\(below)/\(name)"
            return try File.status("\(folder.path)/\(place)")?.kind == .folder ? try files(place) : [place]
        }
    }

    @Test func partialFilesBesideFullOnesAreRemoved() throws {
        let first = TileLog().append((0..<200).map(leaf))
        try publish(first)
        let second = first.log.append((200..<600).map(leaf))
        try publish(second)
        let expected = try files()
        // Simulates a crash between checkpoint and tidying.
        for file in first.files + [LogFile(path: "tile/0/001.p/7", bytes: []), LogFile(path: "tile/entries/001.p/7", bytes: [])] {
            try put(file.path)
        }
        #expect(try files().count == expected.count + 4)
        folder.tidy()
        #expect(try files() == expected)
        folder.tidy()
        #expect(try files() == expected)
    }

    /// A crash left a full tile without its checkpoint. The published log still needs the partial tile.
    @Test func filesOfThePublishedLogAreKept() throws {
        let first = TileLog().append((0..<200).map(leaf))
        try publish(first)
        let second = first.log.append((200..<600).map(leaf))
        try folder.write(second.files)
        folder.tidy()
        guard
            case .behind(let log) = try folder.compare(
                with: Checkpoint(origin: key.verifierKey.name, size: 600, root: second.root), key: key.verifierKey)
        else {
            Issue.record("not behind")
            return
        }
        #expect(log == first.log)
    }

    @Test func partialFilesWithoutAFullOneAreKept() throws {
        try publish(TileLog().append((0..<600).map(leaf)))
        try File.remove(folder.path + "/tile/0/001")
        try put("tile/0/001.p/7")
        folder.tidy()
        #expect(try files().contains("tile/0/001.p/7"))
    }

    @Test func temporaryFilesAreRemoved() throws {
        let plan = TileLog().append((0..<600).map(leaf))
        try publish(plan)
        _ = try folder.writePolicy(bytes("{}"))
        let expected = try files()
        for file in plan.files { try put(file.path + ".new") }
        for file in [
            "checkpoint.new", "policies/x.json.new", "tile/0/002.p/99.new", "tile/0/003.new", "tile/0/003.p/1.new",
            "tile/entries/003.new", "tile/entries/002.p/99.new", "tile/1/000.p/9.new",
        ] { try put(file) }
        folder.tidy()
        #expect(try files() == expected)
    }

    /// The time of a start must not grow with the log.
    @Test func onlyTheEndOfTheLogIsSearched() throws {
        let size: UInt64 = 300_000_000
        try File.makeFolder(folder.path, mode: 0o755)
        let head = key.sign(size: size, root: .emptyRoot).encoded
        try File.write(folder.path + "/checkpoint", head.span, mode: 0o644)
        let tile = size >> 8
        #expect(tile == 1_171_875)
        let near = [
            "tile/0/x001/x171/875.new", "tile/0/x001/x171/875.p/3.new", "tile/0/x001/x171/000.p/3", "tile/0/x001/x170/999.p/3",
        ]
        let far = ["tile/0/x001/x169/999.p/3", "tile/0/x001/x000/000.new", "tile/0/000.p/3", "tile/entries/001.new"]
        for file in near + far { try put(file) }
        for full in ["tile/0/x001/x171/000", "tile/0/x001/x170/999", "tile/0/x001/x169/999", "tile/0/000"] { try put(full) }
        folder.tidy()
        let left = Set(try files())
        #expect(left.isDisjoint(with: near) && left.isSuperset(of: far))
    }

    @Test func nothingIsRemovedWithoutACheckpoint() throws {
        folder.tidy()
        #expect(!File.exists(folder.path))
        try put("tile/0/000.new")
        folder.tidy()
        try File.write(folder.path + "/checkpoint", bytes("nonsense").span, mode: 0o644)
        folder.tidy()
        #expect(try files() == ["checkpoint", "tile/0/000.new"])
    }
}

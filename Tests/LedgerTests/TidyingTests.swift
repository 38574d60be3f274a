import Linux
import Testing

@testable import Ledger

/// What a crash left in the ledger's folder goes at the next start; what the published log needs stays.
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

    @Test func partialFilesBesideFullOnesGo() throws {
        let first = TileLog().append((0..<200).map(leaf))
        try publish(first)
        let second = first.log.append((200..<600).map(leaf))
        try publish(second)
        let expected = try files()
        // As if the crash had come between the checkpoint and the tidying.
        for file in first.files + [LogFile(path: "tile/0/001.p/7", bytes: []), LogFile(path: "tile/entries/001.p/7", bytes: [])] {
            try put(file.path)
        }
        #expect(try files().count == expected.count + 4)
        folder.tidy()
        #expect(try files() == expected)
        folder.tidy()
        #expect(try files() == expected)
    }

    /// The full tile of a publication whose checkpoint never came: until then the partial one is what the published log stands on.
    @Test func whatThePublishedLogNeedsStays() throws {
        let first = TileLog().append((0..<200).map(leaf))
        try publish(first)
        let second = first.log.append((200..<600).map(leaf))
        try folder.write(second.files)
        folder.tidy()
        guard
            case .behind(let log) = try folder.standing(
                comparedWith: Checkpoint(origin: key.verifierKey.name, size: 600, root: second.root), key: key.verifierKey)
        else {
            Issue.record("not behind")
            return
        }
        #expect(log == first.log)
    }

    @Test func partialFilesWithoutAFullOneStay() throws {
        try publish(TileLog().append((0..<600).map(leaf)))
        try File.remove(folder.path + "/tile/0/001")
        try put("tile/0/001.p/7")
        folder.tidy()
        #expect(try files().contains("tile/0/001.p/7"))
    }

    @Test func filesThatNeverGotTheirNamesGo() throws {
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

    /// A start may not take longer for every tile that the log has.
    @Test func onlyTheEndIsLookedAt() throws {
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

    @Test func nothingIsTouchedWithoutACheckpoint() throws {
        folder.tidy()
        #expect(!File.exists(folder.path))
        try put("tile/0/000.new")
        folder.tidy()
        try File.write(folder.path + "/checkpoint", bytes("nonsense").span, mode: 0o644)
        folder.tidy()
        #expect(try files() == ["checkpoint", "tile/0/000.new"])
    }
}

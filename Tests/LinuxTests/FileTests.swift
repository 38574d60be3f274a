import Linux
import Testing

@Suite final class FileTests {
    let folder: String
    init() throws { folder = try File.makeTemporaryFolder() }
    deinit { try? File.removeTree(folder) }

    private func path(_ name: String) -> String { "\(folder)/\(name)" }
    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    @Test func replacingFollowsNoLinkBesideTheFile() throws {
        let (file, other) = (path("published"), path("of someone else"))
        try File.write(other, bytes("kept").span, mode: 0o600)
        try File.symbolicLink(file + ".new", to: other)
        try File.replaceDurably(file, bytes("new").span, mode: 0o644)
        #expect(try File.read(other, limit: 10) == bytes("kept"))
        #expect(try File.status(file, followLinks: false)?.kind == .file)
        #expect(try !File.isMountPoint(file))
        #expect(try File.isMountPoint("/"))
    }

    @Test func replacesAtomicallyWithTheRequestedMode() throws {
        let file = path("a")
        try File.replaceDurably(file, bytes("first").span, mode: 0o640)
        try File.replaceDurably(file, bytes("second").span, mode: 0o600)
        #expect(try File.read(file, limit: 100) == bytes("second"))
        #expect(try File.status(file)?.mode == 0o600)
        #expect(try File.status(file)?.isPrivate == true)
        #expect(try File.list(folder) == ["a"])
    }

    @Test func modeIgnoresTheUmask() throws {
        try File.replaceDurably(path("wide"), bytes("x").span, mode: 0o666)
        #expect(try File.status(path("wide"))?.mode == 0o666)
        #expect(try File.status(path("wide"))?.isPrivate == false)
    }

    @Test func replacingErasesTheLeftoverOfACrash() throws {
        let file = path("key")
        try File.write(path("key.new"), bytes("half written secret").span, mode: 0o600)
        let leftover = try OpenFile(path("key.new"), .read)
        try File.replaceDurably(file, bytes("x").span, mode: 0o600)
        var seen = [UInt8](repeating: 1, count: 19)
        var span = seen.mutableSpan
        _ = try leftover.read(into: &span, at: 0)
        #expect(seen.allSatisfy { $0 == 0 })
        #expect(try File.list(folder) == ["key"])
    }

    @Test(arguments: [0, 1, 4095, 4096, 4097, 9999, 10_000])
    func readsUpToItsLimit(size: Int) throws {
        let content = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        try File.write(path("f"), content.span, mode: 0o600)
        #expect(try File.read(path("f"), limit: 10_000) == content)
        #expect(try File.read(path("f"), limit: size) == content)
        if size > 0 { #expect(throws: Errno.self) { try File.read(path("f"), limit: size - 1) } }
    }

    @Test func refusesToOpenSpecialFiles() throws {
        let socket = try Socket.listen(on: .unix(path("socket")))
        for other in [path("socket"), "/dev/zero", "/dev/null"] {
            for access in [OpenFile.Access.read, .readWrite, .create(mode: 0o600)] {
                let error = #expect(throws: Errno.self) { _ = try OpenFile(other, access) }
                #expect(error?.description.contains("which is a pipe, a device or a socket") == true, "\(other)")
                // The text of the error number adds nothing.
                #expect(error?.description.contains("Invalid argument") == false)
            }
        }
        #expect(throws: Errno.self) { try File.replaceDurably(path("socket"), [1].span, mode: 0o600) }
        #expect(try File.status(path("socket"))?.kind == .socket)
        _ = consume socket
        // Folders can be opened to lock or sync them.
        _ = try OpenFile(folder, .read)
        // Appending to a terminal is allowed.
        try OpenFile("/dev/null", .append(mode: 0o600)).write(bytes("x").span, at: 0)
    }

    @Test func readsFilesThatHaveNoSize() throws {
        #expect(try File.read("/proc/self/status", limit: 100_000).count > 100)
    }

    @Test func aMissingFileIsNamedInTheError() throws {
        let error = try #require(throws: Errno.self) { try File.read(path("none"), limit: 1) }
        #expect(error.isMissing)
        #expect(error.description == "open \(path("none")): No such file or directory")
        #expect(try File.status(path("none")) == nil)
        #expect(try File.status(path("none/deeper")) == nil)
        #expect(!File.exists(path("none")))
    }

    @Test func makesFoldersPrivateWithTheirParents() throws {
        try File.makeFolder(path("x/y/z"))
        try File.makeFolder(path("x/y/z"))
        #expect(try File.status(path("x/y"))?.mode == 0o700)
        try File.write(path("plain"), bytes("").span, mode: 0o600)
        #expect(throws: Errno.self) { try File.makeFolder(path("plain")) }
        #expect(throws: Errno.self) { try File.makeFolder(path("plain/under")) }
    }

    @Test func statusDescribesALinkOrItsTarget() throws {
        try File.write(path("t"), bytes("abc").span, mode: 0o600)
        try File.symbolicLink(path("l"), to: path("t"))
        #expect(try File.status(path("l"))?.kind == .file)
        #expect(try File.status(path("l"), followLinks: false)?.kind == .link)
    }

    @Test func aSecondNameIsCounted() throws {
        try File.write(path("t"), bytes("abc").span, mode: 0o600)
        #expect(try File.status(path("t"))?.links == 1)
        try File.hardLink(path("u"), to: path("t"))
        #expect(try File.status(path("t"))?.links == 2)
        #expect(try File.status(path("t"))?.identity == File.status(path("u"))?.identity)
    }

    @Test func openFilesReadAndWriteAtOffsets() throws {
        let file = try OpenFile(path("f"), .createNew(mode: 0o600))
        try file.write(bytes("hello").span, at: 3)
        try file.syncData()
        #expect(try file.status().size == 8)
        try file.truncate(to: 5)
        #expect(try File.read(path("f"), limit: 10) == [0, 0, 0] + bytes("he"))
        #expect(throws: Errno.self) { _ = try OpenFile(path("f"), .createNew(mode: 0o600)) }
        let reader = try OpenFile(path("f"), .read)
        #expect(throws: Errno.self) { try reader.write(bytes("x").span, at: 0) }
    }

    @Test func aLockHasOneHolder() throws {
        let first = try OpenFile(path("lock"), .create(mode: 0o600))
        let second = try OpenFile(path("lock"), .create(mode: 0o600))
        #expect(try first.tryLock())
        #expect(try !second.tryLock())
    }

    @Test func removeAndEraseLeavesNothingReadable() throws {
        try File.write(path("k"), bytes("secret").span, mode: 0o600)
        let open = try OpenFile(path("k"), .read)
        try File.removeAndErase(path("k"))
        var seen = [UInt8](repeating: 1, count: 6)
        var span = seen.mutableSpan
        _ = try open.read(into: &span, at: 0)
        #expect(seen == [0, 0, 0, 0, 0, 0])
        #expect(!File.exists(path("k")))
    }

    @Test func removeTreeLeavesTheTargetsOfLinksAlone() throws {
        try File.makeFolder(path("keep"))
        try File.write(path("keep/f"), bytes("x").span, mode: 0o600)
        try File.makeFolder(path("gone/deep"))
        try File.symbolicLink(path("gone/deep/l"), to: path("keep"))
        try File.removeTree(path("gone"))
        #expect(try File.list(folder) == ["keep"])
        #expect(File.exists(path("keep/f")))
    }

    @Test(arguments: [("a/b", "a"), ("a", "."), ("/a", "/"), ("/a/b/c", "/a/b")])
    func folderOfAPath(path: String, folder: String) {
        #expect(File.folder(of: path) == folder)
    }
}

@Suite struct FileSystemTests {
    @Test func syncsTheFileSystemOfAFolder() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let bytes: [UInt8] = [1, 2, 3]
        let system = try FileSystem(folder)
        try File.write("\(folder)/a", bytes.span, mode: 0o600)
        try system.sync()
        #expect(try File.read("\(folder)/a", limit: 10) == bytes)
    }

    @Test func refusesAnythingButAFolder() {
        #expect(throws: Errno.self) { _ = try FileSystem("/nowhere/at/all") }
        #expect(throws: Errno.self) { _ = try FileSystem("/etc/hostname") }
    }
}

@Suite struct WipingTests {
    @Test func zeroesPartOrAllOfAnArray() {
        var bytes: [UInt8] = [1, 2, 3, 4]
        wipe(&bytes, first: 2)
        #expect(bytes == [0, 0, 3, 4])
        wipe(&bytes)
        #expect(bytes == [0, 0, 0, 0])
        var none: [UInt8] = []
        wipe(&none)
        #expect(none.isEmpty)
    }
}

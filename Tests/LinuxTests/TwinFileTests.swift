import Glibc
import Testing

@testable import Linux

@Suite final class TwinFileTests {
    private let folder: String
    private let old = [UInt8]("the old keys".utf8)
    private let new = [UInt8]("and the new ones".utf8)

    init() throws { folder = try File.makeTemporaryFolder() }
    deinit { try? File.removeTree(folder) }

    private var path: String { folder + "/key" }
    private func content(_ name: String = "key") throws -> [UInt8] { try File.read("\(folder)/\(name)", limit: 10_000) }
    private func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

    private func write(_ path: String, _ bytes: [UInt8]) throws { try File.write(path, bytes.span, mode: 0o600) }

    private func made() throws -> TwinFile {
        let twin = TwinFile(path)
        try twin.create(old)
        return twin
    }

    /// Interrupts a replacement at `stage`, like a crash.
    private func crash(at stage: TwinFile.Stage, _ errno: Int32 = EIO) throws {
        var stopped = TwinFile(path)
        stopped.reached = { (here) throws(Errno) in if here == stage { throw Errno(code: errno, call: "crash") } }
        let twin = stopped
        if errno == EIO {
            #expect(throws: Errno(code: EIO, call: "crash")) { try twin.replace(self.new) }
        } else {
            try twin.replace(new)
        }
    }

    @Test func createsTwoPrivateFilesOfOneSize() throws {
        _ = try made()
        #expect(try content() == old && content("key.new") == zeros(old.count))
        for name in ["key", "key.new"] { #expect(try File.status("\(folder)/\(name)")?.mode == 0o600) }
        #expect(throws: Errno.self) { try TwinFile(self.path).create(self.new) }
        #expect(try content() == old)
    }

    @Test func creatingZeroesAnEarlierSpare() throws {
        try write(path + ".new", new)
        _ = try made()
        #expect(try content() == old && content("key.new") == zeros(old.count))
    }

    @Test func replacingSwapsTheTwoFiles() throws {
        let twin = try made()
        let identity = try [File.status(path)?.identity, File.status(twin.spare)?.identity]
        for (count, bytes) in [new, old, [1], new + old].enumerated() {
            let size = try content().count
            try twin.replace(bytes)
            #expect(try content() == bytes && content("key.new") == zeros(max(size, bytes.count)))
            #expect(try File.status(path)?.identity == identity[(count + 1) % 2])
            #expect(try File.list(folder) == ["key", "key.new"])
        }
    }

    @Test func prepareZeroesTheSpareAfterACrash() throws {
        for stage in [TwinFile.Stage.written, .exchanged, .durable, .erased] {
            let twin = try made()
            try crash(at: stage)
            #expect(try content() == (stage == .written ? old : new))
            #expect(try content("key.new") == (stage == .written ? new : stage == .erased ? zeros(old.count) : old))
            try twin.prepare()
            #expect(try content("key.new").allSatisfy { $0 == 0 } && content("key.new").count >= content().count)
            #expect(try content() == (stage == .written ? old : new))
            try twin.replace(old)
            #expect(try content() == old)
            for name in try File.list(folder) { try File.remove("\(folder)/\(name)") }
        }
    }

    @Test func replacingZeroesTheSpareAfterACrash() throws {
        let twin = try made()
        try crash(at: .durable)
        try twin.replace([7])
        #expect(try content() == [7] && content("key.new") == zeros(new.count))
    }

    @Test(arguments: [EINVAL, ENOSYS, EOPNOTSUPP])
    func replacesWithoutSupportForExchange(errno: Int32) throws {
        let twin = try made()
        let before = try OpenFile(path, .read)
        try crash(at: .written, errno)
        #expect(try content() == new && content("key.new") == zeros(new.count))
        #expect(try before.isZero() && before.status().size == old.count)
        #expect(try File.list(folder) == ["key", "key.new"])
        try twin.replace(old)
        #expect(try content() == old)
    }

    @Test func hardLinksReadOnlyZeros() throws {
        let twin = try made()
        try File.hardLink(folder + "/copy", to: path)
        try twin.replace(new)
        #expect(try content("copy") == zeros(old.count))
        try File.hardLink(folder + "/spare", to: twin.spare)
        for bytes in [old, new, old] {
            try twin.replace(bytes)
            #expect(try content("copy") == zeros(old.count))
            #expect(try content("spare").allSatisfy { $0 == 0 })
            #expect(try content() == bytes && File.status(path)?.links == 1)
        }
    }

    @Test func recreatesAMissingFile() throws {
        let twin = try made()
        try File.remove(path)
        try twin.replace(new)
        #expect(try content() == new && content("key.new") == zeros(new.count))
    }

    @Test func removesALinkInPlaceOfTheSpare() throws {
        let twin = try made()
        try write(folder + "/other", new)
        for target in [folder + "/other", folder + "/nowhere", path] {
            try File.remove(twin.spare)
            try File.symbolicLink(twin.spare, to: target)
            try twin.replace(old)
            #expect(try File.status(twin.spare, followLinks: false)?.kind == .file)
            #expect(try content() == old && content("other") == new)
        }
        #expect(!File.exists(folder + "/nowhere"))
    }

    @Test(arguments: [0o644, 0o666, 0o400, 0, 0o4600] as [UInt32])
    func replacesASpareOfAnotherMode(mode: UInt32) throws {
        let twin = try made()
        try crash(at: .durable)
        let reader = try OpenFile(twin.spare, .readWrite)
        try reader.setMode(mode)
        try twin.prepare()
        #expect(try reader.isZero() && reader.status().links == 0)
        #expect(try File.status(twin.spare)?.mode == 0o600)
        try twin.replace(old)
        #expect(try reader.isZero())
    }

    @Test(.enabled(if: geteuid() == 0, "needs root, to give a file away"))
    func replacesAnotherUsersSpareWithoutWriting() throws {
        let twin = try made()
        try write(twin.spare, new)
        let theirs = try OpenFile(twin.spare, .readWrite)
        #expect(fchown(theirs.descriptor.raw, 65_534, 65_534) == 0)
        try twin.prepare()
        #expect(try !theirs.isZero() && theirs.status().links == 0)
        #expect(try File.status(twin.spare)?.owner == 0 && content("key.new") == zeros(old.count))
    }

    @Test func refusesAFolderInPlaceOfTheSpare() throws {
        let twin = try made()
        try File.remove(twin.spare)
        try File.makeFolder(twin.spare)
        #expect(throws: Errno.self) { try twin.prepare() }
        #expect(throws: Errno.self) { try twin.replace(self.new) }
        #expect(try content() == old)
    }

    @Test(arguments: [0, 4, 12, 5000]) func acceptsASpareOfAnotherSize(size: Int) throws {
        let twin = try made()
        try write(twin.spare, zeros(size))
        try twin.prepare()
        #expect(try content("key.new") == zeros(max(size, old.count)))
        try twin.replace(new)
        #expect(try content() == new)
    }
}

// `#expect` can't capture a span, so the tests use arrays.
extension TwinFile {
    fileprivate func create(_ bytes: [UInt8]) throws { try create(bytes.span) }
    fileprivate func replace(_ bytes: [UInt8]) throws { try replace(bytes.span) }
}

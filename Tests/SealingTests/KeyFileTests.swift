import Testing

@testable import Linux
@testable import Sealing

@Suite struct KeyFileTests {
    private func failure(_ folder: KeyFolder) -> KeyFileError? {
        do throws(KeyFileError) {
            _ = try KeyRing.load(path: folder.path)
            return nil
        } catch {
            return error
        }
    }

    // Promise: key-file-private
    @Test func aKeyFileIsPrivateAndCreatedOnce() throws {
        let folder = try KeyFolder()
        let status = try #require(try File.status(folder.path))
        #expect(status.mode == 0o600 && status.size == 64 + 44 + 32)
        let before = try folder.bytes()
        #expect(throws: KeyFileError.alreadyExists) { try KeyRing.create(path: folder.path, nowMs: KeyFolder.startMs) }
        #expect(try folder.bytes() == before)
        #expect(try File.list(folder.folder) == ["ratchet.key", "ratchet.key.new"])
        #expect(try folder.spare() == [UInt8](repeating: 0, count: before.count))
        #expect(try File.status(folder.path + ".new")?.mode == 0o600)
    }

    @Test func aMissingFileIsReported() throws {
        let folder = try KeyFolder(creating: nil)
        #expect(failure(folder) == .missing)
        #expect(try File.list(folder.folder) == [])
        #expect(throws: KeyFileError.self) { try KeyRing.create(path: folder.folder + "/none/x", nowMs: KeyFolder.startMs) }
        #expect(failure(folder) == .missing)
    }

    // Promise: key-file-private
    @Test(arguments: [0o640, 0o604, 0o660, 0o610, 0o602, 0o644] as [UInt32]) func looseModesAreRefused(mode: UInt32) throws {
        let folder = try KeyFolder()
        try folder.write(folder.bytes(), mode: mode)
        #expect(failure(folder) == .looseMode(mode))
        try folder.write(folder.bytes(), mode: 0o400)
        #expect(failure(folder) == nil)
    }

    @Test func linksAndFoldersAreRefused() throws {
        let folder = try KeyFolder()
        try File.rename(folder.path, to: folder.path + ".real")
        try File.symbolicLink(folder.path, to: folder.path + ".real")
        #expect(failure(folder) == .notAFile)
        try File.remove(folder.path)
        try File.makeFolder(folder.path)
        #expect(failure(folder) == .notAFile)
    }

    @Test func everyTruncationIsRefused() throws {
        let folder = try KeyFolder()
        let whole = try folder.bytes()
        for count in 0..<whole.count {
            try folder.write(Array(whole[..<count]))
            #expect(failure(folder) == .truncated, "\(count)")
        }
        try folder.write(whole + [0])
        #expect(failure(folder) == .corrupt)
        try folder.write([UInt8](repeating: 7, count: 20_000))
        #expect(failure(folder) == .notAKeyFile)
        try folder.write([UInt8](repeating: 0, count: whole.count))
        #expect(failure(folder) == .notAKeyFile)
        try folder.write(whole)
        #expect(failure(folder) == nil)
    }

    @Test func everyChangedByteIsRefused() throws {
        let folder = try KeyFolder()
        let whole = try folder.bytes()
        for index in whole.indices {
            var changed = whole
            changed[index] ^= 1
            try folder.write(changed)
            switch index {
            case 0..<8: #expect(failure(folder) == .notAKeyFile)
            case 8..<12: #expect(failure(folder) == .unknownVersion(1 ^ (1 << UInt32(8 * (11 - index)))))
            case 12..<16: #expect([.corrupt, .truncated].contains(failure(folder)))
            default: #expect(failure(folder) == .corrupt, "\(index)")
            }
        }
    }

    @Test func impossibleNumbersAreRefusedDespiteTheChecksum() throws {
        func image(_ base: UInt64, _ entries: [(UInt32, UInt64)]) throws -> [UInt8] {
            let image = try KeyImage(generations: entries.count, steps: 1, base: Epoch(base))
            for (index, entry) in entries.enumerated() { image.write(index, id: entry.0, born: Epoch(entry.1)) }
            image.finish()
            var bytes: [UInt8] = []
            image.withBytes { for index in $0.indices { bytes.append($0[index]) } }
            return bytes
        }
        let folder = try KeyFolder()
        for (base, entries) in [
            (1000, [(1, 1002)]), (1000, [(2, 900), (1, 950)]), (1000, [(1, 950), (2, 900)]), (1000, [(1, 900), (1, 950)]),
            (5, [(1, 1)]),
            (.max, [(1, 900)]), (1000, [(.max, 900)]),
        ] as [(UInt64, [(UInt32, UInt64)])] {
            try folder.write(image(base, entries))
            #expect(failure(folder) == .corrupt, "\(base)")
        }
        try folder.write(image(1000, [(1, 713), (2, 1001)]))
        #expect(failure(folder) == nil)
    }

    // Promise: step-zeroes-the-old-file
    @Test func stepZeroesTheOldFile() throws {
        let folder = try KeyFolder()
        let before = try folder.bytes()
        try File.hardLink(folder.folder + "/copy", to: folder.path)
        let ring = try folder.load()
        let step = try ring.step(nowMs: KeyFolder.startMs + KeyFolder.epochMs)
        #expect(step?.steps == 2)
        #expect(try File.read(folder.folder + "/copy", limit: 1000) == [UInt8](repeating: 0, count: before.count))
        #expect(try folder.bytes() != before)
        #expect(try File.status(folder.path)?.mode == 0o600)
        #expect(try File.list(folder.folder) == ["copy", "ratchet.key", "ratchet.key.new"])
    }

    // Promise: step-survives-a-crash
    @Test func aCrashBeforeTheExchangeLeavesTheOldFile() throws {
        let folder = try KeyFolder()
        let old = try folder.bytes()
        let later = KeyFolder.startMs + 2 * KeyFolder.epochMs
        _ = try folder.load().step(nowMs: later)
        let new = try folder.bytes()
        // Simulates a crash with the new file written completely or in part.
        for written in [0, 10, 100, new.count] {
            try folder.write(old)
            let part = Array(new[..<written])
            try File.write(folder.path + ".new", part.span, mode: 0o600)
            try File.hardLink(folder.folder + "/copy", to: folder.path + ".new")
            let again = try folder.load().step(nowMs: later)
            #expect(again?.steps == 2)
            // The next step derives the same keys and removes what the crash left.
            #expect(try folder.bytes() == new)
            #expect(try File.list(folder.folder) == ["copy", "ratchet.key", "ratchet.key.new"])
            #expect(try File.read(folder.folder + "/copy", limit: 1000) == [UInt8](repeating: 0, count: written))
            try File.remove(folder.folder + "/copy")
        }
    }

    @Test func oldKeysInTheSpareAreZeroedWithoutAStep() throws {
        let folder = try KeyFolder()
        let old = try folder.bytes()
        let later = KeyFolder.startMs + KeyFolder.epochMs
        _ = try folder.load().step(nowMs: later)
        let new = try folder.bytes()
        // Simulates a crash right after the exchange.
        try File.write(folder.path + ".new", old.span, mode: 0o600)
        let ring = try folder.load()
        #expect(try folder.spare() == old, "a load changes nothing: a broker may be running")
        #expect(try ring.step(nowMs: later) == nil)
        #expect(try folder.spare() == [UInt8](repeating: 0, count: old.count) && folder.bytes() == new)
        // An implausible clock doesn't prevent it.
        try File.write(folder.path + ".new", old.span, mode: 0o600)
        #expect(throws: KeyFileError.implausibleTime) { try ring.step(nowMs: .max) }
        #expect(try folder.spare() == [UInt8](repeating: 0, count: old.count))
    }

    @Test func aMissingSpareIsCreated() throws {
        let folder = try KeyFolder()
        try File.remove(folder.path + ".new")
        let ring = try folder.load()
        #expect(try File.list(folder.folder) == ["ratchet.key"])
        #expect(try ring.step(nowMs: KeyFolder.startMs) == nil)
        #expect(try folder.spare() == [UInt8](repeating: 0, count: folder.bytes().count))
    }

    @Test(.enabled(if: FullDisk.isPossible, "NOT TESTED: steps on a full disk. Run as root where file systems may be mounted"))
    func aFullDiskDoesNotPreventSteps() throws {
        let disk = try FullDisk()
        let path = disk.folder + "/ratchet.key"
        try KeyRing.create(path: path, nowMs: KeyFolder.startMs)
        let ring = try KeyRing.load(path: path)
        try disk.fill()
        #expect(throws: KeyFileError.self) { try KeyRing.create(path: disk.folder + "/another", nowMs: KeyFolder.startMs) }
        #expect(!File.exists(disk.folder + "/another"))

        // Ten days with a step every two hours, with several generations.
        var before = try File.read(path, limit: 10_000)
        for count in 1...120 as ClosedRange<UInt64> {
            #expect(try ring.step(nowMs: KeyFolder.startMs + count * 7_200_000)?.steps == count + 1)
            #expect(try File.read(path + ".new", limit: 10_000).allSatisfy { $0 == 0 })
            let now = try File.read(path, limit: 10_000)
            #expect(now != before)
            before = now
        }
        #expect(ring.currentGeneration > 9)
        _ = try KeyRing.load(path: path)

        // Without the spare file, a step needs disk space and fails. Without a due step nothing fails.
        try File.remove(path + ".new")
        try disk.fill()
        let now = KeyFolder.startMs + 121 * 7_200_000
        #expect(try ring.step(nowMs: KeyFolder.startMs) == nil)
        let error = #expect(throws: KeyFileError.self) { try ring.step(nowMs: now) }
        #expect(error?.description.contains("No space left") == true)
        #expect(try File.read(path, limit: 10_000) == before && ring.steps == 121)
        try disk.free()
        #expect(try ring.step(nowMs: now)?.steps == 122)
    }

    @Test(.enabled(if: FullDisk.isPossible, "NOT TESTED: a full disk. Run as root where file systems may be mounted"))
    func aFullDiskWithoutExchangeDoesNotPreventSteps() throws {
        let disk = try FullDisk()
        var twin = TwinFile(disk.folder + "/key")
        twin.reached = { (stage) throws(Errno) in if stage == .written { throw Errno(code: 22, call: "renameat2") } }
        try twin.create([UInt8](repeating: 1, count: 140).span)
        try disk.fill()
        for count in 2...20 as ClosedRange<UInt8> {
            let bytes = [UInt8](repeating: count, count: 140 + 44 * Int(count))
            try twin.replace(bytes.span)
            #expect(try File.read(twin.path, limit: 10_000) == bytes)
            #expect(File.exists(twin.spare))
        }
    }

    @Test func aFailedStepChangesNothing() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        // A folder in place of the spare file. Not even root can write there.
        try File.remove(folder.path + ".new")
        try File.makeFolder(folder.path + ".new")
        let later = KeyFolder.startMs + KeyFolder.epochMs
        #expect(throws: KeyFileError.self) { try ring.step(nowMs: later) }
        #expect(ring.steps == 1 && ring.baseEpoch == Epoch(Epoch(atMs: KeyFolder.startMs).number - 1))
        try File.removeFolder(folder.path + ".new")
        #expect(try ring.step(nowMs: later)?.steps == 2)
    }

    @Test func messagesHaveARemedy() {
        for error in [
            KeyFileError.missing, .alreadyExists, .looseMode(0o644), .wrongOwner(1000), .unknownVersion(2), .cannotLock,
        ] {
            #expect(error.description.contains(". "))
        }
        #expect(KeyFileError.looseMode(0o644).description.contains("0644"))
    }
}

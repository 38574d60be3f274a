import Sodium
import Testing

@testable import Linux
@testable import Sealing

/// Wrapped key files and the sources of wrapping keys.
@Suite struct WrappingTests {
    private let secret = [UInt8](0..<32)
    private let folder: KeyFolder

    init() throws { folder = try KeyFolder(creating: nil) }

    private func key(_ bytes: [UInt8]) throws -> WrappingKey { try #require(try WrappingKey(bytes.span)) }

    private func failure(_ wrapping: WrappingKey?) -> KeyFileError? {
        do throws(KeyFileError) {
            _ = try KeyRing.load(path: folder.path, wrapping: wrapping)
            return nil
        } catch {
            return error
        }
    }

    private func failure(_ source: WrappingKeySource) -> WrappingKeyError? {
        do throws(WrappingKeyError) {
            _ = try source.read()
            return nil
        } catch {
            return error
        }
    }

    private func write(_ bytes: [UInt8], mode: UInt32 = 0o600) throws -> String {
        let path = folder.folder + "/wrapping"
        try File.replaceDurably(path, bytes.span, mode: mode)
        return path
    }

    @Test func aStepReplacesAWrappedFileByAnother() throws {
        let wrapping = try key(secret)
        try KeyRing.create(path: folder.path, wrapping: wrapping, nowMs: KeyFolder.startMs)
        let before = try folder.bytes()
        #expect(before.count == 72 + 64 + 44 + 32)
        let ring = try KeyRing.load(path: folder.path, wrapping: wrapping)
        #expect(try ring.step(nowMs: KeyFolder.startMs + KeyFolder.epochMs)?.steps == 2)
        #expect(try folder.spare() == [UInt8](repeating: 0, count: before.count))
        let after = try folder.bytes()
        #expect(after.prefix(32) == before.prefix(32) && after.suffix(from: 32) != before.suffix(from: 32))
        #expect(try KeyRing.load(path: folder.path, wrapping: wrapping).steps == 2)
    }

    @Test func theFileHasNoKeysInTheClear() throws {
        try KeyRing.create(path: folder.path, wrapping: try key(secret), nowMs: KeyFolder.startMs)
        let bytes = try folder.bytes()
        let image = try WrappedImage.open(bytes.span, with: try key(secret))
        image.withBytes { inside in
            for start in stride(from: 0, to: inside.count - 8, by: 8) {
                let part = (start..<start + 8).map { inside[$0] }
                #expect(start == 0 || !bytes.indices.dropLast(8).contains { Array(bytes[$0..<$0 + 8]) == part })
            }
        }
    }

    @Test func wrongMissingAndUnexpectedKeysAreDistinguished() throws {
        let (right, wrong) = (try key(secret), try key(secret.reversed()))
        try KeyRing.create(path: folder.path, wrapping: right, nowMs: KeyFolder.startMs)
        #expect(failure(nil) == .wrapped)
        #expect(failure(wrong) == .otherWrappingKey)
        #expect(failure(right) == nil)
        try File.remove(folder.path)
        try KeyRing.create(path: folder.path, nowMs: KeyFolder.startMs)
        #expect(failure(right) == .notWrapped)
        #expect(failure(nil) == nil)
        try folder.write([UInt8](repeating: 7, count: 212))
        #expect(failure(right) == .notAKeyFile)
    }

    @Test func everyChangedByteAndEveryTruncationIsRefused() throws {
        let wrapping = try key(secret)
        try KeyRing.create(path: folder.path, wrapping: wrapping, nowMs: KeyFolder.startMs)
        let whole = try folder.bytes()
        for index in whole.indices {
            var changed = whole
            changed[index] ^= 1
            try File.write(folder.path, changed.span, mode: 0o600)
            #expect(failure(wrapping) != nil && failure(wrapping) != .wrapped, "\(index)")
            if index >= 32 { #expect(failure(wrapping) == .corrupt) }
            if (16..<32).contains(index) { #expect(failure(wrapping) == .otherWrappingKey) }
        }
        for count in 0..<whole.count {
            let part = Array(whole[..<count])
            try File.write(folder.path, part.span, mode: 0o600)
            #expect(failure(wrapping) == .truncated, "\(count)")
        }
        let more = whole + [0]
        try File.write(folder.path, more.span, mode: 0o600)
        #expect(failure(wrapping) == .corrupt)
    }

    @Test func aKeyIs32BytesOrTheirBase64() throws {
        let text = Array(Base64.standard.encode(secret.span).utf8)
        let id = try key(secret).id
        #expect(try key(text).id == id && key(text + [0x0a]).id == id)
        let refused: [[UInt8]] = [
            [], Array(secret.dropLast()), secret + [0x0a], text + [0x0d, 0x0a], text + [0x0a, 0x0a], Array(text.dropLast()),
            [0x20] + text, Array(text.dropLast(2)) + [0x21, 0x3d], [UInt8](repeating: 0, count: 32),
            [UInt8](repeating: 0xff, count: 32), Array(Base64.standard.encode([UInt8](repeating: 0, count: 32).span).utf8),
            Array(Base64.standard.encode(Array(secret.dropLast()).span).utf8),
        ]
        for bytes in refused { #expect(try WrappingKey(bytes.span) == nil, "\(bytes.count) bytes") }
    }

    @Test(arguments: [0o600, 0o400] as [UInt32]) func aPrivateFileIsAccepted(mode: UInt32) throws {
        #expect(failure(.file(try write(secret, mode: mode))) == nil)
    }

    @Test(arguments: [0o640, 0o604, 0o660, 0o602, 0o644] as [UInt32]) func aFileReadableByOthersIsRefused(mode: UInt32) throws {
        let path = try write(secret, mode: mode)
        #expect(
            failure(.file(path))
                == .exposed("has mode 0\(String(mode, radix: 8)), so others could \(mode & 0o022 == 0 ? "read" : "change") it"))
    }

    @Test func aMissingFileAFolderAndALongOneAreRefused() throws {
        #expect(failure(.file(folder.folder + "/none")) == .missing)
        #expect(failure(.file(folder.folder)) == .exposed("is not a file"))
        let path = try write(secret + secret + secret)
        #expect(failure(.file(path)) == .noKey)
    }

    @Test func aCommandIsRunWithoutAShell() throws {
        let path = try write(secret)
        #expect(try WrappingKeySource.command(path: "/bin/cat", arguments: [path]).read().id == key(secret).id)
        #expect(failure(.command(path: "/bin/cat", arguments: [path + " ; true"])) == .failed(.status(1)))
        #expect(failure(.command(path: "/bin/echo", arguments: ["$(cat \(path))"])) == .noKey)
        #expect(failure(.command(path: "/bin/false", arguments: [])) == .failed(.status(1)))
        #expect(failure(.command(path: "/bin/cat", arguments: [path, path])) == .noKey)
        guard case .notStarted = failure(.command(path: "/none", arguments: [])) else {
            Issue.record("a missing program")
            return
        }
    }

    /// The setting may contain the key itself instead of a path, and the key may be a file's name.
    @Test func messagesDontContainTheSetting() throws {
        let exposed = try write(secret, mode: 0o644)
        let sources: [WrappingKeySource] = [
            .file(folder.folder + "/none"), .file(exposed), .file(exposed + "/below"), .file("/dev/null"),
            .command(path: "/none/such", arguments: ["word"]), .command(path: "/bin/false", arguments: ["word"]),
            .command(path: "/bin/echo", arguments: ["word"]),
        ]
        for source in sources {
            let said = try #require(failure(source)).description
            for part in [folder.folder, "/none", "/dev", "/bin", "word"] { #expect(!said.contains(part), "\(said)") }
        }
    }
}

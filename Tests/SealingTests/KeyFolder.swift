import Linux
import Sealing
import Vocabulary

/// A temporary folder with a key file.
final class KeyFolder {
    /// 2026-01-02 00:02:03 UTC, early in a day and an epoch.
    static let startMs: UInt64 = 1_767_312_123_000
    static let epochMs: UInt64 = 300_000
    static let dayMs: UInt64 = 86_400_000

    let folder: String
    var path: String { folder + "/ratchet.key" }

    init(creating nowMs: UInt64? = startMs) throws {
        // Uses memory if possible, since each write of a key file is synced.
        folder = try File.makeTemporaryFolder(prefix: File.exists("/dev/shm") ? "../dev/shm/mayfly" : "mayfly")
        if let nowMs { try KeyRing.create(path: path, nowMs: nowMs) }
    }

    deinit { try? File.removeTree(folder) }

    func load() throws -> KeyRing { try KeyRing.load(path: path) }
    func bytes() throws -> [UInt8] { try File.read(path, limit: 10_000) }
    func spare() throws -> [UInt8] { try File.read(path + ".new", limit: 10_000) }
    func write(_ bytes: [UInt8], mode: UInt32 = 0o600) throws { try File.replaceDurably(path, bytes.span, mode: mode) }
}

extension String {
    var bytes: [UInt8] { Array(utf8) }
}

extension Secret {
    static func copy(_ bytes: [UInt8]) throws -> Secret { try Secret(copying: bytes.span) }
    var plain: [UInt8] {
        withBytes { bytes in
            var copy: [UInt8] = []
            for index in bytes.indices { copy.append(bytes[index]) }
            return copy
        }
    }
}

extension PushAddress {
    /// A device token of an app in production.
    static func at(_ token: [UInt8]) throws -> PushAddress {
        PushAddress(.apns(AppID(bundleID: "org.example.app"), .production), token: try .copy(token))
    }
}

// `#expect` can't take spans, so these take arrays.
extension KeyRing {
    func open(_ sealed: [UInt8], _ context: TokenContext, _ room: RoomID) throws -> OpenedToken {
        try openToken(sealed.span, context: context, room: room)
    }
    func open(_ sealed: [UInt8], _ context: TokenContext, audience: [UInt8]) throws -> OpenedToken {
        try openToken(sealed.span, context: context, audience: audience.span)
    }
    func open(_ sealed: [UInt8], _ context: JobContext) throws -> JobContent { try openJob(sealed.span, context: context) }
    func codes(_ joinID: String, nowMs: UInt64) throws -> [Digest] { try codeIndexes(joinID.bytes.span, nowMs: nowMs) }
    func client(_ room: RoomID, slot: UInt8, _ client: String, expiryMs: UInt64, generation: UInt32 = 1) throws -> Digest {
        try clientIndex(room, slot: slot, client: client.bytes.span, expiryMs: expiryMs, generation: generation)
    }
}

/// A small file system for tests of a full disk. Only root can mount one.
final class FullDisk {
    let folder: String
    private var fillings = 0

    static let isPossible: Bool = (try? FullDisk()) != nil

    init() throws {
        folder = try File.makeTemporaryFolder()
        guard try Self.run("/usr/bin/mount", ["-t", "tmpfs", "-o", "size=64k,mode=700", "mayfly-test", folder]) else {
            try File.removeFolder(folder)
            throw Errno(code: 1, call: "mount \(folder)")
        }
    }

    deinit {
        if (try? Self.run("/usr/bin/umount", [folder])) == true { try? File.removeFolder(folder) }
    }

    /// Writes until the disk is full.
    func fill() throws {
        let block = [UInt8](repeating: 1, count: 4096)
        while true {
            fillings += 1
            do throws(Errno) {
                try File.write("\(folder)/filling.\(fillings)", block.span, mode: 0o600)
            } catch {
                guard error.isOutOfSpace else { throw error }
                return
            }
        }
    }

    func free() throws { try File.remove("\(folder)/filling.1") }

    private static func run(_ program: String, _ arguments: [String]) throws -> Bool {
        try ChildProcess.spawn(program, arguments: arguments, errors: .discard).wait() == .status(0)
    }
}

import Linux
import Sealing
import Vocabulary

/// A folder of its own with a key file in it.
final class KeyFolder {
    /// 2026-01-02 00:02:03 UTC, early in a day and an epoch.
    static let startMs: UInt64 = 1_767_312_123_000
    static let epochMs: UInt64 = 300_000
    static let dayMs: UInt64 = 86_400_000

    let folder: String
    var path: String { folder + "/ratchet.key" }

    init(creating nowMs: UInt64? = startMs) throws {
        // In memory where there is such a place: each write of a key file is waited for.
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

// `#expect` can't take a span, so the tests speak in arrays.
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

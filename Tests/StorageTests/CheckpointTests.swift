import SQLite
import Testing
import Vocabulary

@testable import Storage

/// When the write-ahead log is copied into the database. Its growth decides, not time, so the tests count frames.
@Suite struct CheckpointTests {
    /// Writes some 100 frames. A value that is the same as before would write none.
    private func write(_ turn: Int, to store: SQLiteStore) async throws {
        try await store.setMark("large", [UInt8](repeating: UInt8(truncatingIfNeeded: turn), count: 400_000))
    }

    @Test func aLogIsCopiedAt16MiB() async throws {
        let fixture = try Fixture()
        let store = try #require(fixture.store as? SQLiteStore)
        var (turn, log) = (0, try await store.log())
        while log.copied == 0 {
            try #require(log.frames < 4_000 && turn < 100, "\(log)")
            try await write(turn, to: store)
            log = try await store.log()
            turn += 1
        }
        #expect(log.frames >= 4_000 && log.copied == log.frames, "\(log)")
        // A log that was copied as a whole starts anew.
        try await write(turn, to: store)
        log = try await store.log()
        #expect(log.frames < 400 && log.copied == 0, "\(log)")
        try await fixture.close()
    }

    @Test func aLogIsCopiedOftenWhileASweepGoesOn() async throws {
        let fixture = try Fixture()
        let store = try #require(fixture.store as? SQLiteStore)
        let expires = fixture.clock.now + 1_000
        let rooms = (0..<4_000).map { number in
            let hash = Digest.sha256([UInt8](bigEndian: number).span)
            let side = SideRecord(generation: 1, client: hash, member: hash)
            let token = TokenRecord(
                TokenContext(generation: 1, kind: .alert, slot: 1, expiryMs: expires, purgeID: Fixture.ref(number)),
                ref: Fixture.blob(1, 56), room: hash, sealed: Fixture.blob(2, 200))
            return (
                room: RoomRecord(room: Digest(leading: expires, hash), expires: expires, creator: side, joiner: side),
                token: NewToken(token, sealedID: Fixture.ref(number + 1_000_000))
            )
        }
        try RowLoop(path: fixture.path).commit { transaction in
            for (room, token) in rooms { try transaction.insert(accepted: room, tokens: [token]) }
        }
        fixture.clock.advance(1_000)
        #expect(try await store.scrub())
        var (copies, written, before) = (0, 0, 0)
        while try await store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {
            let log = try await store.log()
            #expect(log.frames - log.copied < 200)
            copies += log.copied == log.frames ? 1 : 0
            written += log.frames - (log.frames < before ? 0 : before)
            before = log.frames
        }
        #expect(copies > 1 && copies <= written / 200, "\(copies) copies of \(written) frames")
        // Afterwards it grows again.
        for turn in 0..<5 { try await write(turn, to: store) }
        let log = try await store.log()
        #expect(log.frames - log.copied > 400)
        try await fixture.close()
    }
}

extension SQLiteStore {
    /// The length of the write-ahead log and how much of it was copied, in frames, once the copy that is under way has ended.
    fileprivate func log() async throws -> (frames: Int, copied: Int) {
        // After a commit, the writer may start a copy on the background thread, whose end it notes by a job of its own.
        try await inspect { _ in }
        _ = try await counts()
        return try await inspect(turn: .alone) { ($0.connection.framesInLog, $0.framesCopied) }
    }
}

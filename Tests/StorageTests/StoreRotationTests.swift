import Ledger
import Linux
import Testing

@testable import Storage

/// What every store must do when one log follows another; each test speaks to the protocol only, but for making and opening one.
@Suite struct StoreRotationTests {
    static let next = EntryText("log.example/b")!
    static let (closing, moving) = (StoreMark("rotation", [1]), StoreMark("rotation", [2]))

    /// Publishes everything, as far as the store knows.
    func publishAll(_ store: SQLiteStore) async throws -> [ClosedEntry] {
        let size = try await store.logHead()?.size ?? 0
        let entries = try await store.closedEntries(before: .max, limit: .max)
        let head = LogHead(size: size + UInt64(entries.count), checkpoint: "signed", window: entries.last?.window ?? 0)
        #expect(try await store.commit(head, after: size, entries: entries))
        try await store.published(upTo: head.size)
        return entries
    }

    func texts(_ entries: [ClosedEntry]) -> [String] { entries.map { String(decoding: $0.bytes, as: UTF8.self) } }

    /// Closes the log and begins the next.
    func rotate(_ store: SQLiteStore) async throws {
        #expect(try await store.closeLog(next: Self.next, mark: Self.closing))
        let size = try await publishAll(store).count
        let head = try #require(try await store.logHead())
        #expect(size == 1)
        #expect(try await store.beginLog(after: head.size, marks: [Self.moving, StoreMark("origins", [7])]))
    }

    @Test func aLogIsClosedOnceAllElseIsPublished() async throws {
        let fixture = try Fixture()
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing) == false, "there is no log")
        try await fixture.create(1)
        _ = try await publishAll(fixture.store)
        try await fixture.create(2)
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing) == false, "an entry waits")
        // In the log, and not known to be in the folder.
        let entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(try await fixture.store.commit(LogHead(size: 2, checkpoint: "b", window: 1), after: 1, entries: entries))
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing) == false, "an entry is on its way")
        #expect(try await fixture.store.mark("rotation") == nil)
        try await fixture.store.published(upTo: 2)
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing))
        #expect(try await fixture.store.mark("rotation") == [1])
        let last = texts(try await publishAll(fixture.store))
        #expect(last.count == 1 && last[0].hasSuffix(#""next":"log.example/b","op":"ledger.closed"}"#))
        try await fixture.close()
    }

    @Test func theNextLogBeginsWithWhatIsAlive() async throws {
        let fixture = try Fixture()
        let (_, _, gone) = try await fixture.create(9)
        let (room, _, live) = try await fixture.create(3)
        try await fixture.create(1, life: 400_000)
        #expect(try await fixture.store.close(room: gone.room) == 1)
        let job = fixture.job(50, token: live, deadline: fixture.clock.now + 20_000)
        #expect(try await fixture.store.knock(job, throttle: 0, now: fixture.clock.now) == .queued)
        _ = try await publishAll(fixture.store)
        let window = fixture.clock.now / 1_000
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing))
        _ = try await publishAll(fixture.store)
        // However long it takes to come to it.
        fixture.clock.advance(86_400_000)
        let size = try #require(try await fixture.store.logHead()).size
        #expect(try await fixture.store.beginLog(after: size, marks: [Self.moving, StoreMark("origins", [7])]))
        #expect(try await fixture.store.logHead() == nil)
        #expect(try await fixture.store.mark("rotation") == [2])
        #expect(try await fixture.store.mark("origins") == [7])
        let entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(entries.map(\.window) == [window, window, window], "as of the closing: from there on the log is silent")
        #expect(entries.map(\.ref[0]) == [1, 3, 3])
        let told = texts(entries)
        #expect(told[0].contains("token.sealed") && told[1].contains("token.sealed") && told[2].contains("token.opened"))
        #expect(told[2].contains(OpaqueID(job.job.span)!.description))
        // Rows are as they were.
        #expect(try await fixture.store.token(live.ref, expires: live.expires) == live)
        #expect(try await fixture.store.jobs() == [job])
        #expect(try await fixture.store.room(room.room) != nil)
        // And the lives go on in the new log.
        #expect(try await fixture.store.close(room: room.room) == 1)
        #expect(try await fixture.store.counts().waitingEntries == 4)
        try await fixture.close()
    }

    @Test func aPurgeIsToldInTheNextLog() async throws {
        let fixture = try Fixture()
        let (room, _, _) = try await fixture.create(3)
        _ = try await publishAll(fixture.store)
        try await rotate(fixture.store)
        #expect(try await publishAll(fixture.store).count == 1)
        #expect(try await fixture.store.logHead()?.size == 1)
        #expect(try await fixture.store.close(room: room.room) == 1)
        #expect(try await fixture.ops() == ["token.purged"])
        try await fixture.close()
    }

    @Test func aLogThatIsNotPublishedIsNotForgotten() async throws {
        let fixture = try Fixture()
        try await fixture.create(1)
        #expect(try await fixture.store.beginLog(after: 0, marks: [Self.moving]) == false, "there is no log")
        _ = try await publishAll(fixture.store)
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing))
        let head = try await fixture.store.logHead()
        #expect(try await fixture.store.beginLog(after: 1, marks: [Self.moving]) == false, "the last entry waits")
        _ = try await publishAll(fixture.store)
        for size in [0, 1, 3] as [UInt64] {
            #expect(try await fixture.store.beginLog(after: size, marks: [Self.moving]) == false, "another head")
        }
        #expect(try await fixture.store.mark("rotation") == [1])
        #expect(try await fixture.store.logHead()?.size == head.map { $0.size + 1 })
        try await fixture.close()
    }

    /// Its opening would have no seal before it.
    @Test func aPushWithoutItsTokenStopsTheBeginning() async throws {
        let fixture = try Fixture()
        let (room, _, token) = try await fixture.create(1)
        let job = fixture.job(50, token: token, deadline: fixture.clock.now + 20_000)
        #expect(try await fixture.store.knock(job, throttle: 0, now: fixture.clock.now) == .queued)
        #expect(try await fixture.store.close(room: room.room) == 1)
        _ = try await publishAll(fixture.store)
        #expect(try await fixture.store.closeLog(next: Self.next, mark: Self.closing))
        _ = try await publishAll(fixture.store)
        let head = try #require(try await fixture.store.logHead())
        await #expect(throws: StoreError.self) { try await fixture.store.beginLog(after: head.size, marks: [Self.moving]) }
        #expect(try await fixture.store.logHead() == head)
        #expect(try await fixture.store.closedEntries(before: .max, limit: .max).isEmpty)
        try await fixture.close()
    }

    /// More than are read at a time, many of one expiry.
    @Test func manyTokensAreCarriedOver() async throws {
        let fixture = try Fixture()
        _ = try await publishAll(fixture.store)
        let count = 20_500
        let store = fixture.store
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<count {
                group.addTask {
                    func blob(_ mark: UInt8, _ length: Int) -> [UInt8] {
                        [mark, UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: mark, count: length - 3)
                    }
                    let expires = fixture.clock.now + (number % 3 == 0 ? 60_000 : 90_000)
                    let room = RoomRecord(
                        room: blob(1, 32), expires: expires,
                        creator: SideRecord(generation: 1, client: blob(2, 32), member: blob(3, 32), ref: blob(4, 16)))
                    let code = PendingCode(
                        code: blob(5, 32), expires: expires, room: room.room, roomExpires: expires, generation: 1,
                        pending: blob(6, 72), creator: blob(7, 72), creatorUntil: expires, short: false)
                    let token = TokenRecord(
                        ref: blob(4, 16), room: room.room, slot: 1, kind: 1, environment: 1, generation: 1, expires: expires,
                        topic: "t", sealed: blob(8, 168))
                    _ = try await store.create(room, code: code, otherIndexes: [], token: token, shortLimit: 0, now: 0)
                }
            }
            try await group.waitForAll()
        }
        _ = try await publishAll(fixture.store)
        try await rotate(fixture.store)
        #expect(try await fixture.store.counts().waitingEntries == count)
        // Batch after batch, as a sequencer takes them.
        var refs: [[UInt8]] = []
        var (size, batch) = (0, 0)
        repeat {
            let entries = try await fixture.store.closedEntries(before: .max, limit: 16_384)
            (batch, size) = (entries.count, size + entries.count)
            refs += entries.map(\.ref)
            let head = LogHead(size: UInt64(size), checkpoint: "signed", window: entries[0].window)
            #expect(try await fixture.store.commit(head, after: UInt64(size - batch), entries: entries))
            try await fixture.store.published(upTo: UInt64(size))
            #expect(try await fixture.store.counts().waitingEntries == count - size)
        } while size < count
        #expect(refs == refs.sorted { $0.lexicographicallyPrecedes($1) } && Set(refs).count == count)
        #expect(batch < 10_000)
        try await fixture.close()
    }
}

import EventLoop
import Linux
import Policy
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// When the sweeper empties the write-ahead log of what was purged.
@Suite struct ScrubTests {
    /// A sweeper over a real store; counts its scrubs, and is told of a purge in the middle of each while `isNoting`.
    private final class Stage: Sendable {
        let folder: String
        let clock = TestClock(1_800_000_000_000)
        let inner: SQLiteStore
        let loop: EventLoop
        let sweeper: Sweeper
        private let scrubs = Mutex(0)
        private let isNoting = Mutex(false)
        private let fault = Mutex(FaultyStore.Fault.none)
        private let hook: Hook

        private final class Hook: Sendable {
            let stage = Mutex<Stage?>(nil)
        }

        init() throws {
            let (clock, hook) = (clock, Hook())
            folder = try File.makeTemporaryFolder()
            inner = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: .standard, now: { clock.now })
            loop = try EventLoop(name: "scrubs")
            try loop.start()
            let store = FaultyStore(inner, loop: loop) { call in
                call == .scrub ? hook.stage.withLock { $0 }?.scrubbing() ?? .none : .none
            }
            sweeper = Sweeper(
                loop: loop, store: store, time: BrokerTime(persisted: 0, wall: { clock.now }, boot: { clock.now }),
                metrics: Metrics(), log: { _ in })
            self.hook = hook
            hook.stage.withLock { $0 = self }
        }

        var count: Int { scrubs.withLock { $0 } }
        func note(_ on: Bool) { isNoting.withLock { $0 = on } }
        func fail(_ fault: FaultyStore.Fault) { self.fault.withLock { $0 = fault } }

        private func scrubbing() -> FaultyStore.Fault {
            scrubs.withLock { $0 += 1 }
            if isNoting.withLock({ $0 }) { sweeper.assumeIsolated { $0.noteErasure() } }
            return fault.withLock { $0 }
        }

        /// A room with one token.
        /// - Parameter token: its number, if that differs from the room's.
        func create(_ id: Int, expires: UInt64, token number: Int? = nil) async throws {
            func digest(_ kind: Int) -> Digest { Digest(bytes: blob(kind, 32).span)! }
            func blob(_ kind: Int, _ count: Int, _ id: Int = id) -> [UInt8] {
                [UInt8(kind), UInt8(id >> 8), UInt8(id & 0xff)] + [UInt8](repeating: 0, count: count - 3)
            }
            let token = TokenRecord(
                purgeID: EntryID(bytes: blob(1, 16, number ?? id).span)!, ref: blob(9, 56), room: digest(2), slot: 1,
                kind: .alert,
                environment: .production,
                generation: 1,
                expires: expires,
                topic: "com.example.app", sealed: blob(3, 168))
            let room = RoomRecord(
                room: token.room, expires: expires,
                creator: SideRecord(generation: 1, client: digest(4), member: digest(5), token: token.purgeID))
            let code = PendingCode(
                code: digest(6), expires: expires, room: room.room, roomExpires: expires, generation: 1, pending: blob(7, 72),
                creator: blob(8, 72), creatorUntil: expires, short: false)
            let new = NewToken(token, sealedID: EntryID(bytes: blob(10, 16, number ?? id).span)!)
            let now = clock.now
            let made = try await inner.write {
                try $0.create(room, code: code, otherIndexes: [], token: new, shortLimit: .max, now: now)
            }
            #expect(made == .created)
        }

        func end() async throws {
            hook.stage.withLock { $0 = nil }
            await inner.shutDown()
            loop.stop()
            loop.join()
            try File.removeTree(folder)
        }
    }

    @Test func aStartScrubsWhatACrashMayHaveLeft() async throws {
        let stage = try Stage()
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 1)
        stage.clock.advance(20_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 1, "nothing was purged since")
        try await stage.end()
    }

    /// Its code was taken again between its end and the sweep, which finds nothing left of it.
    @Test func whatACreatePurgedIsScrubbedToo() async throws {
        let stage = try Stage()
        try await stage.create(1, expires: stage.clock.now + 1_000)
        _ = try await stage.sweeper.sweep()
        stage.clock.advance(1_000)
        try await stage.create(1, expires: stage.clock.now + 600_000, token: 2)
        #expect(try await stage.sweeper.sweep() <= stage.clock.now + 10_000)
        stage.clock.advance(10_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 2)
        try await stage.end()
    }

    @Test func aPurgeDuringAScrubIsNotLost() async throws {
        let stage = try Stage()
        stage.note(true)
        let next = try await stage.sweeper.sweep()
        #expect(stage.count == 1 && next <= stage.clock.now + 10_000)
        stage.note(false)
        stage.clock.advance(10_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 2)
        try await stage.end()
    }

    @Test func aScrubThatFailsIsTriedAgainInASecond() async throws {
        let stage = try Stage()
        stage.fail(.failed)
        await #expect(throws: StoreError.self) { _ = try await stage.sweeper.sweep() }
        stage.fail(.none)
        stage.clock.advance(1_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 2)
        try await stage.end()
    }

    /// In the middle of a long sweep it is due like at any other time, and its failure does not end the sweep.
    @Test func aScrubThatFailsHoldsUpNoPurge() async throws {
        let stage = try Stage()
        let now = stage.clock.now
        stage.inner.hold()
        try await withThrowingTaskGroup { group in
            for id in 0..<1_100 { group.addTask { try await stage.create(id, expires: now + 1_000) } }
            group.addTask { stage.inner.release() }
            try await group.waitForAll()
        }
        #expect(try await stage.inner.counts().tokens == 1_100)
        stage.clock.advance(1_000)
        stage.fail(.failed)
        #expect(try await stage.sweeper.sweep() <= stage.clock.now + 1_000)
        #expect(stage.count == 1)
        #expect(try await stage.inner.counts().tokens == 0)
        try await stage.end()
    }
}

import Courier
import EventLoop
import Linux
import Policy
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// The sweeper empties the write-ahead log of purged rows.
@Suite struct ScrubTests {
    /// A sweeper with a real store. Counts its scrubs, and announces a purge in the middle of each while `isNoting`.
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
                metrics: Metrics(), log: Logger { _, _ in })
            self.hook = hook
            hook.stage.withLock { $0 = self }
        }

        var count: Int { scrubs.withLock { $0 } }
        func note(_ on: Bool) { isNoting.withLock { $0 = on } }
        func fail(_ fault: FaultyStore.Fault) { self.fault.withLock { $0 = fault } }

        private func scrubbing() -> FaultyStore.Fault {
            scrubs.withLock { $0 += 1 }
            if isNoting.withLock({ $0 }) { sweeper.assumeIsolated { $0.scheduleScrub() } }
            return fault.withLock { $0 }
        }

        /// Stores a room with one token.
        /// - Parameter token: its number, if it differs from the room's.
        func create(_ id: Int, expires: UInt64, token: Int? = nil) async throws {
            #expect(try await inner.createRoom(id, token: token, expires: expires, now: clock.now) == .created)
        }

        /// Stores rooms with a token that have expired.
        func expire(_ count: Int) async throws {
            let expires = clock.now + 1_000
            inner.hold()
            try await withThrowingTaskGroup { group in
                for id in 0..<count { group.addTask { try await self.create(id, expires: expires) } }
                group.addTask { self.inner.release() }
                try await group.waitForAll()
            }
            #expect(try await inner.counts().tokens == count)
            clock.advance(1_000)
        }

        func end() async throws {
            hook.stage.withLock { $0 = nil }
            await inner.shutDown()
            loop.stop()
            loop.join()
            try File.removeTree(folder)
        }
    }

    @Test func aStartEmptiesTheWriteAheadLog() async throws {
        let stage = try Stage()
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 1)
        stage.clock.advance(20_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 1, "nothing was purged since")
        try await stage.end()
    }

    /// A create that reuses the code purges the expired room before the sweep.
    @Test func rowsThatACreatePurgedAreScrubbed() async throws {
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

    /// The write-ahead log shows which waiting seal belongs to the new row.
    // Promise: wal-emptied
    @Test func aCreatedRoomIsScrubbed() async throws {
        let fixture = try await BrokerFixture()
        _ = try await fixture.sweeper.sweep()
        _ = try await fixture.create(token: try fixture.token())
        #expect(try await fixture.sweeper.sweep() == fixture.clock.now + 10_000)
        fixture.clock.advance(10_000)
        _ = try await fixture.sweeper.sweep()
        #expect(try File.status(fixture.folder + "/mayfly.sqlite-wal")?.size == 0)
        try await fixture.end()
    }

    /// The key of a finished push's row lives ten minutes more.
    @Test func aFinishedPushIsScrubbed() async throws {
        let fixture = try await BrokerFixture { ScriptedCourier(loop: $0) { _ in (0, .delivered) } }
        let (clock, sweeper) = (fixture.clock, fixture.sweeper)
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept()
        clock.advance(10_000)
        #expect(try await sweeper.sweep() > clock.now + 10_000, "all is scrubbed")
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        var next = try await sweeper.sweep()
        for _ in 0..<400 where next > clock.now + 10_000 {
            try await Task.sleep(for: .milliseconds(10))
            next = try await sweeper.sweep()
        }
        #expect(next == clock.now + 10_000)
        try await fixture.end()
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

    @Test func aFailedScrubIsRetriedAfterASecond() async throws {
        let stage = try Stage()
        stage.fail(.failed)
        await #expect(throws: StoreError.self) { _ = try await stage.sweeper.sweep() }
        stage.fail(.none)
        stage.clock.advance(1_000)
        _ = try await stage.sweeper.sweep()
        #expect(stage.count == 2)
        try await stage.end()
    }

    /// A scrub in the middle of a long sweep may fail, but must not end the sweep.
    @Test func aFailedScrubDelaysNoPurge() async throws {
        let stage = try Stage()
        try await stage.expire(1_100)
        stage.fail(.failed)
        #expect(try await stage.sweeper.sweep() <= stage.clock.now + 1_000)
        #expect(stage.count == 1)
        #expect(try await stage.inner.counts().tokens == 0)
        try await stage.end()
    }

    /// A machine's clock that has stepped makes many rows due at once. A stop must end before the service manager kills the broker.
    @Test func aStopWaitsForOneBatch() async throws {
        let stage = try Stage()
        try await stage.expire(1_100)
        let sweep = Task {
            while !Task.isCancelled { await Task.yield() }
            return try await stage.sweeper.sweep()
        }
        sweep.cancel()
        #expect(try await sweep.value == stage.clock.now)
        #expect(try await (1..<1_100).contains(stage.inner.counts().tokens))
        try await stage.end()
    }
}

/// The log lines of a broker whose disk is full.
@Suite struct FullDiskTests {
    @Test func unrecordedOutcomesAreLoggedOnceAMinute() async throws {
        let isFull = Flag()
        isFull.set(true)
        let fails: @Sendable (FaultyStore.Call) -> Bool = { $0 == .finish && isFull.isSet }
        try await WatchedBroker.play(Policy.rooms(""), fails: fails) { broker in
            let run = try #require(await broker.simulated.run)
            func told(_ text: String) -> [String] { broker.simulated.prints.all.filter { $0.contains(text) } }
            try await broker.makeRooms(300)
            #expect(try await broker.knock(Array(0..<300)))
            await broker.simulated.advance(150_000)
            let waiting = told("are not recorded yet")
            #expect(waiting.count == 3, "\(waiting)")
            #expect(
                waiting.last == "courier: outcomes of about 300 pushes are not recorded yet (\(StoreError.full)); trying again")
            // There is one alarm for each line, although each outcome is retried some hundred times.
            #expect(run.broker.metrics.value(.alarms) == 3)
            isFull.set(false)
            await broker.simulated.advance(10_000)
            #expect(try await broker.jobs.isEmpty && broker.sightings.count == 300)
            await run.broker.outbox.drain(deadlineMs: 0)
            #expect(told("could not be recorded").isEmpty)
        }
    }

    @Test func aStopLogsTheOutcomesThatItLoses() async throws {
        let fails: @Sendable (FaultyStore.Call) -> Bool = { $0 == .finish }
        try await WatchedBroker.play(Policy.rooms(""), fails: fails) { broker in
            let run = try #require(await broker.simulated.run)
            try await broker.makeRooms(40)
            #expect(try await broker.knock(Array(0..<40)))
            await broker.simulated.advance(1_000)
            await run.broker.outbox.drain(deadlineMs: 0)
            let told = broker.simulated.prints.all.filter { $0.contains("could not be recorded") }
            #expect(told.count == 1 && told.allSatisfy { $0.contains("outcomes of about 40 pushes") }, "\(told)")
        }
    }

    /// On a full disk a transaction succeeds now and then.
    @Test func repeatedFailuresOfTheSweeperAreLoggedOnce() async throws {
        let isFull = Flag()
        let calls = Mutex(0)
        let fails: @Sendable (FaultyStore.Call) -> Bool = { call in
            guard call == .sweep, isFull.isSet else { return false }
            return calls.withLock { calls in
                calls += 1
                return calls % 4 != 0
            }
        }
        try await WatchedBroker.play(Policy.rooms(""), fails: fails) { broker in
            let run = try #require(await broker.simulated.run)
            func told(_ text: String) -> Int { broker.simulated.prints.all.count { $0.hasPrefix("sweeper: " + text) } }
            isFull.set(true)
            await broker.simulated.advance(120_000)
            #expect(calls.withLock { $0 } > 60)
            #expect(told("can't purge") == 1 && told("purging again") == 0)
            #expect(run.broker.metrics.value(.alarms) == 1)
            isFull.set(false)
            await broker.simulated.advance(15_000)
            #expect(told("can't purge") == 1 && told("purging again") == 1)
        }
    }
}

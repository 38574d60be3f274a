import EventLoop
import Linux
import Storage
import Synchronization
import Testing

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
            inner = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, now: { clock.now })
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
}

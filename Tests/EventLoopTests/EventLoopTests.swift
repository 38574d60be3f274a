import EventLoop
import Linux
import Synchronization
import Testing

/// A loop on its own thread for one test.
private final class RunningLoop: Sendable {
    let loop: EventLoop
    init() throws {
        loop = try EventLoop(name: "test")
        try loop.start()
    }
    deinit {
        loop.stop()
        loop.join()
    }
}

private actor Counter: LoopActor {
    nonisolated let loop: EventLoop
    var value = 0
    init(_ loop: EventLoop) { self.loop = loop }

    func add() -> Bool {
        value += 1
        return loop.isCurrent
    }

    func addLater(_ ms: UInt64) async {
        await withCheckedContinuation { continuation in
            loop.after(ms) {
                self.value += 1
                continuation.resume()
            }
        }
    }

    func callsWithoutASwitch(_ other: Counter) async -> Bool {
        var turnEnded = false
        loop.atEndOfTurn { turnEnded = true }
        for _ in 0..<100 { _ = await other.add() }
        return !turnEnded
    }

    func spawn(_ count: Int) async -> Bool {
        await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<count { group.addTask { await self.add() } }
            var all = true
            while let onLoop = await group.next() { all = all && onLoop }
            return all
        }
    }
}

@Suite struct EventLoopTests {
    @Test func actorsRunOnTheLoopsThread() async throws {
        let running = try RunningLoop()
        let counter = Counter(running.loop)
        #expect(await counter.add())
        #expect(await counter.spawn(1000))
        #expect(await counter.value == 1001)
        #expect(!running.loop.isCurrent)
    }

    @Test func actorsOfOneLoopCallEachOtherWithoutASwitch() async throws {
        let running = try RunningLoop()
        let (one, other) = (Counter(running.loop), Counter(running.loop))
        #expect(await Task(executorPreference: running.loop) { await one.callsWithoutASwitch(other) }.value)
    }

    @Test func actorsOfTwoLoopsCallEachOther() async throws {
        let (one, two) = (try RunningLoop(), try RunningLoop())
        let (a, b) = (Counter(one.loop), Counter(two.loop))
        for _ in 0..<200 {
            #expect(await a.add())
            #expect(await b.add())
        }
    }

    @Test func allWorkOfManyThreadsArrives() async throws {
        let running = try RunningLoop()
        let count = Mutex(0)
        let threads = try (0..<8).map { _ in
            try Thread.spawn(name: "producer") {
                for _ in 0..<1000 { running.loop.submit { count.withLock { $0 += running.loop.isCurrent ? 1 : 0 } } }
            }
        }
        for thread in threads { thread.join() }
        _ = await Counter(running.loop).add()
        while count.withLock({ $0 }) < 8000 { try await running.loop.sleep(1) }
        #expect(count.withLock { $0 } == 8000)
    }

    @Test func timersFireOnTheLoopAndNotEarly() async throws {
        let running = try RunningLoop()
        let counter = Counter(running.loop)
        let before = Clock.monotonicNs
        await counter.addLater(20)
        #expect(Clock.monotonicNs - before >= 19_000_000)
        #expect(await counter.value == 1)
    }

    @Test func sleepEndsWhenItsTaskIsCancelled() async throws {
        let running = try RunningLoop()
        let task = Task { try await running.loop.sleep(1_000_000) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        let late = Task { try await running.loop.sleep(1_000_000) }
        try await running.loop.sleep(5)
        late.cancel()
        await #expect(throws: CancellationError.self) { try await late.value }
        try await running.loop.sleep(1)
    }

    @Test func aSignalIsDeliveredOnTheLoop() throws {
        let seen = Log()
        try Thread.spawn(name: "signals") {
            guard let loop = try? EventLoop(name: "signals") else { return }
            try? loop.onSignal(.user1) {
                seen.add(loop.isCurrent ? "user1" : "elsewhere")
                loop.stop()
            }
            loop.after(0) { Signal.raise(.user1) }
            loop.run()
        }.join()
        #expect(seen.entries == ["user1"])
    }

    @Test func endOfTurnWorkComesAfterTheJobsAndOnce() async throws {
        let log = Log()
        try Thread.spawn(name: "turns") {
            guard let loop = try? EventLoop(name: "turns") else { return }
            loop.after(0) {
                loop.atEndOfTurn { log.add("end") }
                loop.submit { log.add("call") }
            }
            loop.after(5) { loop.stop() }
            loop.run()
        }.join()
        #expect(log.entries == ["call", "end"])
    }
}

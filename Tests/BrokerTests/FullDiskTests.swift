import Storage
import Synchronization
import Testing

@testable import Broker

/// What a broker says while its disk is full, and how often.
@Suite struct FullDiskTests {
    @Test func outcomesThatWaitForTheDiskAreToldOnceAMinute() async throws {
        let isFull = Flag()
        isFull.set(true)
        let fails: @Sendable (FaultyStore.Call) -> Bool = { $0 == .finish && isFull.isSet }
        try await WatchedBroker.play(TimedPolicy(""), fails: fails) { broker in
            let run = try #require(await broker.simulated.run)
            func told(_ text: String) -> [String] { broker.simulated.prints.all.filter { $0.contains(text) } }
            try await broker.makeRooms(300)
            #expect(try await broker.knock(Array(0..<300)))
            await broker.simulated.advance(150_000)
            let waiting = told("are not recorded yet")
            #expect(waiting.count == 3, "\(waiting)")
            #expect(
                waiting.last == "courier: outcomes of about 300 pushes are not recorded yet (\(StoreError.full)); trying again")
            // And no more than is told: tried again some hundred times each.
            #expect(run.broker.metrics.value(.alarms) == 3)
            isFull.set(false)
            await broker.simulated.advance(10_000)
            #expect(try await broker.jobs.isEmpty && broker.sightings.count == 300)
            await run.broker.outbox.drain(deadlineMs: 0)
            #expect(told("could not be recorded").isEmpty)
        }
    }

    @Test func aStopSaysWhichOutcomesItLoses() async throws {
        let fails: @Sendable (FaultyStore.Call) -> Bool = { $0 == .finish }
        try await WatchedBroker.play(TimedPolicy(""), fails: fails) { broker in
            let run = try #require(await broker.simulated.run)
            try await broker.makeRooms(40)
            #expect(try await broker.knock(Array(0..<40)))
            await broker.simulated.advance(1_000)
            await run.broker.outbox.drain(deadlineMs: 0)
            let told = broker.simulated.prints.all.filter { $0.contains("could not be recorded") }
            #expect(told.count == 1 && told.allSatisfy { $0.contains("outcomes of about 40 pushes") }, "\(told)")
        }
    }

    /// A transaction that finds room in what the database already has says nothing of the next.
    @Test func aSweeperThatFailsNowAndThenIsToldOnce() async throws {
        let isFull = Flag()
        let calls = Mutex(0)
        let fails: @Sendable (FaultyStore.Call) -> Bool = { call in
            guard call == .sweep, isFull.isSet else { return false }
            return calls.withLock { calls in
                calls += 1
                return calls % 4 != 0
            }
        }
        try await WatchedBroker.play(TimedPolicy(""), fails: fails) { broker in
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

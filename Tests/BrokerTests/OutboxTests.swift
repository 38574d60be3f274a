import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker
@testable import Ledger

/// Pushes that wait for their slot: when they leave, and when they don't.
@Suite struct OutboxTests {
    private static let slots = #""sendSlotSeconds": 20, "jitterSeconds": 5,"#

    @Test func aKillKeepsTheSlots() async throws {
        try await WatchedBroker.play(Policy.rooms(Self.slots)) { broker in
            try await broker.makeRooms(20)
            #expect(try await broker.knock(Array(0..<20)))
            let drawn = try await broker.jobs.map(\.notBefore)
            #expect(Set(drawn).count > 10)
            for _ in 0..<2 {
                await broker.simulated.kill()
                try await broker.simulated.start()
            }
            #expect(try await broker.jobs.map(\.notBefore).sorted() == drawn.sorted())
            await broker.simulated.advance(60_000)
            #expect(broker.sightings.map(\.at).sorted() == drawn.sorted())
            #expect(Set(broker.sightings.map(\.room)).count == 20)
            #expect(try await broker.jobs.isEmpty)
        }
    }

    /// After a commit without an answer, a node reads all its stored jobs.
    @Test func aJobThatTheOutboxOwnsIsQueuedOnce() async throws {
        try await WatchedBroker.play(Policy.rooms(Self.slots)) { broker in
            try await broker.makeRooms(2)
            #expect(try await broker.knock([0, 1]))
            await broker.simulated.run?.broker.outbox.resume(try await broker.jobs)
            await broker.simulated.advance(60_000)
            #expect(broker.sightings.map(\.room).sorted() == [0, 1])
            #expect(try await broker.jobs.isEmpty)
        }
    }

    /// A phone of the other environment: the operator must not have to wait for the third refusal.
    @Test func theFirstRefusalIsALineAndAMetricByReason() async throws {
        let refused = Outcome.failed(status: 400, reason: .badDeviceToken, verdict: .keep)
        let outcome: @Sendable () -> Outcome = { refused }
        try await WatchedBroker.play(Policy.rooms(""), outcome: outcome) { broker in
            func lines() -> [String] { broker.simulated.prints.all.filter { $0.contains("refused a push") } }
            func metric(_ reason: String) async -> Substring? {
                let text = await broker.simulated.run?.broker.metrics.exposition(version: "1", gauges: []) ?? ""
                let name = #"mayfly_pushes_refused_total{reason="\#(reason)"} "#
                return text.split(separator: "\n").first { $0.hasPrefix(name) }?.dropFirst(name.utf8.count)
            }
            try await broker.makeRooms(12)
            #expect(await metric("BadDeviceToken") == "0")
            #expect(try await broker.knock(0) == .queued)
            await broker.simulated.advance(1_000)
            let line = try #require(lines().first)
            #expect(line.contains("APNs (production) refused a push to com.example.app with 400 BadDeviceToken: the token"))
            #expect(line.contains("sandbox"))
            let ids = broker.sightings.map(\.apnsID) + ["070707"]
            #expect(ids.count == 2 && !ids.contains { line.contains($0) })
            #expect(await metric("BadDeviceToken") == "5")
            #expect(await metric("TopicDisallowed") == "0")
            // One line an hour, however many refusals.
            #expect(try await broker.knock(Array(1..<11)))
            await broker.simulated.advance(1_000)
            #expect(lines().count == 1)
            #expect(await metric("BadDeviceToken") == "11")
            await broker.simulated.advance(3_600_000)
            #expect(try await broker.knock(11) == .queued)
            await broker.simulated.advance(1_000)
            #expect(lines().count == 2)
        }
    }

    /// Apple was overloaded until their deadlines: no refusal, and the courier has an alarm of its own.
    @Test(arguments: [(500, .internalServerError), (503, .other), (429, .tooManyRequests)] as [(Int, PushReason)])
    func aPushThatIsGivenUpIsNoRefusal(status: Int, reason: PushReason) async throws {
        let outcome: @Sendable () -> Outcome = { .failed(status: status, reason: reason, verdict: .keep) }
        try await WatchedBroker.play(Policy.rooms(""), outcome: outcome) { broker in
            try await broker.makeRooms(1)
            #expect(try await broker.knock(0) == .queued)
            await broker.simulated.advance(1_000)
            #expect(broker.sightings.count == 1)
            #expect(!broker.simulated.prints.all.contains { $0.contains("refused a push") })
            let text = await broker.simulated.run?.broker.metrics.exposition(version: "1", gauges: []) ?? ""
            #expect(text.contains(#"mayfly_pushes_refused_total{reason="\#(reason.rawValue)"} 0"#))
        }
    }

    /// No broker runs when the pushes are due. They leave in a later slot, at the same offset in it.
    @Test(arguments: [30_000, 45_000, 50_000] as [UInt64])
    func aMissedPushLeavesInALaterSlot(_ away: UInt64) async throws {
        try await WatchedBroker.play(Policy.rooms(Self.slots)) { broker in
            try await broker.makeRooms(10)
            await broker.advance(to: broker.machine.wall / 20_000 * 20_000 + 20_000 + 3_000)
            #expect(try await broker.knock(Array(0..<10)))
            let drawn = try await broker.jobs.map(\.notBefore)
            await broker.simulated.kill()
            broker.machine.pass(away)
            let back = broker.machine.wall
            try await broker.simulated.start()
            await broker.simulated.advance(60_000)
            let later = drawn.map { $0 <= back ? $0 + ((back - $0) / 20_000 + 1) * 20_000 : $0 }
            #expect(broker.sightings.map(\.at).sorted() == later.sorted())
        }
    }

    /// No slot is left before the deadline, so the push does not leave, not even at once.
    @Test func aPushWithoutALaterSlotDoesNotLeave() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 47,"#)) { broker in
            try await broker.makeRooms(1)
            await broker.advance(to: broker.machine.wall / 47_000 * 47_000 + 47_000 + 1_000)
            #expect(try await broker.knock(0) == .queued)
            let job = try #require(try await broker.jobs.first)
            await broker.simulated.kill()
            broker.machine.pass(46_000 + 50_000)
            #expect(broker.machine.wall < job.deadline)
            try await broker.simulated.start()
            await broker.simulated.advance(1_000)
            #expect(try await broker.jobs.isEmpty)
            await broker.simulated.advance(100_000)
            #expect(broker.sightings.isEmpty)
        }
    }

    /// A stalled disk must not make knocks distinguishable.
    @Test func aPushStoredTooLateLeavesInTheNextSlot() async throws {
        let slow = Flag()
        let stand = { @Sendable (call: FaultyStore.Call, machine: MachineClock) in
            if call == .knock, slow.isSet { machine.pass(3_000) }
        }
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#), whenStoreIsAsked: stand) { broker in
            try await broker.makeRooms(2)
            let boundary = broker.machine.wall / 20_000 * 20_000 + 40_000
            await broker.advance(to: boundary - 1_000)
            slow.set(true)
            #expect(try await broker.knock(0) == .queued)
            slow.set(false)
            #expect(broker.machine.wall == boundary + 2_000)
            await broker.simulated.advance(1_000)
            #expect(try await broker.knock(1) == .queued)
            await broker.simulated.advance(60_000)
            #expect(broker.sightings.map(\.at) == [boundary + 20_000, boundary + 20_000])
        }
    }

    @Test func anUnwantedPushDoesNotLeave() async throws {
        try await WatchedBroker.play(Policy.rooms(Self.slots)) { broker in
            try await broker.makeRooms(4)
            #expect(try await broker.knock(Array(0..<4)))
            try await broker.come(0)
            try await broker.close(1)
            try await broker.withdraw(2)
            await broker.simulated.advance(29_000)
            #expect(broker.sightings.map(\.room) == [3])
            #expect(try await broker.jobs.isEmpty)
            // Only a push that was not sent releases the throttle.
            #expect(try await broker.knock(3) == .throttled)
            // Wait until the report has lapsed and the grace is over.
            await broker.simulated.advance(25_000)
            #expect(try await broker.knock(0) == .queued)
        }
    }

    @Test func aRoomThatEndsBeforeTheSlotGetsNoPush() async throws {
        try await WatchedBroker.play(Policy.rooms(Self.slots)) { broker in
            let boundary = broker.machine.wall / 20_000 * 20_000 + 40_000
            // One room ends with its slot, one before the longest jitter, one a second later.
            await broker.advance(to: boundary - 15_000)
            try await broker.makeRooms(1, lifeSeconds: 15)
            try await broker.makeRooms(1, lifeSeconds: 20)
            try await broker.makeRooms(1, lifeSeconds: 21)
            #expect(try await broker.knock(0) == .noToken)
            #expect(try await broker.knock(1) == .noToken)
            #expect(try await broker.knock(2) == .queued)
            let job = try #require(try await broker.jobs.first)
            #expect(job.deadline == boundary + 6_000)
            await broker.simulated.advance(60_000)
            #expect(broker.sightings.map(\.room) == [2])
            #expect(broker.sightings.first?.expiration == (boundary + 6_000) / 1_000)
        }
    }

    /// Two pushes to one side never share a slot, however long it is. Otherwise their number would reveal more.
    @Test func theThrottleEndsOnABoundary() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 40,"#)) { broker in
            try await broker.makeRooms(1)
            let boundary = broker.machine.wall / 40_000 * 40_000 + 80_000
            await broker.advance(to: boundary - 39_000)
            #expect(try await broker.knock(0) == .queued)
            for _ in 0..<40 {
                await broker.simulated.advance(1_000)
                if broker.machine.wall < boundary { #expect(try await broker.knock(0) == .throttled) }
            }
            #expect(broker.machine.wall == boundary + 1_000)
            #expect(try await broker.knock(0) == .throttled, "it was tried again when the throttle ended")
            await broker.simulated.advance(60_000)
            #expect(broker.sightings.map(\.at) == [boundary, boundary + 40_000])
        }
    }

    @Test func theGraceAfterAStartEndsBeforeTheSlot() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(2)
            await broker.advance(to: broker.machine.wall / 20_000 * 20_000 + 20_000 + 10_000)
            await broker.simulated.kill()
            try await broker.simulated.start()
            let start = broker.machine.wall
            await broker.simulated.advance(1_000)
            #expect(try await broker.knock([0, 1]))
            await broker.simulated.advance(12_000)
            try await broker.come(1)
            await broker.simulated.advance(60_000)
            // The boundary after ten seconds is within the grace of fifteen seconds.
            #expect(broker.sightings.map(\.room) == [0])
            #expect(broker.sightings.map(\.at) == [start + 30_000])
            #expect(broker.sightings.first?.expiration == (start + 30_000 + 100_000) / 1_000)
        }
    }

    /// Broker time is ahead of a clock that was set back, and behind one that was set forward. Apple knows nothing of it.
    @Test(arguments: [-100_000, 100_000] as [Int64]) func expirationsFollowTheWallClock(step: Int64) async throws {
        try await WatchedBroker.play(Policy.rooms("")) { broker in
            try await broker.makeRooms(1)
            broker.machine.step(step)
            await broker.simulated.advance(2_000)
            let now = broker.machine.wall / 1_000
            #expect(try await broker.knock(0) == .queued)
            await broker.simulated.advance(1_000)
            let expiration = try #require(broker.sightings.first?.expiration)
            #expect((now + 118...now + 122).contains(expiration))
        }
    }

    /// Broker time runs at half speed while the wall clock is behind it. Two knocks in one of its slots still leave together.
    @Test func slotsFollowBrokerTime() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(2)
            await broker.advance(to: broker.machine.wall / 20_000 * 20_000 + 20_000)
            broker.machine.step(-3_600_000)
            await broker.simulated.advance(2_000)
            #expect(try await broker.knock(0) == .queued)
            await broker.simulated.advance(20_000)
            #expect(try await broker.knock(1) == .queued)
            #expect(broker.sightings.isEmpty)
            await broker.simulated.advance(30_000)
            #expect(broker.sightings.count == 2)
            #expect(Set(broker.sightings.map(\.at)).count == 1)
        }
    }

    @Test func aStopDoesNotWaitForSlots() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(3)
            #expect(try await broker.knock([0, 1, 2]))
            let (machine, running) = (broker.machine, try #require(await broker.simulated.run?.broker))
            let before = machine.monotonic
            let drained = Task(executorPreference: broker.loop) {
                await running.outbox.drain(deadlineMs: 3_000)
                return machine.monotonic
            }
            await broker.simulated.advance(4_000)
            #expect(await drained.value == before)
            await broker.simulated.stop()
            try await broker.simulated.start()
            await broker.simulated.advance(30_000)
            #expect(broker.sightings.count == 3)
        }
    }

    /// Callers are answered while a slot's pushes start.
    @Test func aFullSlotDoesNotDelayCallers() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(1_001)
            let boundary = broker.machine.wall / 20_000 * 20_000 + 40_000
            await broker.advance(to: boundary - 10_000)
            #expect(try await broker.knock(Array(0..<1_000)))
            let asked = await broker.ask(1_000, at: boundary)
            await broker.simulated.advance(10_000)
            #expect(broker.sightings.count == 1_000)
            let count = try await asked.value
            #expect(count < 500, "a call that came with the slot was answered after \(count) of 1,000 pushes")
        }
    }
}

/// A broker that was stopped while pushes waited (SIGSTOP, a sleeping machine). None of them is sent, and the log records that.
@Suite struct StandstillTests {
    enum Standstill { case process, machine }

    // Promise: unsent-is-recorded
    @Test(arguments: [Standstill.process, .machine])
    func unsentPushesAreRecordedAsUnsent(_ standstill: Standstill) async throws {
        let policy = try Policy.rooms(#""sendSlotSeconds": 40,"#)
        let reasons = try await WatchedBroker.play(policy) { broker in
            // More than one batch of the sweeper.
            let count = 600
            try await broker.makeRooms(count)
            await broker.advance(to: broker.machine.wall / 40_000 * 40_000 + 41_000)
            #expect(try await broker.knock(Array(0..<count)))
            switch standstill {
            case .process: broker.machine.pass(200_000)
            case .machine: broker.machine.sleep(200_000)
            }
            await broker.simulated.advance(200_000)
            #expect(try await broker.jobs.isEmpty)
            #expect(broker.sightings.isEmpty)
            await broker.simulated.stop()
            return try await Self.failures(broker.simulated)
        }
        #expect(reasons == ["unsent": 600])
    }

    private static func failures(_ broker: SimulatedBroker) async throws -> [String: Int] {
        let report = try await Verifier(FolderSource(broker.ledger.path), key: broker.key.verifierKey).verify(since: [])
        #expect(report.pending == 0)
        var reasons: [String: Int] = [:]
        for entry in try await broker.entries() {
            if case .pushFailed(_, _, let reason) = entry.op { reasons[reason.rawValue, default: 0] += 1 }
        }
        return reasons
    }
}

import Courier
import EventLoop
import Storage
import Testing
import Vocabulary

@testable import Broker

/// When a push leaves that waits for its slot, and when it does not leave at all.
@Suite struct DepartureTests {
    private static let slots = #""sendSlotSeconds": 20, "jitterSeconds": 5,"#

    @Test func aKillBetweenKnockAndSlotChangesNothing() async throws {
        try await WatchedBroker.play(TimedPolicy(Self.slots)) { broker in
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

    /// Nobody runs when they are to leave: they go with a later slot, at the same place of it.
    @Test(arguments: [30_000, 45_000, 50_000] as [UInt64])
    func whatIsMissedGoesWithALaterSlot(_ away: UInt64) async throws {
        try await WatchedBroker.play(TimedPolicy(Self.slots)) { broker in
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

    /// No slot is left before the deadline: it does not leave, not even at once.
    @Test func whatIsMissedForTooLongDoesNotLeave() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 47,"#)) { broker in
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

    /// A disk that stands still over a boundary does not make its knocks stand out.
    @Test func whatIsStoredTooLateGoesWithTheNextSlot() async throws {
        let slow = Flag()
        let stand = { @Sendable (call: FaultyStore.Call, machine: MachineClock) in
            if call == .knock, slow.isSet { machine.pass(3_000) }
        }
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#), whenStoreIsAsked: stand) { broker in
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

    @Test func whoComesInTimeIsNotKnockedAt() async throws {
        try await WatchedBroker.play(TimedPolicy(Self.slots)) { broker in
            try await broker.makeRooms(4)
            #expect(try await broker.knock(Array(0..<4)))
            try await broker.come(0)
            try await broker.close(1)
            try await broker.withdraw(2)
            await broker.simulated.advance(29_000)
            #expect(broker.sightings.map(\.room) == [3])
            #expect(try await broker.jobs.isEmpty)
            // The throttle is given back to whom nothing was sent, and to nobody else.
            #expect(try await broker.knock(3) == .throttled)
            // Until the report that it is there has lapsed and the grace is over.
            await broker.simulated.advance(25_000)
            #expect(try await broker.knock(0) == .queued)
        }
    }

    @Test func aRoomThatEndsBeforeTheSlotHasNothingToKnockAt() async throws {
        try await WatchedBroker.play(TimedPolicy(Self.slots)) { broker in
            let boundary = broker.machine.wall / 20_000 * 20_000 + 40_000
            // Rooms end at whole seconds from now: one with its slot, one when the jitter may not be over, one a second later.
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

    /// Two pushes to one side never share a slot, however long that is: their number would divide it.
    @Test func theThrottleEndsOnABoundary() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 40,"#)) { broker in
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
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
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
            // The boundary after ten seconds lies within the fifteen of the grace.
            #expect(broker.sightings.map(\.room) == [0])
            #expect(broker.sightings.map(\.at) == [start + 30_000])
            #expect(broker.sightings.first?.expiration == (start + 30_000 + 100_000) / 1_000)
        }
    }

    /// Broker time goes at half the pace while the wall clock is behind it: two knocks of one of its slots still leave together.
    @Test func slotsAreBrokerTimesOwn() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
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
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(3)
            #expect(try await broker.knock([0, 1, 2]))
            let (machine, running) = (broker.machine, try #require(await broker.simulated.run?.broker))
            let before = machine.monotonic
            let drained = Task(executorPreference: broker.loop) {
                await running.drainPushes(deadlineMs: 3_000)
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
    @Test func aFullSlotDoesNotHoldUpCallers() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
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

@Suite struct DeparturesTests {
    private func departure(_ number: UInt8, topic: String = "") -> Departures.Departure {
        let job = JobRecord(
            job: JobID(UInt128(number)), deadline: 0, notBefore: 0, purgeID: EntryID(0), room: nil, slot: 1, kind: .alert,
            environment: .production, topic: topic,
            template: "", generation: 1, expires: 0, sealed: [])
        return Departures.Departure(job: job, place: nil)
    }

    @Test func theirOrderIsDrawn() {
        var orders: Set<[UInt8]> = []
        for _ in 0..<50 {
            var departures = Departures(shuffles: true)
            for number in 0..<30 as Range<UInt8> { #expect(departures.wait(departure(number), until: 7) == (number == 0)) }
            #expect(departures.open == 0 && departures.start() == nil)
            departures.arrive(at: 7)
            var order: [UInt8] = []
            while let started = departures.start() {
                order.append(UInt8(started.job.job.low))
                departures.isReady()
            }
            #expect(order.sorted() == Array(0..<30) && departures.open == 30)
            orders.insert(order)
        }
        #expect(orders.count == 50)
    }

    @Test func noMoreStartThanMayBeOpen() {
        var departures = Departures(shuffles: false)
        // The arena's places are for rooms and sockets, too.
        #expect(Departures.mostUnderWay <= 20_480)
        let count = 25_000
        for number in 0..<count { departures.add(departure(UInt8(truncatingIfNeeded: number))) }
        var started = 0
        while departures.start() != nil { started += 1 }
        #expect(started == Departures.mostGettingReady && departures.open == count)
        while started < Self.mostOfOne {
            departures.isReady()
            #expect(departures.start() != nil && departures.start() == nil)
            started += 1
        }
        departures.isReady()
        for number in started..<count {
            #expect(departures.start() == nil)
            departures.end(departure(0))
            // In the order in which they came.
            #expect(departures.start()?.job.job == JobID(UInt128(UInt8(truncatingIfNeeded: number))))
            departures.isReady()
        }
        for _ in 0..<Self.mostOfOne { departures.end(departure(0)) }
        #expect(departures.open == 0 && departures.start() == nil)
    }

    /// Where no other app has any under way, as many as are eight times what is free.
    private static let mostOfOne = Departures.mostUnderWay / 9 * 8

    @Test func anAppWhosePushesHangLeavesOthersRoom() {
        var departures = Departures(shuffles: false)
        func startAll() -> [String] {
            var topics: [String] = []
            while let started = departures.start() {
                topics.append(started.job.topic)
                departures.isReady()
            }
            return topics
        }
        for number in 0..<25_000 { departures.add(departure(UInt8(truncatingIfNeeded: number), topic: "dead")) }
        #expect(startAll().count == Self.mostOfOne)
        for app in ["a", "b"] { for number in 0..<100 as Range<UInt8> { departures.add(departure(number, topic: app)) } }
        #expect(startAll().sorted() == Array(repeating: "a", count: 100) + Array(repeating: "b", count: 100))
        // Another one that hangs takes what is left, but for a rest.
        for number in 0..<25_000 { departures.add(departure(UInt8(truncatingIfNeeded: number), topic: "dying")) }
        #expect(Set(startAll()) == ["dying"])
        departures.add(departure(0, topic: "c"))
        #expect(startAll() == ["c"])
        #expect(departures.open == 50_201)
        // What was held back goes on when there is room again.
        for _ in 0..<4_000 { departures.end(departure(0, topic: "dead")) }
        #expect(Set(startAll()).isSuperset(of: ["dying"]))
        for _ in 0..<Self.mostOfOne - 4_000 { departures.end(departure(0, topic: "dead")) }
        #expect(Set(startAll()) == ["dead", "dying"])
    }

    @Test func fewOutcomesAreRecordedAtATime() {
        final class Begun { var numbers: [Int] = [] }
        var departures = Departures(shuffles: false)
        func taken() -> Int { (0..<2 * Departures.mostRecording).count { _ in departures.mayRecord() } }
        #expect(taken() == Departures.mostRecording)
        let begun = Begun()
        for number in 0..<1_000 { departures.waitToRecord { begun.numbers.append(number) } }
        // One that is recorded makes room for one, in the order in which they came.
        for number in 0..<1_000 {
            departures.isRecorded()?()
            #expect(begun.numbers.count == number + 1 && begun.numbers.last == number && taken() == 0)
        }
        let left = (0..<Departures.mostRecording).count { _ in departures.isRecorded() != nil }
        #expect(left == 0 && taken() == Departures.mostRecording)
    }

    /// Takes as many of an app as there is room for.
    private func fill(_ departures: inout Departures, _ topic: String, _ environment: PushEnvironment = .production) -> Int {
        let job = departure(0, topic: topic).job
        var taken = 0
        while !departures.isFull(topic: topic, environment: environment), taken <= Departures.mostQueued {
            departures.enter(job)
            taken += 1
        }
        return taken
    }

    @Test func theLastPlacesOfTheQueueAreForOtherApps() {
        var departures = Departures(shuffles: false)
        // 177,778: 22,222 are left.
        #expect(fill(&departures, "dead") == Departures.mostQueued * 8 / 9 + 1)
        #expect(!departures.isFull(topic: "a", environment: .production))
        // The same app's other environment hangs or not by itself.
        #expect(!departures.isFull(topic: "dead", environment: .sandbox))
        #expect(fill(&departures, "dying") > 19_000 && !departures.isFull(topic: "a", environment: .production))
        #expect(fill(&departures, "a") > 2_000 && !departures.isFull(topic: "b", environment: .production))
        for number in 0..<100 { _ = fill(&departures, "many \(number)") }
        #expect(departures.queued == Departures.mostQueued && departures.isFull(topic: "new", environment: .production))
        // Where one goes another may come, of an app that has few.
        departures.leave(departure(0, topic: "dead").job)
        #expect(
            !departures.isFull(topic: "new", environment: .production)
                && departures.isFull(topic: "dead", environment: .production))
        for _ in 0..<30_000 { departures.leave(departure(0, topic: "dead").job) }
        #expect(!departures.isFull(topic: "dead", environment: .production))
    }
}

import Sealing
import Storage
import Testing

@testable import Broker

/// Rooms while the arena is full: refusals that keep nothing, and pushes that wait.
@Suite struct SlotShortageTests {
    // Promise: shortage-is-503-and-an-alarm
    @Test func everyCallOfARoomIsRefusedAndCanBeRepeated() async throws {
        let fixture = try await BrokerFixture()
        try await Task(executorPreference: fixture.loop) {
            let token = try fixture.token()
            let made = try await TakenSlots.untilItFits("create") { try await fixture.create(token: token) }
            #expect(made.isNew, "a refused create kept something")
            let again = try await TakenSlots.untilItFits("repeated create") { try await fixture.create(token: token) }
            #expect(!again.isNew && again.room == made.room && again.ref == made.ref)
            let joined = try await TakenSlots.untilItFits("accept") { try await fixture.accept() }
            #expect(joined.isNew && joined.room == made.room, "a refused accept used the code up")
            let rejoined = try await TakenSlots.untilItFits("repeated accept") { try await fixture.accept() }
            #expect(!rejoined.isNew && rejoined.member == joined.member)
            let (first, second) = (try fixture.token(8), fixture.caller(made.room, "joiner", joined.member))
            let replaced = try await TakenSlots.untilItFits("replace token") {
                try await fixture.broker.rooms.replaceToken(second, token: first, environment: nil)
            }
            let status = try await fixture.broker.rooms.status(made.room)
            #expect(status.creatorHasToken && status.joinerHasToken && replaced.expires == made.expires)
            let delivery = try await TakenSlots.untilItFits("knock") {
                try await fixture.broker.rooms.report(fixture.caller(made.room, "creator", made.member), leaving: false)
            }
            #expect(delivery == .queued)
        }.value
        try await fixture.end()
    }

    /// A guess that was not looked at is not counted.
    // Promise: shortage-is-no-404
    @Test func aShortageIsNoWrongCode() async throws {
        let fixture = try await BrokerFixture()
        try await Task(executorPreference: fixture.loop) {
            _ = try await fixture.create()
            let taken = try TakenSlots()
            for _ in 0..<200 { await #expect(throws: BrokerError.overloaded(.exhausted)) { try await fixture.accept() } }
            taken.giveBackAll()
            _ = try await fixture.accept()
        }.value
        try await fixture.end()
    }

    // Promise: shortage-is-503-and-an-alarm
    @Test func theOperatorHearsOfItOnceAMinute() async throws {
        try await WatchedBroker.play(TimedPolicy("")) { broker in
            let run = try #require(await broker.simulated.run)
            func told() -> Int { broker.simulated.prints.all.count { $0.hasPrefix("secrets: no slot") } }
            for minute in 1...2 {
                for _ in 0..<100 { run.broker.noteRefusal(.overloaded(.exhausted)) }
                #expect(told() == minute && run.metrics.value(.alarms) == minute)
                await broker.simulated.advance(60_000)
            }
            #expect(run.metrics.value(.refused) == 200)
        }
    }

    // Promise: reserve-for-acknowledged-pushes
    @Test func anAcknowledgedPushLeavesByTheReserve() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(100)
            #expect(try await broker.knock(Array(0..<100)))
            let taken = try TakenSlots()
            await broker.simulated.advance(21_000)
            #expect(broker.sightings.count == 100)
            taken.giveBackAll()
        }
    }

    // Promise: shortage-drops-no-push
    @Test func anAcknowledgedPushWaitsForASlot() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
            let run = try #require(await broker.simulated.run)
            try await broker.makeRooms(50)
            #expect(try await broker.knock(Array(0..<50)))
            let taken = try TakenSlots(reserve: true)
            await broker.simulated.advance(50_000)
            #expect(broker.sightings.isEmpty)
            #expect(try await broker.jobs.count == 50, "a push was settled without being sent")
            #expect(run.metrics.value(.alarms) == 1 && broker.simulated.prints.all.contains { $0.hasPrefix("secrets: no slot") })
            taken.giveBackAll()
            await broker.simulated.advance(1_000)
            #expect(broker.sightings.count == 50)
            #expect(try await broker.jobs.isEmpty)
        }
    }

    @Test func aPushThatNeverFindsASlotExpires() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
            try await broker.makeRooms(1)
            #expect(try await broker.knock(0) == .queued)
            let taken = try TakenSlots(reserve: true)
            await broker.simulated.advance(60_000)
            #expect(try await broker.jobs.count == 1)
            await broker.simulated.advance(60_000)
            #expect(try await broker.jobs.isEmpty)
            taken.giveBackAll()
            await broker.simulated.advance(30_000)
            #expect(broker.sightings.isEmpty)
        }
    }

    @Test func aStopDoesNotWaitForASlotForEver() async throws {
        try await WatchedBroker.play(TimedPolicy(#""sendSlotSeconds": 20,"#)) { broker in
            let run = try #require(await broker.simulated.run)
            try await broker.makeRooms(1)
            #expect(try await broker.knock(0) == .queued)
            let taken = try TakenSlots(reserve: true)
            await broker.simulated.advance(21_000)
            let drain = Task(executorPreference: broker.loop) { await run.broker.outbox.drain(deadlineMs: 500) }
            await broker.simulated.advance(1_000)
            await drain.value
            #expect(try await broker.jobs.count == 1, "the next start takes it up")
            taken.giveBackAll()
        }
    }
}

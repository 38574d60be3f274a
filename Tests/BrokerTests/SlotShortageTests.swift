import Courier
import Policy
import Storage
import Testing

@testable import Broker
@testable import Sealing

/// Rooms while the arena is full. Calls are refused and keep nothing, pushes wait.
@Suite struct SlotShortageTests {
    // Promise: shortage-is-503-and-an-alarm
    @Test func everyCallOfARoomCanBeRepeatedAfterAShortage() async throws {
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
                try await fixture.broker.rooms.replaceToken(second, with: .test(first))
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

    /// A guess that was not checked is not counted.
    // Promise: shortage-is-no-404
    @Test func aShortageIsNotAWrongGuess() async throws {
        let fixture = try await BrokerFixture()
        try await Task(executorPreference: fixture.loop) {
            _ = try await fixture.create()
            let taken = try TakenSlots()
            for _ in 0..<200 { await #expect(throws: SealingError.outOf(.exhausted)) { try await fixture.accept() } }
            taken.giveBackAll()
            _ = try await fixture.accept()
        }.value
        try await fixture.end()
    }

    // Promise: shortage-is-503-and-an-alarm
    @Test func aShortageIsLoggedOnceAMinute() async throws {
        try await WatchedBroker.play(Policy.rooms("")) { broker in
            let run = try #require(await broker.simulated.run)
            func told() -> Int { broker.simulated.prints.all.count { $0.hasPrefix("secrets: no slot") } }
            for minute in 1...2 {
                for _ in 0..<100 { run.broker.recordRefusal(.overloaded(.exhausted)) }
                #expect(told() == minute && run.metrics.value(.alarms) == minute)
                await broker.simulated.advance(60_000)
            }
            #expect(run.metrics.value(.refused) == 200)
            // Other refusals don't count as shortages of memory.
            for other in [BrokerError.overloaded(.behind), .tooManyPushes] { run.broker.recordRefusal(other) }
            #expect(run.metrics.value(.secretShortages) == 200)
        }
    }

    // Promise: reserve-for-acknowledged-pushes
    @Test func anAcknowledgedPushUsesTheReserve() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
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
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
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

    @Test func aPushWithoutASlotExpires() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
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

    @Test func aStopDoesNotWaitForASlot() async throws {
        try await WatchedBroker.play(Policy.rooms(#""sendSlotSeconds": 20,"#)) { broker in
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

/// Apps with accounts while the arena is full. Nothing is settled, dropped or purged, and all work continues when slots are free again.
@Suite struct AudienceShortageTests {
    private typealias Stage = CompanionStage

    @Test func everyCallOfACompanionCanBeRepeatedAfterAShortage() async throws {
        try await Stage.play { stage in
            let (device, activity, token) = (try stage.token(1), try stage.token(2), try stage.token(9))
            let companion = try await stage.companion
            let registered = try await TakenSlots.untilItFits("register") {
                try await companion.registerDevice(Stage.alice, address: .test(device))
            }
            #expect(registered.isNew)
            let started = try await TakenSlots.untilItFits("register an activity") {
                try await companion.registerActivity(
                    Stage.alice, address: .test(activity), activity: [1], session: Stage.session, previous: nil)
            }
            #expect(started.isNew)
            let status = try await TakenSlots.untilItFits("status") { try await companion.status(Stage.alice) }
            #expect(status.hasDevice && status.activities.count == 1)
            let receipt = try await TakenSlots.untilItFits("approval request") { try await stage.take(.approvalRequest) }
            let request = try #require(receipt.request)
            #expect(receipt.pushes == 2)
            #expect(try await TakenSlots.untilItFits("approval") { try await stage.state(request) } == .pending)
            let cleared = try await TakenSlots.untilItFits("clear approval") {
                try await companion.clearApproval(Stage.alice, request: RequestName(id: request), excluding: token)
            }
            #expect(cleared == 1)
            let isAnswered = try await TakenSlots.untilItFits("respond") {
                try await companion.respond(
                    Stage.alice, request: RequestName(id: request), approved: true, excluding: nil)
            }
            #expect(isAnswered)
            #expect(try await stage.state(request) == .approved)
            _ = try await companion.claim(
                Stage.alice, of: nil, session: Stage.session, device: [1], type: .ios, token: device)
            let handedOver = try await TakenSlots.untilItFits("hand over") {
                try await companion.claim(Stage.alice, of: nil, session: Stage.session, device: [2], type: .ios, token: nil)
            }
            #expect(handedOver)
            let over = try await TakenSlots.untilItFits("complete") { try await stage.take(.complete(success: true)) }
            #expect(over.pushes == 2, "a Live Activity was purged without being told")
            await stage.advance(1_000)
            #expect(stage.pushes(to: 2).last?.says(#""event":"end""#) == true)
        }
    }

    @Test func aRenewalAfterAShortageKeepsIDAndHandleKey() async throws {
        try await Stage.play { stage in
            let first = try await stage.register(1)
            let token = try stage.token(1)
            await stage.sleep(86_400_000)
            let companion = try await stage.companion
            let renewed = try await TakenSlots.untilItFits("renew") {
                try await companion.registerDevice(Stage.alice, address: .test(token))
            }
            #expect(renewed.id == first.id && renewed.handleKey.secret == first.handleKey.secret && !renewed.isNew)
            #expect(try await stage.counts.registrations == 1)
        }
    }

    @Test func dueWorkWaitsForASlot() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.start(2)
            try await stage.take(.state("processing"))
            let asked = try await stage.ask()
            try await stage.take(.state("idle"))
            await stage.advance(1_000)
            let (alerts, updates) = (stage.pushes(to: 1).count, stage.pushes(to: 2).count)
            let taken = try TakenSlots(reserve: true)
            await stage.advance(to: asked.due + 30_000)
            #expect(stage.pushes(to: 1).count == alerts && stage.pushes(to: 2).count == updates)
            #expect(stage.told(Stage.backEnd).isEmpty, "an approval was settled without a word")
            #expect(stage.simulated.prints.all.count { $0.hasPrefix("secrets: no slot") } >= 1)
            #expect(try await #require(stage.count(.alarms)) >= 1)
            taken.giveBackAll()
            await stage.advance(20_000)
            #expect(stage.pushes(to: 1).last?.says("clear_approval") == true)
            #expect(stage.pushes(to: 2).last?.says(#""status":"idle""#) == true)
            #expect(stage.told(Stage.backEnd).count == 1)
            #expect(try await stage.state(asked.request) == .timedOut)
        }
    }

    /// The order of an audience's pushes is in their sealed fields.
    @Test func pushesOfAPreviousRunWaitForASlot() async throws {
        let slowly: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (5_000, .delivered) }
        try await Stage.play(outcome: slowly) { stage in
            try await stage.register(1)
            try await stage.take(.question)
            await stage.advance(1_000)
            await stage.simulated.kill()
            let taken = try TakenSlots(reserve: true)
            try await stage.start()
            await stage.advance(20_000)
            #expect(stage.pushes(to: 1).count == 1)
            taken.giveBackAll()
            await stage.advance(6_000)
            #expect(stage.pushes(to: 1).count == 2)
            #expect(try await stage.counts.jobs == 0)
        }
    }

    @Test func monitorsAndCallsCanBeRepeatedAfterAShortage() async throws {
        try await MonitorStage.play { stage in
            let token = try stage.token(1)
            let monitor = try await stage.monitor
            _ = try await TakenSlots.untilItFits("register") {
                try await monitor.register(
                    MonitorStage.alice, address: .test(token), printer: MonitorStage.printer)
            }
            let taken = try await TakenSlots.untilItFits("status") {
                try await stage.take(.status(from: .idle, to: .running), eventID: "1")
            }
            #expect(taken.news == .started && taken.receipt.pushes == 1 && !taken.receipt.isRepeated)
        }
        try await CallsStage.play { stage in
            let token = try stage.token(1)
            let calls = try await stage.calls
            _ = try await TakenSlots.untilItFits("register") {
                try await calls.register(CallsStage.bob, user: CallsStage.bob.user, address: .test(token))
            }
            let receipt = try await TakenSlots.untilItFits("ring") { try await stage.ring() }
            #expect(receipt.rang == 1 && !receipt.isRepeated)
        }
    }
}

/// Slots that a test takes from the process's arena, so that the broker finds none. Tests must run one after the other.
final class TakenSlots {
    private struct Held: ~Copyable { let slot: Slot }
    private final class Box {
        let held: Held
        init(_ slot: consuming Slot) { held = Held(slot: slot) }
    }

    private var taken: [Box] = []

    /// - Parameter reserve: true to take the slots that are reserved for acknowledged pushes as well.
    init(reserve: Bool = false) throws {
        do {
            while true { taken.append(Box(try Arena.shared.take(for: reserve ? .acknowledgedPush : .anything))) }
        } catch {
            // The test machine may lock less than the whole arena.
            guard case .outOf = error else { throw error }
        }
    }

    func giveBack(_ count: Int) { taken.removeLast(min(count, taken.count)) }
    func giveBackAll() { taken = [] }

    /// Makes a call with no free slot, then with one, and so on until it succeeds. A shortage at any step must be a refusal.
    static func untilItFits<Value>(
        isolation: isolated (any Actor)? = #isolation, _ name: String, _ call: () async throws -> Value
    ) async throws -> Value {
        let taken = try TakenSlots()
        for free in 0..<64 {
            do {
                let value = try await call()
                #expect(free > 0, "\(name) needed no slot")
                return value
            } catch {
                guard let refusal = BrokerError(thrown: error), case .overloaded = refusal else { throw error }
                #expect(refusal.status == 503 && refusal.retryAfter != nil)
            }
            taken.giveBack(1)
        }
        throw NeverFits()
    }

    private struct NeverFits: Error {}
}

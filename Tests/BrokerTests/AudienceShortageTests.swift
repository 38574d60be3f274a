import Broker
import Courier
import Sealing
import Storage
import Testing

/// Apps with accounts while the arena is full: nothing is settled, dropped or purged, and all of it goes on when slots come back.
@Suite struct AudienceShortageTests {
    private typealias Stage = CompanionStage

    @Test func everyCallOfACompanionIsRefusedAndCanBeRepeated() async throws {
        try await Stage.play { stage in
            let (device, activity, token) = (try stage.token(1), try stage.token(2), try stage.token(9))
            let companion = try await stage.companion
            let registered = try await TakenSlots.untilItFits("register") {
                try await companion.registerDevice(Stage.alice, token: device, environment: nil, topic: nil)
            }
            #expect(registered.isNew)
            let started = try await TakenSlots.untilItFits("register an activity") {
                try await companion.registerActivity(
                    Stage.alice, token: activity, activity: [1], session: Stage.session, previous: nil, environment: nil,
                    topic: nil)
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

    @Test func aRenewalKeepsIDAndHandleKey() async throws {
        try await Stage.play { stage in
            let first = try await stage.register(1)
            let token = try stage.token(1)
            await stage.sleep(86_400_000)
            let companion = try await stage.companion
            let renewed = try await TakenSlots.untilItFits("renew") {
                try await companion.registerDevice(Stage.alice, token: token, environment: nil, topic: nil)
            }
            #expect(renewed.id == first.id && renewed.handleKey.secret == first.handleKey.secret && !renewed.isNew)
            #expect(try await stage.counts.registrations == 1)
        }
    }

    @Test func whatFallsDueWaitsForASlot() async throws {
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

    /// The order of an audience's pushes is known only when their fields are open.
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

    @Test func monitorsAndCallsAreRefusedAndCanBeRepeated() async throws {
        try await MonitorStage.play { stage in
            let token = try stage.token(1)
            let monitor = try await stage.monitor
            _ = try await TakenSlots.untilItFits("register") {
                try await monitor.register(
                    MonitorStage.alice, token: token, printer: MonitorStage.printer, environment: nil, topic: nil)
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
                try await calls.register(CallsStage.bob, user: CallsStage.bob.user, token: token, environment: nil, topic: nil)
            }
            let receipt = try await TakenSlots.untilItFits("ring") { try await stage.ring() }
            #expect(receipt.rang == 1 && !receipt.isRepeated)
        }
    }
}

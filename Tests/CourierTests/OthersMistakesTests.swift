import APNsSimulator
import EventLoop
import Linux
import Sealing
import Testing

@testable import Courier

/// "What other clients got wrong": each line is a test here, or named in docs/simulator.md where one of the rows shows it.
@Suite(.timeLimit(.minutes(1))) struct OthersMistakesTests {
    @Test func anAnswerThatNeverComesIsAskedForAgainUnderTheSameID() async throws {
        try await SimulatedAPNs.play { world in
            await world.plan(.with { ($0.silent, $0.accepted) = (true, true) })
            #expect(await world.send() == .delivered)
            let accepted = await world.accepted
            #expect(accepted.count == 2)
            #expect(Set(accepted.compactMap { $0.headers["apns-id"] }).count == 1)
        }
    }

    /// For a server whose clock is 20 minutes ahead, a token of 45 minutes is too old and a new one is not.
    @Test func anExpiredProviderTokenWedgesNothing() async throws {
        let old = Clock.wallMs / 1000 - 45 * 60
        let setting = try SimulatedAPNs.setting { ($0.issuedAtS, $0.aheadMs) = (old, 20 * 60_000) }
        try await SimulatedAPNs.play(setting) { world in
            let outcomes = await world.send(1...100)
            #expect(outcomes.allSatisfy { $0 == .delivered }, "\(outcomes.filter { $0 != .delivered })")
            #expect(await world.accepted.count == 100)
            #expect(await world.connections == 2)
            #expect(Array(await world.simulator.counts.refused.keys) == ["ExpiredProviderToken"])
            #expect(world.issued.all.count == 2)
        }
    }

    @Test func theTokenIsNotMadeAnewForEveryPush() async throws {
        try await SimulatedAPNs.play { world in
            let outcomes = await world.send(1...300)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(world.issued.all.count == 1)
            // A second one would have been answered with TooManyProviderTokenUpdates.
            #expect(await world.simulator.counts.refused.isEmpty)
        }
    }

    @Test(arguments: [PlannedReason.tooManyRequests, .serviceUnavailable])
    func retryAfterIsKept(reason: PlannedReason) async throws {
        try await SimulatedAPNs.play { world in
            var fault = Fault(reason)
            fault.retryAfter = 1
            await world.plan(fault)
            let start = Clock.monotonicMs
            #expect(await world.send() == .delivered)
            #expect(Clock.monotonicMs - start >= 1000)
        }
    }

    @Test func oneWrongTopicPurgesNotEveryone() async throws {
        let setting = try SimulatedAPNs.setting { setting in
            setting.simulator.keys = [try SimulatedAPNs.key(SimulatedAPNs.keyID, ["example.app", "wrong.app"])]
        }
        try await SimulatedAPNs.play(setting) { world in
            await world.plan(always: [Fault(.deviceTokenNotForTopic)])
            for number in 1...60 {
                let outcome = await world.send(number) { $0.topic = "wrong.app" }
                guard case .failed(400, .deviceTokenNotForTopic, let verdict) = outcome else {
                    Issue.record("\(outcome)")
                    continue
                }
                #expect(verdict == (number < 3 ? .keep : .configuration))
            }
            #expect(world.alarms.all == [.purgesStopped(.production, topic: "wrong.app")])
            // The other topic is not judged by it.
            await world.plan()
            #expect(await world.send(99) == .delivered)
            await world.plan(Fault(.badDeviceToken))
            #expect(
                await world.send(100)
                    == .failed(status: 400, reason: .badDeviceToken, verdict: .purge(ifSealedBefore: nil)))
        }
    }

    /// With backoffs from 20 to 200 ms and half of each at least: 10, 20, 40, 80, then 100 ms each.
    @Test(arguments: [
        Fault(.internalServerError), Fault(.serviceUnavailable), Fault(.shutdown), Fault(.idleTimeout), Fault(.tooManyRequests),
        Fault(.tooManyProviderTokenUpdates), .with { $0.reset = true }, .with { $0.drop = true }, .with { $0.refuse = true },
        .with { ($0.goaway, $0.refuse) = (true, true) }, .with { $0.form.half = true },
    ])
    func noFaultThatStandsMakesAHotLoop(fault: Fault) async throws {
        try await SimulatedAPNs.play { world in
            await world.plan(always: [fault])
            let outcome = await world.send { $0.deadlineMs = Clock.wallMs + 500 }
            #expect(outcome != .delivered)
            let tries = await world.refusals
            #expect(tries <= 14)
            #expect(await world.connections <= 14)
        }
    }

    @Test func oneTokensTooManyRequestsDoNotStallTheRest() async throws {
        try await SimulatedAPNs.play { world in
            let busy = Fault.with { ($0.reason, $0.token, $0.retryAfter) = ("TooManyRequests", Push.sampleHex(7), 3) }
            await world.plan(busy)
            async let held = world.send(7) { $0.deadlineMs = Clock.wallMs + 20_000 }
            try await world.until { await world.refusals == 1 }
            // Another push for the same token waits too.
            let number = "00000000-0000-4000-8000-00000000ffff"
            async let alsoHeld = world.send(7) { ($0.apnsID, $0.deadlineMs) = (number, Clock.wallMs + 20_000) }
            let outcomes = await world.send(11...60)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            // All others were sent while these two wait.
            #expect(await world.accepted.count == 50)
            #expect(await !world.accepted.contains { $0.token == Push.sampleHex(7) })
            #expect(await [held, alsoHeld] == [.delivered, .delivered])
        }
    }

    /// Neither outcomes nor alarms, nor what either prints or dumps, hold a token, wherever in a request's life it fails.
    // Promise: no-secret-in-alarms
    @Test func noTokenIsInAnOutcomeOrAlarm() async throws {
        try await SimulatedAPNs.play { world in
            var text = ""
            for (number, fault) in (AnswerRows.rows.map { Fault($0.0) } + ConnectionRows.worst.map(\.1)).enumerated() {
                await world.plan(always: [fault])
                dump(await world.send(number + 1) { $0.deadlineMs = Clock.wallMs + 150 }, to: &text)
            }
            await world.simulator.stop()
            dump(await world.send(999) { $0.deadlineMs = Clock.wallMs + 60 }, to: &text)
            dump(world.alarms.all, to: &text)
            text += "\(world.alarms.all)"
            #expect(text.contains("badTopic") && text.contains("can't be reached"))
            #expect(!text.lowercased().contains("deadbeef"))
            #expect(!text.contains("222, 173, 190, 239"))
            #expect(!text.contains("/3/device"))
            #expect(!text.contains("eyJ"))
        }
    }
}

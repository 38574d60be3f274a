import APNsSimulator
import EventLoop
import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Courier

/// Wall clocks that differ from Apple's. Apple refuses a provider token from its future, and one older than an hour.
@Suite(.timeLimit(.minutes(1))) struct SkewedClockTests {
    /// Plays `body` with a courier whose clock is so far ahead of Apple's, or behind it if negative.
    static func play(aheadMs: Int64, _ body: (SimulatedAPNs, SetClock) async throws -> Void) async throws {
        let clock = SetClock(aheadMs: aheadMs)
        let setting = try SimulatedAPNs.setting { setting in
            setting.clock = clock
            setting.timing.requestMs = 5_000
        }
        try await SimulatedAPNs.play(setting) { try await body($0, clock) }
    }

    @Test(arguments: [400, 2_000, 59_000, -2_000, -59_000, -58 * 60_000] as [Int64])
    func aSmallDifferenceCostsNothing(aheadMs: Int64) async throws {
        try await Self.play(aheadMs: aheadMs) { world, _ in
            #expect(await world.send(1...64).allSatisfy { $0 == .delivered })
            #expect(await world.simulator.counts.refused.isEmpty)
            #expect(await world.accepted.count == 64)
            #expect(world.alarms.all.isEmpty)
        }
    }

    @Test func aClockMinutesAheadLosesNoPush() async throws {
        try await Self.play(aheadMs: 5 * 60_000) { world, _ in
            #expect(await world.send(1...80).allSatisfy { $0 == .delivered })
            #expect(await world.simulator.counts.refused == ["InvalidProviderToken": 1])
            #expect(Set(await world.accepted.compactMap { $0.headers["apns-id"] }).count == 80)
            #expect(world.issued.all.count == 2)
            #expect("\(world.alarms.all)".contains("Set this machine's clock, which is ahead"), "\(world.alarms.all)")
            #expect(world.alarms.all.count == 1)
        }
    }

    /// Far ahead, and far behind: nothing helps until the clock is set. That comes before the deadlines.
    @Test(arguments: [(40 * 60_000, "InvalidProviderToken"), (-2 * 3_600_000, "ExpiredProviderToken")] as [(Int64, String)])
    func pushesWaitUntilTheClockIsSet(aheadMs: Int64, reason: String) async throws {
        try await Self.play(aheadMs: aheadMs) { world, clock in
            async let outcomes = world.send(1...64)
            try await world.until { world.alarms.all.count == 1 }
            #expect(await world.accepted.isEmpty)
            clock.set(aheadMs: 0)
            #expect(await outcomes.allSatisfy { $0 == .delivered })
            #expect(await world.accepted.count == 64)
            #expect(Array(await world.simulator.counts.refused.keys) == [reason])
            #expect("\(world.alarms.all[0])".contains("clock"), "\(world.alarms.all)")
        }
    }

    /// Permanently wrong: no loop, no purge, and a text that names what may be wrong.
    @Test(arguments: [(40 * 60_000, .invalidProviderToken), (-2 * 3_600_000, .expiredProviderToken)] as [(Int64, PushReason)])
    func aClockThatStaysWrongFailsPushesAtTheirDeadline(aheadMs: Int64, reason: PushReason) async throws {
        try await Self.play(aheadMs: aheadMs) { world, _ in
            let outcomes = await world.send(1...50, deadlineInMs: 500)
            #expect(outcomes.allSatisfy { $0 == .failed(status: 403, reason: reason, verdict: .configuration) }, "\(outcomes)")
            #expect(await world.refusals <= FaultyPeerTests.mostConnections + 6)
            #expect(world.issued.all.count <= 2)
            let text = "\(world.alarms.all[0])"
            #expect(world.alarms.all.count == 1 && text.contains("clock"), "\(world.alarms.all)")
            if reason == .invalidProviderToken {
                let words = text.split { !$0.isLetter }
                let places = try ["key", "team", "clock"].map { try #require(words.firstIndex(of: $0[...])) }
                #expect(places == places.sorted(), "\(text)")
            }
        }
    }

    /// A trial's sender waits for the answer, and learns of a wrong key as soon as a renewed token is refused, too.
    @Test func aTrialEndsOnceARenewedTokenIsRefused() async throws {
        let setting = try SimulatedAPNs.setting { $0.simulator.keys = [try SimulatedAPNs.key("ZZZZZ99999")] }
        try await SimulatedAPNs.play(setting) { world in
            let probe = try Probe(topic: SimulatedAPNs.topic, environment: .production, isRequired: true)
                .push(deadlineMs: Clock.wallMs + 60_000)
            let outcome = await world.courier.send(probe)
            #expect(outcome == .failed(status: 403, reason: .invalidProviderToken, verdict: .configuration))
            #expect(await world.refusals == 2)
        }
    }
}

/// Refusals of a provider token while many pushes are in flight.
@Suite(.timeLimit(.minutes(1))) struct RefusedTokenTests {
    /// Apple has accepted the token, and refuses it in all that is in flight at once.
    @Test(arguments: ["InvalidProviderToken", "ExpiredProviderToken"])
    func everyPushInFlightIsTriedAgain(reason: String) async throws {
        let body = ReactionTests.reason(reason)
        let script: ScriptedServer.Script = { request in
            switch (request.connection, request.onConnection) {
            case (1, 1): [.settings(1000), .answer(200)]
            case (1, _): [.after(60, [.answer(403, body)])]
            default: [.settings(1000), .answer(200)]
            }
        }
        var timing = Stage.timing
        timing.requestMs = 5_000
        // Old enough to be replaced.
        try await Stage.play(timing: timing, stored: Clock.wallMs / 1000 - 40 * 60, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            let outcomes = await stage.send((1...64).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered }, "\(Set(outcomes.map { "\($0)" }))")
            #expect(stage.issued.all.count == 2)
            let requests = await stage.server.requests
            for (token, same) in Dictionary(grouping: requests, by: \.token) {
                #expect(Set(same.map(\.apnsID)).count == 1, "\(token)")
            }
        }
    }

    /// Another lane of the key may use a token that Apple accepts: it is not replaced within 20 minutes for a refusal elsewhere.
    @Test func anAcceptedYoungTokenIsNotReplaced() async throws {
        let body = ReactionTests.reason("InvalidProviderToken")
        let script: ScriptedServer.Script = { $0.number == 2 ? [.answer(403, body)] : [.settings(10), .answer(200)] }
        try await Stage.play(script: script) { stage in
            for number in 1...2 { #expect(await stage.courier.send(Push.sample(number)) == .delivered) }
            #expect(stage.issued.all.count == 1)
            #expect(stage.alarms.all.count == 1)
        }
    }

    /// Apple refuses the key in the sandbox only. Production's acceptance of the next token says nothing about the clock.
    @Test func aKeyThatIsRefusedInOneLaneIsNoWrongClock() async throws {
        let body = ReactionTests.reason("InvalidProviderToken")
        let script: ScriptedServer.Script = { request in
            request.token == Push.sampleHex(1) ? [.answer(403, body)] : [.settings(10), .answer(200)]
        }
        try await Stage.play(script: script) { stage in
            var refused = Push.sample(1, deadlineInMs: 1_000)
            refused.environment = .sandbox
            async let outcome = stage.courier.send(refused)
            #expect(await stage.comes { await stage.server.requests.count >= 2 })
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await outcome == .failed(status: 403, reason: .invalidProviderToken, verdict: .configuration))
            #expect(stage.issued.all.count == 2)
            #expect(stage.alarms.all == [.configuration(.apns(.sandbox), topic: "example.app", .invalidProviderToken)])
        }
    }
}

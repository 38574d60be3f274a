import EventLoop
import HTTP2
import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Courier

/// What the courier does about Apple's refusals, over a real connection.
@Suite struct ReactionTests {
    static func reason(_ reason: String) -> String { #"{"reason":"\#(reason)"}"# }

    /// Refuses with `status` and `reason` as long as `refuses` says so.
    static func refusing(
        _ status: Int, _ reason: String, _ fields: [String: String] = [:],
        while refuses: @escaping @Sendable (ScriptedServer.Request) -> Bool
    ) -> ScriptedServer.Script {
        { refuses($0) ? [.settings(1000), .answer(status, Self.reason(reason), fields)] : [.settings(1000), .answer(200)] }
    }

    @Test func errorBodiesMayComeInPieces() async throws {
        let script = Self.refusing(400, "BadCollapseId") { _ in true }
        try await Stage.play(onePiece: false, script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .failed(status: 400, reason: .badCollapseID, verdict: .keep))
            #expect(await stage.server.requests.count == 1)
        }
    }

    @Test(arguments: ["", "no JSON", "[]", #"{"reason":"#])
    func errorBodiesMayBeMissingOrNonsense(body: String) async throws {
        let script: ScriptedServer.Script = { _ in [.answer(400, body)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .failed(status: 400, reason: .other, verdict: .keep))
        }
    }

    @Test func anExpiredProviderTokenIsRenewedOnANewConnection() async throws {
        // Issued 40 minutes ago: old enough to be replaced, young enough to be used.
        let stored = Clock.wallMs / 1000 - 40 * 60
        // The wedge: a connection that was told once refuses for ever.
        let script = Self.refusing(403, "ExpiredProviderToken") { $0.connection == 1 }
        try await Stage.play(stored: stored, script: script) { stage in
            let outcomes = await stage.send((1...20).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(stage.issued.all.count == 2)
            #expect(stage.issued.all.first == stored)
            let requests = await stage.server.requests
            #expect(Set(requests.compactMap { $0.fields["authorization"] }).count == 2)
            #expect(requests.first?.fields["authorization"] != requests.last?.fields["authorization"])
            #expect(await stage.server.connections == 2)
            #expect(requests.first?.apnsID == requests.first { $0.connection == 2 }?.apnsID)
        }
    }

    @Test(arguments: [PushReason.expiredProviderToken, .invalidProviderToken])
    func aRefusedProviderTokenIsRenewedOnceAMinuteUntilTheDeadline(reason: PushReason) async throws {
        let script = Self.refusing(403, reason.rawValue) { _ in true }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 403, reason: reason, verdict: .configuration))
            #expect((3...FaultyPeerTests.mostConnections).contains(await stage.server.requests.count))
            #expect(Set(await stage.server.requests.map(\.apnsID)).count == 1)
            #expect(Set(await stage.server.requests.compactMap { $0.fields["authorization"] }).count == 2)
            #expect(stage.alarms.all == [.configuration(.apns(.production), topic: "example.app", reason)])
        }
    }

    @Test func aPermanentRejectionOfTheProviderIsNotHammered() async throws {
        let script = Self.refusing(403, "ExpiredProviderToken") { _ in true }
        var timing = Stage.timing
        timing.reconnect = Backoff(firstMs: 50, longestMs: 2000)
        try await Stage.play(timing: timing, script: script) { stage in
            _ = await stage.send((1...200).map { Push.sample($0, deadlineInMs: 600) })
            // At least 25, 50, 100, 200 and 400 ms lie between them.
            #expect(await stage.server.connections <= 5)
        }
    }

    @Test(arguments: ["MissingProviderToken", "Forbidden", "BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken"])
    func aWrongConfigurationKeepsTheTokenAndTriesOnce(reason: String) async throws {
        let script = Self.refusing(403, reason) { _ in true }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample())
            #expect(outcome == .failed(status: 403, reason: PushReason(rawValue: reason)!, verdict: .configuration))
            #expect(await stage.server.requests.count == 1)
            #expect(stage.alarms.all.count == 1)
        }
    }

    @Test func anUnrelatedKeyGetsANewConnectionOnce() async throws {
        let once = Self.refusing(403, "UnrelatedKeyIdInToken") { $0.connection == 1 }
        try await Stage.play(script: once) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(await stage.server.connections == 2)
        }
        let always = Self.refusing(403, "UnrelatedKeyIdInToken") { _ in true }
        try await Stage.play(script: always) { stage in
            let outcome = await stage.courier.send(Push.sample())
            #expect(outcome == .failed(status: 403, reason: .unrelatedKeyIDInToken, verdict: .configuration))
            #expect(await stage.server.requests.count == 2)
        }
    }

    @Test func tooManyProviderTokenUpdatesKeepsTheTokenAndReplacesTheConnection() async throws {
        let script = Self.refusing(429, "TooManyProviderTokenUpdates") { $0.connection == 1 }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(stage.issued.all.count == 1)
            #expect(await stage.server.connections == 2)
        }
    }

    @Test func idleTimeoutAndShutdownReconnect() async throws {
        for (status, reason) in [(400, "IdleTimeout"), (503, "Shutdown")] {
            let script = Self.refusing(status, reason) { $0.connection == 1 }
            try await Stage.play(script: script) { stage in
                #expect(await stage.courier.send(Push.sample()) == .delivered)
                #expect(await stage.server.connections == 2)
            }
        }
    }

    @Test func aServerErrorIsTriedAgainOnTheSameConnection() async throws {
        let script = Self.refusing(500, "InternalServerError") { $0.number < 4 }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(await stage.server.requests.count == 4)
            #expect(Set(await stage.server.requests.map(\.apnsID)).count == 1)
            #expect(await stage.server.connections == 1)
            #expect(await stage.courier.figures == Figures(delivered: 1, failed: 0, retries: 3))
        }
    }

    @Test func anUnavailableServerIsNotHammered() async throws {
        let script = Self.refusing(503, "ServiceUnavailable") { _ in true }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
            #expect((3...7).contains(await stage.server.requests.count))
        }
    }

    @Test func retryAfterIsKept() async throws {
        let script = Self.refusing(503, "ServiceUnavailable", ["retry-after": "1"]) { $0.number == 1 }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            let requests = await stage.server.requests
            #expect(requests[1].atMs - requests[0].atMs >= 1000)
        }
        try await Stage.play(script: script) { stage in
            // The end is told at once when what the peer asks for lies behind the deadline.
            let start = stage.loop.now
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 900))
            #expect(outcome == .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
            #expect(stage.loop.now - start < 800)
        }
    }

    /// By the courier's clock, in each form that RFC 9110 section 5.6.7 allows.
    @Test(arguments: ["Fri, 20 Nov 2026 10:00:09 GMT", "Friday, 20-Nov-26 10:00:09 GMT", "Fri Nov 20 10:00:09 2026"])
    func retryAfterMayBeADate(retryAfter: String) async throws {
        let script = Self.refusing(503, "ServiceUnavailable", ["retry-after": retryAfter]) { $0.number == 1 }
        let before: @Sendable () -> UInt64 = { 1_795_168_800_000 }
        let after: @Sendable () -> UInt64 = { 1_795_168_810_000 }
        // Nine seconds from the answer: behind the deadline, so the push ends at once.
        try await Stage.play(script: script, wallMs: before) { stage in
            let start = stage.loop.now
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 2_000))
            #expect(outcome == .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
            #expect(stage.loop.now - start < 1_500)
        }
        // It is in the past.
        try await Stage.play(script: script, wallMs: after) { stage in
            #expect(await stage.courier.send(Push.sample(deadlineInMs: 2_000)) == .delivered)
        }
    }

    @Test func oneTokensTooManyRequestsDoNotStallTheOthers() async throws {
        let busy = Push.sampleHex(7)
        let script = Self.refusing(429, "TooManyRequests", ["retry-after": "1"]) { $0.token == busy && $0.number < 20 }
        try await Stage.play(script: script) { stage in
            async let held = stage.courier.send(Push.sample(7))
            // Known to be held from here on.
            while await stage.server.requests.isEmpty { try await stage.loop.sleep(2) }
            try await stage.loop.sleep(20)
            let start = stage.loop.now
            async let alsoHeld = stage.courier.send(Push.sample(7))
            let outcomes = await stage.send((11...30).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(stage.loop.now - start < 500)
            #expect(await stage.server.requests.filter { $0.token == busy }.count == 1)
            #expect(await held == .delivered)
            #expect(await alsoHeld == .delivered)
            let times = await stage.server.requests.filter { $0.token == busy }.map(\.atMs)
            #expect(times.count == 3)
            #expect(times[1] - times[0] >= 1000)
        }
    }

    /// The push that was refused ends at once; the token is not held for good, nor longer than any push could wait.
    @Test(arguments: ["86400", "4294967295", "99999999999999999999"])
    func aHugeRetryAfterHoldsATokenForAWhileOnly(retryAfter: String) async throws {
        let script = Self.refusing(429, "TooManyRequests", ["retry-after": retryAfter]) { $0.number == 1 }
        var timing = Stage.timing
        timing.longestWaitMs = 400
        try await Stage.play(timing: timing, script: script) { stage in
            let start = stage.loop.now
            let refused = await stage.courier.send(Push.sample(7, deadlineInMs: 300))
            #expect(refused == .failed(status: 429, reason: .tooManyRequests, verdict: .keep))
            #expect(stage.loop.now - start < 250)
            #expect(await stage.courier.send(Push.sample(7)) == .delivered)
            let times = await stage.server.requests.map(\.atMs)
            #expect(times.count == 2 && times[1] - times[0] >= 400)
        }
        #expect(Timing().longestWaitMs == 120_000)
    }

    @Test func unregisteredPurgesTokensSealedBefore() async throws {
        let script: ScriptedServer.Script = { _ in [.answer(410, #"{"reason":"Unregistered","timestamp":1700000000500}"#)] }
        try await Stage.play(script: script) { stage in
            var push = Push.sample()
            push.sealedAtMs = 1_700_000_000_500
            let purged = Outcome.failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: 1_700_000_000_500))
            #expect(await stage.courier.send(push) == purged)
            // Registered again since: alive.
            push.sealedAtMs += 1
            #expect(await stage.courier.send(push) == .failed(status: 410, reason: .unregistered, verdict: .keep))
            #expect(await stage.server.requests.count == 2)
        }
    }

    /// Far below twenty a minute. A broker whose topic and environment were good learns of it at the third token in a row.
    @Test func aWrongSettingPurgesHardlyAnyTokenEvenSlowly() async throws {
        // The numbers of the tokens that Apple takes, of those that come in between.
        let good: Set<Int> = [10, 20]
        let refused = ScriptedServer.Act.answer(400, Self.reason("BadDeviceToken"))
        let script: ScriptedServer.Script = { request in
            good.contains { request.token == Push.sampleHex($0) } ? [.settings(10), .answer(200)] : [refused]
        }
        try await Stage.play(script: script) { stage in
            func verdicts(_ numbers: [Int]) async -> [Verdict?] {
                var verdicts: [Verdict?] = []
                for number in numbers {
                    let outcome = await stage.courier.send(Push.sample(number))
                    if case .failed(400, .badDeviceToken, let verdict) = outcome { verdicts.append(verdict) }
                    if outcome == .delivered { verdicts.append(nil) }
                }
                return verdicts
            }
            let purge = Verdict.purge(ifSealedBefore: nil)
            // Never right: not one is purged, and the third says why.
            #expect(await verdicts([1, 2]) == [.keep, .keep])
            #expect(stage.alarms.all.isEmpty)
            #expect(await verdicts([3, 4]) == [.configuration, .configuration])
            #expect(stage.alarms.all == [.purgesStopped(.apns(.production), topic: "example.app")])
            // What was kept is purged when it is refused again, once a push was taken.
            #expect(await verdicts([10, 1, 2, 3]) == [nil, purge, purge, .configuration])
            #expect(await verdicts([20, 3]) == [nil, purge])
        }
    }

    /// Cut off before its timestamp, by the peer or by our own limit on bodies.
    @Test(arguments: [
        #"{"reason":"Unregistered""#, #"{"reason":"Unregistered","#,
        #"{"reason":"Unregistered","detail":"\#(String(repeating: "x", count: 17_000))","timestamp":1}"#,
        #"{"reason":"Unregistered"}"# + String(repeating: " ", count: 17_000),
    ])
    func a410ThatDidNotComeWholePurgesNothing(body: String) async throws {
        let script: ScriptedServer.Script = { _ in [.answer(410, body)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .failed(status: 410, reason: .other, verdict: .keep))
            #expect(await stage.server.requests.count == 1)
        }
    }

    @Test func oneWrongTopicDoesNotPurgeAllTokens() async throws {
        let script: ScriptedServer.Script = { request in
            let wrong = request.fields["apns-topic"] == "wrong.app"
            return wrong ? [.settings(10), .answer(400, Self.reason("DeviceTokenNotForTopic"))] : [.settings(10), .answer(200)]
        }
        try await Stage.play(script: script) { stage in
            var outcomes: [Outcome] = []
            for number in 1...60 {
                outcomes.append(await stage.courier.send(Push.sample(number, topic: "wrong.app")))
                // Another topic's good answers hide nothing, and it is not judged by the wrong one.
                #expect(await stage.courier.send(Push.sample(1000 + number)) == .delivered)
                #expect(await stage.courier.send(Push.sample(2000 + number)) == .delivered)
            }
            let first = outcomes.prefix(2)
            #expect(first.allSatisfy { $0 == .failed(status: 400, reason: .deviceTokenNotForTopic, verdict: .keep) })
            let rest = outcomes.dropFirst(2)
            #expect(rest.allSatisfy { $0 == .failed(status: 400, reason: .deviceTokenNotForTopic, verdict: .configuration) })
            #expect(stage.alarms.all == [.purgesStopped(.apns(.production), topic: "wrong.app")])
        }
    }

    @Test func aFewBadTokensAmongManyGoodArePurged() async throws {
        let script = Self.refusing(400, "BadDeviceToken") { $0.number % 3 == 0 }
        try await Stage.play(script: script) { stage in
            var purged = 0
            for number in 1...120 {
                if await stage.courier.send(Push.sample(number)) != .delivered { purged += 1 }
            }
            #expect(purged == 40)
            #expect(stage.alarms.all.isEmpty)
        }
    }

    /// Each token is refused after two answers that say nothing of it.
    @Test(arguments: [(503, "ServiceUnavailable"), (429, "TooManyRequests")])
    func answersThatAreTriedAgainDoNotHideRefusals(status: Int, reason: String) async throws {
        let answered = Mutex<[String: Int]>([:])
        let good = Push.sampleHex(999)
        let script: ScriptedServer.Script = { request in
            if request.token == good { return [.settings(10), .answer(200)] }
            let before = answered.withLock { answered in
                defer { answered[request.apnsID, default: 0] += 1 }
                return answered[request.apnsID, default: 0]
            }
            return [before < 2 ? .answer(status, Self.reason(reason)) : .answer(400, Self.reason("BadDeviceToken"))]
        }
        var timing = Stage.timing
        timing.retry = Backoff(firstMs: 1, longestMs: 1)
        try await Stage.play(timing: timing, script: script) { stage in
            var purged = 0
            for number in 0..<60 {
                // Or three in a row would stop it: what is left is the minute's share.
                if number % 2 == 0 { #expect(await stage.courier.send(Push.sample(999)) == .delivered) }
                if case .failed(400, _, .purge) = await stage.courier.send(Push.sample(number)) { purged += 1 }
            }
            #expect(purged == PurgeBreaker.leastRefusals - 1)
            #expect(stage.alarms.all == [.purgesStopped(.apns(.production), topic: "example.app")])
        }
    }

    /// Nothing else would tell an operator why pushes fail.
    @Test(arguments: [
        (429, "TooManyProviderTokenUpdates", "use each key on one broker"), (500, "InternalServerError", "system status page"),
        (599, "New", "report it"),
    ])
    func aRefusalUntilTheDeadlineRaisesOneAlarm(status: Int, reason: String, remedy: String) async throws {
        let script: ScriptedServer.Script = { _ in [.answer(status, Self.reason(reason))] }
        try await Stage.play(script: script) { stage in
            let outcomes = await stage.send((1...5).map { Push.sample($0, deadlineInMs: 300) })
            let name = PushReason(rawValue: reason) ?? .other
            #expect(outcomes.contains(.failed(status: status, reason: name, verdict: .keep)))
            #expect(stage.alarms.all == [.givenUp(.apns(.production), topic: "example.app", status: status, name)])
            #expect("\(stage.alarms.all)".contains(remedy))
        }
    }

    @Test func stopEndsWaitingPushesAndAwaitsResponsesOfOthers() async throws {
        let script: ScriptedServer.Script = { $0.number == 1 ? [.answer(503)] : [.answer(200)] }
        var timing = Stage.timing
        timing.retry = Backoff(firstMs: 2000, longestMs: 2000)
        try await Stage.play(timing: timing, script: script) { stage in
            async let parked = stage.courier.send(Push.sample())
            while await stage.server.requests.isEmpty { try await stage.loop.sleep(2) }
            try await stage.loop.sleep(20)
            await stage.courier.stop(withinMs: 100)
            #expect(await parked == .failed(status: 0, reason: .stopped, verdict: .keep))
            #expect(await stage.courier.send(Push.sample(2)) == .failed(status: 0, reason: .stopped, verdict: .keep))
        }
    }

    /// What has time left is neither lost nor refused for good: the next start sends it again.
    @Test(
        arguments: [[.answer(503)], [.reset(.refusedStream)], [.reset(.internalError)], [.goAway(lastStream: 0)], [.hangUp], []]
            as [[ScriptedServer.Act]])
    func aPushThatFailsDuringAStopIsReportedAsStopped(_ end: [ScriptedServer.Act]) async throws {
        var timing = Stage.timing
        timing.requestMs = 5_000
        timing.lateMs = 5_000
        let script: ScriptedServer.Script = { _ in [.after(60, end)] }
        try await Stage.play(timing: timing, script: script) { stage in
            async let underWay = stage.courier.send(Push.sample())
            while await stage.server.requests.isEmpty { try await stage.loop.sleep(2) }
            await stage.courier.stop(withinMs: 200)
            #expect(await underWay == .failed(status: 0, reason: .stopped, verdict: .keep))
            #expect(await stage.server.requests.count == 1)
        }
    }
}

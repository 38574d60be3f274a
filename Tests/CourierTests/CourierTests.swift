import EventLoop
import HTTP2
import Sealing
import TLS
import Testing
import Vocabulary

@testable import Courier

@Suite struct CourierTests {
    @Test func sendsWhatAppleWants() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            var push = Push.sample()
            push.type = .voip
            push.priority = 5
            #expect(await stage.courier.send(push) == .delivered)
            let request = try #require(await stage.server.requests.first)
            #expect(request.fields[":method"] == "POST")
            #expect(request.fields[":scheme"] == "https")
            #expect(request.fields[":authority"] == "127.0.0.1:\(stage.server.port)")
            #expect(request.fields[":path"] == "/3/device/" + Push.sampleHex(1))
            #expect(request.fields["authorization"]?.hasPrefix("bearer ey") == true)
            #expect(request.fields["apns-topic"] == "example.app.voip")
            #expect(request.fields["apns-push-type"] == "voip")
            #expect(request.fields["apns-priority"] == "5")
            #expect(request.fields["apns-id"] == push.apnsID)
            #expect(request.fields["apns-collapse-id"] == "handle")
            #expect(request.body == #"{"aps":{"alert":"x"}}"#)
        }
    }

    @Test func anExpirationOfZeroIsSentAndNoneIsNot() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            _ = await stage.courier.send(Push.sample())
            var push = Push.sample(2)
            push.expirationS = nil
            push.collapseID = nil
            _ = await stage.courier.send(push)
            let requests = await stage.server.requests
            #expect(requests.map { $0.fields["apns-expiration"] } == ["0", nil])
            #expect(requests.map { $0.fields["apns-collapse-id"] } == ["handle", nil])
        }
    }

    @Test func bothEnvironmentsHaveConnectionsOfTheirOwn() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            var push = Push.sample()
            _ = await stage.courier.send(push)
            push.environment = .sandbox
            _ = await stage.courier.send(push)
            #expect(await stage.server.requests.map(\.connection) == [1, 2])
        }
    }

    @Test func oneJWTServesAllPushes() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let outcomes = await stage.send((1...200).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(Set(await stage.server.requests.compactMap { $0.fields["authorization"] }).count == 1)
            #expect(stage.issued.all.count == 1)
        }
    }

    @Test func aJWTsBirthSurvivesARestart() async throws {
        var stored: UInt64?
        var jwt = ""
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            _ = await stage.courier.send(Push.sample())
            stored = stage.issued.all.first
            jwt = try #require(await stage.server.requests.first?.fields["authorization"])
        }
        try await Stage.play(stored: stored, script: ScriptedServer.accepting) { stage in
            _ = await stage.courier.send(Push.sample())
            let again = try #require(await stage.server.requests.first?.fields["authorization"])
            #expect(again.split(separator: ".").dropLast() == jwt.split(separator: ".").dropLast())
            #expect(stage.issued.all == [stored])
        }
    }

    // MARK: Streams

    /// Apple allows one stream until the first good answer, and ends the connection of who opens more.
    @Test(arguments: [UInt32(1), 1000])
    func startsWithOneStreamWhateverTheSettingsSay(firstStreams: UInt32) async throws {
        let script: ScriptedServer.Script = { request in
            request.onConnection == 1 ? [.after(30, [.settings(1000), .answer(200)])] : [.answer(200)]
        }
        try await Stage.play(firstStreams: firstStreams, script: script) { stage in
            let outcomes = await stage.send((1...50).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            #expect(requests[1].atMs - requests[0].atMs >= 30)
            #expect(requests.contains { $0.openStreams > 10 })
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func neverOpensMoreStreamsThanAllowed() async throws {
        let script: ScriptedServer.Script = { request in
            request.onConnection == 1 ? [.settings(5), .answer(200)] : [.answer(200)]
        }
        try await Stage.play(script: script) { stage in
            let outcomes = await stage.send((1...100).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let most = await stage.server.requests.map(\.openStreams).max()
            #expect(most! <= 5)
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func aLimitThatFallsBackToOneIsKept() async throws {
        let script: ScriptedServer.Script = { request in
            request.number == 1
                ? [.settings(10), .answer(200)] : request.number == 2 ? [.settings(1), .answer(200)] : [.answer(200)]
        }
        try await Stage.play(script: script) { stage in
            let outcomes = await stage.send((1...40).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.server.requests.suffix(20).allSatisfy { $0.openStreams == 1 })
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func refusedStreamsAreSentAgainWithTheSameID() async throws {
        let script: ScriptedServer.Script = { $0.number == 1 ? [.reset(.refusedStream)] : [.answer(200)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(Set(await stage.server.requests.map(\.apnsID)).count == 1)
            #expect(await stage.server.requests.count == 2)
            // At once: nobody has looked at it.
            #expect(await stage.courier.figures.retries == 0)
        }
    }

    @Test func aServerThatRefusesForEverIsNotHammered() async throws {
        let script: ScriptedServer.Script = { _ in [.reset(.refusedStream)] }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 0, reason: .late, verdict: .keep))
            #expect(await stage.server.requests.count <= FaultyPeerTests.mostConnections)
        }
    }

    // MARK: GOAWAY

    @Test func anIdleConnectionIsClosedAfterAGoAway() async throws {
        let script: ScriptedServer.Script = { [.answer(200), .goAway(lastStream: $0.stream)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            var patience = 500
            while await stage.server.openConnections > 0, patience > 0 {
                try await stage.loop.sleep(5)
                patience -= 1
            }
            #expect(await stage.server.openConnections == 0)
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await stage.server.connections == 2)
        }
    }

    @Test func goAwayMidFlightLosesNothingAndRepeatsNoID() async throws {
        // The fifth request of the first two connections is answered with GOAWAY naming the third: two in a row.
        let script: ScriptedServer.Script = { request in
            if request.connection > 2 { return [.settings(1000), .answer(200)] }
            switch request.onConnection {
            case 1: return [.settings(100), .answer(200)]
            case 2...4: return []
            case 5: return [.goAway(lastStream: 3, debug: #"{"reason":"Shutdown"}"#)]
            default: return []
            }
        }
        var timing = Stage.timing
        timing.requestMs = 300
        try await Stage.play(timing: timing, script: script) { stage in
            let outcomes = await stage.send((1...30).map { Push.sample($0) })
            #expect(outcomes.count == 30)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.server.connections >= 3)
            // Every push under its own id, whoever saw it.
            let requests = await stage.server.requests
            #expect(Set(requests.map(\.apnsID)).count == 30)
            for (id, same) in Dictionary(grouping: requests, by: \.apnsID) {
                #expect(Set(same.map(\.token)).count == 1, "\(id) was used for two tokens")
            }
        }
    }

    @Test func streamsBelowTheLastOfAGoAwayAreAnswered() async throws {
        let script: ScriptedServer.Script = { request in
            switch (request.connection, request.onConnection) {
            case (1, 1): [.settings(100), .answer(200)]
            case (1, 2): [.goAway(lastStream: request.stream), .send, .answer(200)]
            default: [.answer(200)]
            }
        }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1)) == .delivered)
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await stage.courier.send(Push.sample(3)) == .delivered)
            #expect(await stage.server.requests.map(\.connection) == [1, 1, 2])
        }
    }

    @Test func aServerThatSaysNothingButGoAwayIsNotHammered() async throws {
        try await Stage.play(greeting: [.goAway(lastStream: 0)], script: ScriptedServer.silent) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect(await stage.server.connections <= FaultyPeerTests.mostConnections)
        }
    }

    // MARK: Silence and loss

    @Test func anAnswerThatNeverComesIsAskedForAgain() async throws {
        let script: ScriptedServer.Script = { $0.number == 1 ? [] : [.answer(200)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(Set(await stage.server.requests.map(\.apnsID)).count == 1)
            // The peer answered the PING, so the connection is kept.
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func aDeadPeerIsLeft() async throws {
        let script: ScriptedServer.Script = { $0.connection == 1 ? [.freeze] : [.answer(200)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(await stage.server.connections == 2)
        }
    }

    @Test func aLostConnectionSendsAgainWithTheSameID() async throws {
        let script: ScriptedServer.Script = { $0.connection == 1 ? [.hangUp] : [.answer(200)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(Set(await stage.server.requests.map(\.apnsID)).count == 1)
        }
    }

    @Test func silenceUntilTheDeadlineIsUnknown() async throws {
        try await Stage.play(script: ScriptedServer.silent) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 400))
            #expect(outcome == .failed(status: 0, reason: .unknown, verdict: .keep))
        }
    }

    @Test func hangingUpForEverIsNotHammered() async throws {
        let script: ScriptedServer.Script = { _ in [.hangUp] }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 0, reason: .unknown, verdict: .keep))
            #expect(await stage.server.requests.count <= FaultyPeerTests.mostConnections)
        }
    }

    @Test func pingsAnIdleConnection() async throws {
        var timing = Stage.timing
        timing.idleMs = 30
        let script: ScriptedServer.Script = { $0.connection == 1 ? [.answer(200), .send, .freeze] : [.answer(200)] }
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            try await stage.loop.sleep(300)
            // The dead connection was found out before it was needed: nothing was sent into it.
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await stage.courier.figures.retries == 0)
            #expect(await stage.server.connections == 2)
        }
    }

    @Test func anUnreachableAPNsIsTriedUntilTheDeadline() async throws {
        try await Stage.play(host: "127.0.0.2", script: ScriptedServer.accepting) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 200))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect(stage.alarms.all.count == 1)
        }
    }

    @Test func anUntrustedAPNsGetsNothing() async throws {
        let other = try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1).certificate
        try await Stage.play(trust: other, script: ScriptedServer.accepting) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 200))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect(await stage.server.requests.isEmpty)
            #expect("\(stage.alarms.all)".contains("trusted authority"))
        }
    }

    @Test func namesAreResolvedAndVerified() async throws {
        try await Stage.play(host: "localhost", script: ScriptedServer.accepting) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(await stage.server.requests.first?.fields[":authority"] == "localhost:\(stage.server.port)")
        }
    }
}

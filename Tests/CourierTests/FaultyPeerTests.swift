import EventLoop
import HTTP2
import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Courier

/// Peers that are no APNs, or one at its worst: the courier neither hangs nor hammers them.
@Suite struct FaultyPeerTests {
    static func frame(_ type: UInt8, _ payload: [UInt8], flags: UInt8 = 0) -> [UInt8] {
        [0, UInt8(payload.count >> 8), UInt8(payload.count & 255), type, flags, 0, 0, 0, 0] + payload
    }
    static let ping = frame(6, [UInt8](repeating: 7, count: 8))
    static let settings = frame(4, [0, 3, 0, 0, 1, 0])
    static let unknown = frame(0xfa, [UInt8](repeating: 7, count: 8))

    static let http1 = Array("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".utf8)
    static let noise = (0..<200).map { UInt8(truncatingIfNeeded: $0 &* 89 &+ 3) }

    /// Attempts to connect within a quarter of a second, at backoffs from 10 to 100 ms: 5-10, 10-20, 20-40, 40-80, then 50-100.
    static let mostConnections = 9

    @Test(arguments: [
        ScriptedServer.Manner.hangsUp, .speaks(http1), .speaks(noise), .speaksInTLS(http1), .speaksInTLS(noise),
        .alpn("http/1.1"),
    ])
    func peersWithoutHTTP2AreRetriedWithWaits(manner: ScriptedServer.Manner) async throws {
        try await Stage.play(manner: manner, script: ScriptedServer.accepting) { stage in
            let outcomes = await stage.send((1...20).map { Push.sample($0, deadlineInMs: 250) })
            #expect(outcomes.allSatisfy { $0 == .failed(status: 0, reason: .unreachable, verdict: .keep) })
            #expect((3...Self.mostConnections).contains(await stage.server.connections))
            #expect(await stage.server.requests.isEmpty)
            #expect(stage.alarms.all.count == 1)
        }
    }

    @Test func silentPeersTimeOut() async throws {
        var timing = Stage.timing
        timing.connectMs = 50
        try await Stage.play(manner: .mute, timing: timing, script: ScriptedServer.accepting) { stage in
            let start = stage.loop.now
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect((240..<1500).contains(stage.loop.now - start))
            #expect((2...5).contains(await stage.server.connections))
            #expect("\(stage.alarms.all)".contains("not ready in time"))
        }
    }

    /// Within a minute: the second cause is another thing to mend, and is told as well; the first is not told twice.
    @Test func eachCauseOfAnUnreachablePeerIsReported() async throws {
        let looked = Counter()
        let resolver: Stage.Resolver = { endpoint in
            looked.add()
            return looked.value % 2 == 1 ? [] : [.v4(0x7f00_0001, port: endpoint.port)]
        }
        try await Stage.play(manner: .hangsUp, host: "localhost", resolver: resolver, script: ScriptedServer.accepting) { stage in
            _ = await stage.courier.send(Push.sample(deadlineInMs: 400))
            let told = stage.alarms.all.map(\.description)
            #expect(looked.value >= 4)
            #expect(told.count { $0.contains(ConnectionEnd.unresolved.description) } == 1, "\(told)")
            #expect(told.count == Set(told).count && (2...3).contains(told.count), "\(told)")
        }
    }

    @Test func withoutALPNIsFineWhereItIsHTTP2() async throws {
        try await Stage.play(manner: .withoutALPN, script: ScriptedServer.accepting) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
        }
    }

    /// nghttp2 ends what it must answer too often; of what it passes over in silence the courier takes a megabyte.
    @Test(arguments: [ping, settings, unknown])
    func floodsAreLeft(frame: [UInt8]) async throws {
        let flood = ScriptedServer.Act.raw([UInt8]([[UInt8]](repeating: frame, count: 100_000).joined()))
        let script: ScriptedServer.Script = { $0.connection == 1 ? [flood] : [.answer(200)] }
        var timing = Stage.timing
        (timing.requestMs, timing.pingMs) = (10_000, 10_000)
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(deadlineInMs: 5000)) == .delivered)
            #expect(await stage.server.connections == 2)
        }
    }

    @Test func aWindowThatNeverOpensIsGivenUpWithItsConnection() async throws {
        let script: ScriptedServer.Script = { _ in [.answer(200)] }
        var timing = Stage.timing
        timing.requestMs = 60
        try await Stage.play(manner: .shutWindows, timing: timing, script: script) { stage in
            let outcomes = await stage.send((1...50).map { Push.sample($0, deadlineInMs: 600) })
            #expect(Set(outcomes.map { "\($0)" }).count <= 3)
            #expect(outcomes.allSatisfy { if case .failed(0, let reason, .keep) = $0 { reason != .other } else { false } })
            #expect(await stage.server.requests.isEmpty)
            // Three requests one after the other, and a wait, a connection.
            let connections = await stage.server.connections
            #expect((2...12).contains(connections), "\(connections) \(outcomes)")
        }
    }

    @Test func aPeerThatAllowsNoStreamRaisesAnAlarm() async throws {
        try await Stage.play(firstStreams: 0, script: ScriptedServer.accepting) { stage in
            let outcomes = await stage.send((1...20).map { Push.sample($0, deadlineInMs: 500) })
            #expect(!outcomes.contains(.delivered))
            // Each is given the time of a request.
            #expect((2...4).contains(await stage.server.connections))
            #expect("\(stage.alarms.all)".contains("refuses every request"))
        }
    }

    @Test func peersThatResetEveryStreamAreNotHammered() async throws {
        let script: ScriptedServer.Script = { _ in [.reset(.internalError)] }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            #expect(outcome == .failed(status: 0, reason: .unknown, verdict: .keep))
            #expect((3...Self.mostConnections).contains(await stage.server.requests.count))
        }
    }

    @Test func peersThatRefuseEveryStreamAreNotHammeredByManyPushes() async throws {
        let script: ScriptedServer.Script = { $0.number == 1 ? [.settings(1000), .answer(200)] : [.reset(.refusedStream)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            // Time for 500 refusals under a sanitizer.
            let outcomes = await stage.send((1...500).map { Push.sample($0, deadlineInMs: 1_000) })
            #expect(!outcomes.contains(.delivered))
            // One burst into the open connection, and twenty a connection from then on.
            let most = Self.mostConnections + 750 / 50
            #expect(await stage.server.requests.count <= 501 + 20 * most)
            #expect((2...most).contains(await stage.server.connections))
        }
    }

    @Test func peersThatCloseAfterEachResponseAreNotHammered() async throws {
        let script: ScriptedServer.Script = { _ in [.answer(200), .send, .hangUp] }
        try await Stage.play(script: script) { stage in
            let start = stage.loop.now
            let outcomes = await stage.send((1...10).map { Push.sample($0, deadlineInMs: 5000) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            // The second at once, then the shortest wait, of 5 ms at least, before each.
            #expect(await stage.server.connections == 10)
            #expect(stage.loop.now - start >= 5 * 8)
        }
    }

    /// Long before the request's time-out, the next push and a second attempt of the one under way go elsewhere.
    @Test func aDeadPeerIsDetectedLongBeforeTheRequestTimeout() async throws {
        var timing = Stage.timing
        timing.requestMs = 10_000
        let script: ScriptedServer.Script = { $0.connection == 1 ? [.freeze] : [.answer(200)] }
        try await Stage.play(timing: timing, script: script) { stage in
            async let first = stage.courier.send(Push.sample(1, deadlineInMs: 5000))
            #expect(await stage.comes { await stage.server.requests.count == 1 })
            #expect(await stage.courier.send(Push.sample(2, deadlineInMs: 5000)) == .delivered)
            #expect(await first == .delivered)
            #expect(await stage.server.requests.map(\.apnsID).sorted() == [1, 1, 2].map { Push.sample($0).apnsID })
        }
    }

    /// A GOAWAY says that they were not processed: no wait, and no doubt about their outcome.
    @Test func unsentRequestsOfAClosedConnectionAreRetriedAtOnce() async throws {
        let script: ScriptedServer.Script = { request in
            guard request.number == 2 else { return [.settings(1000), .answer(200)] }
            return [.answer(200), .goAway(lastStream: request.stream), .send, .abort]
        }
        var timing = Stage.timing
        timing.requestMs = 20_000
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            let pushes = (1...400).map { number in
                var push = Push.sample(number, deadlineInMs: 20_000)
                push.payload = [UInt8](repeating: 0x20, count: 4096)
                return push
            }
            #expect(await stage.send(pushes).allSatisfy { $0 == .delivered })
            #expect(await stage.courier.figures.retries == 0)
            let requests = await stage.server.requests
            #expect(Set(requests.map(\.apnsID)).count == requests.count)
        }
    }

    /// The next request can't be written any more; the answers that came before are read all the same.
    @Test func responsesBeforeAResetCount() async throws {
        let next = Mutex<(@Sendable () -> Void)?>(nil)
        let script: ScriptedServer.Script = { request in
            guard request.number == 2 else { return [.settings(1000), .answer(200)] }
            next.withLock { $0?() }
            return [.answer(200), .send, .abort]
        }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1)) == .delivered)
            let (loop, courier, delivered) = (stage.loop, stage.courier, Counter())
            // On the loop, so that it is written in the turn in which the peer ends.
            let third: @Sendable () -> Void = {
                Task(executorPreference: loop) { if await courier.send(Push.sample(3)) == .delivered { delivered.add() } }
            }
            next.withLock { $0 = third }
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await stage.comes { delivered.value == 1 })
            #expect(await stage.server.requests.map(\.apnsID) == (1...3).map { Push.sample($0).apnsID })
        }
    }

    // MARK: GOAWAY

    @Test(arguments: ["BadCertificateEnvironment", "Forbidden", "InvalidProviderToken"])
    func aGoAwayForTheConfigurationRaisesItsAlarm(reason: String) async throws {
        let script: ScriptedServer.Script = { _ in [.goAway(lastStream: 0, debug: #"{"reason":"\#(reason)"}"#)] }
        try await Stage.play(script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250))
            switch outcome {
            case .failed(0, _, .keep), .failed(403, .invalidProviderToken, .configuration): break
            default: Issue.record("\(outcome)")
            }
            #expect("\(stage.alarms.all)".contains("refuses this provider for all topics: \(reason)"))
            #expect((2...Self.mostConnections).contains(await stage.server.connections))
        }
    }

    @Test(arguments: ["Shutdown", "IdleTimeout", "", "none", "SomethingNew"])
    func anyOtherGoAwayIsAReconnectAndNoAlarm(reason: String) async throws {
        let debug = reason == "none" ? "" : #"{"reason":"\#(reason)"}"#
        let script: ScriptedServer.Script = { request in
            request.connection > 1
                ? [.answer(200)]
                : request.onConnection == 1
                    ? [.answer(200)] : [.goAway(lastStream: request.stream - 2, debug: debug)]
        }
        var timing = Stage.timing
        timing.reconnect = Backoff(firstMs: 5000, longestMs: 5000)
        try await Stage.play(timing: timing, script: script) { stage in
            for number in 1...3 { #expect(await stage.courier.send(Push.sample(number)) == .delivered) }
            #expect(await stage.server.connections == 2)
            #expect(stage.alarms.all.isEmpty)
        }
    }

    @Test func aGoAwayForTheProviderTokenRenewsIt() async throws {
        let stored = Clock.wallMs / 1000 - 40 * 60
        let script: ScriptedServer.Script = { request in
            request.connection > 1
                ? [.answer(200)] : [.goAway(lastStream: 0, debug: #"{"reason":"ExpiredProviderToken"}"#)]
        }
        try await Stage.play(stored: stored, script: script) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            let requests = await stage.server.requests
            #expect(stage.issued.all.count == 2)
            #expect(requests[0].fields["authorization"] != requests[1].fields["authorization"])
            #expect(requests[0].apnsID == requests[1].apnsID)
        }
    }

    @Test func aGoAwayThatAsksForCalmIsFollowedByAWait() async throws {
        let script: ScriptedServer.Script = { request in
            request.number == 2 ? [.answer(200), .goAway(lastStream: request.stream, .enhanceYourCalm)] : [.answer(200)]
        }
        var timing = Stage.timing
        timing.reconnect = Backoff(firstMs: 400, longestMs: 400)
        try await Stage.play(timing: timing, script: script) { stage in
            // It did good work, which for any other reason would let the next one follow at once.
            for number in 1...2 { #expect(await stage.courier.send(Push.sample(number)) == .delivered) }
            let start = stage.loop.now
            #expect(await stage.courier.send(Push.sample(3)) == .delivered)
            #expect(await stage.server.connections == 2)
            #expect(stage.loop.now - start >= 190)
        }
    }

    @Test func twoGoAwaysOnOneConnectionNameTheStreamsToRetry() async throws {
        // Eleven are open when the first says that all may stay, and the second that those above 9 were not looked at.
        let script: ScriptedServer.Script = { request in
            switch (request.connection, request.onConnection) {
            case (1, 1): [.settings(100), .answer(200)]
            case (1, 2...10): []
            case (1, 11):
                [
                    .goAway(lastStream: .max), .send, .goAway(lastStream: 9, debug: #"{"reason":"Shutdown"}"#), .send,
                ] + [3, 5, 7, 9].map { .answerTo($0, 200) }
            case (1, _): []
            default: [.settings(100), .answer(200)]
            }
        }
        var timing = Stage.timing
        timing.requestMs = 5000
        try await Stage.play(timing: timing, script: script) { stage in
            let outcomes = await stage.send((1...30).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            let first = requests.filter { $0.connection == 1 }
            let answered = Set(first.filter { $0.stream <= 9 }.map(\.apnsID))
            let again = requests.filter { $0.connection > 1 }.map(\.apnsID)
            #expect(answered.count == 5)
            #expect(answered.isDisjoint(with: again))
            #expect(Set(first.filter { $0.stream > 9 }.map(\.apnsID)).isSubset(of: again))
            #expect(Set(again).count == again.count)
            #expect(await stage.server.connections == 2)
            #expect(await stage.courier.figures.retries == 0)
        }
    }

    // MARK: Answers

    /// The peer answers out of order, and under each other's `apns-id`.
    @Test func answersBelongToTheirStreams() async throws {
        let bad = Set((1...40).filter { $0 % 3 == 0 }.map(Push.sampleHex))
        let script: ScriptedServer.Script = { request in
            if request.onConnection == 1 { return [.settings(100), .answer(200)] }
            let other = "00000000-0000-4000-8000-000000000001"
            let answer = ScriptedServer.Act.answer(
                bad.contains(request.token) ? 400 : 200, bad.contains(request.token) ? #"{"reason":"BadCollapseId"}"# : "",
                ["apns-id": other])
            return [.after(UInt64(60 - request.onConnection), [answer])]
        }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1)) == .delivered)
            let outcomes = await stage.send((1...40).map { Push.sample($0) })
            for (index, outcome) in outcomes.enumerated() {
                let isBad = (index + 1) % 3 == 0
                #expect(outcome == (isBad ? .failed(status: 400, reason: .badCollapseID, verdict: .keep) : .delivered))
            }
        }
    }
}

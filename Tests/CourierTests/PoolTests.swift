import Dispatch
import EventLoop
import HTTP2
import Linux
import Testing
import Vocabulary

@testable import Courier

/// How many connections there are, over real sockets.
@Suite struct PoolTests {
    /// Lets `streams` in at a time and answers each after `ms`.
    static func slow(_ streams: UInt32, _ ms: UInt64) -> ScriptedServer.Script {
        { request in
            request.onConnection == 1 ? [.settings(streams), .answer(200)] : [.after(ms, [.answer(200)])]
        }
    }

    static func timing(grow: UInt64 = 100, shrink: UInt64 = 300_000) -> Timing {
        var timing = Stage.timing
        (timing.growAfterMs, timing.shrinkAfterMs, timing.requestMs) = (grow, shrink, 2000)
        return timing
    }

    @Test func growsOneConnectionAtATimeWhileItsStreamsAreAllInUse() async throws {
        try await Stage.play(timing: Self.timing(), script: Self.slow(2, 20)) { stage in
            let start = stage.loop.now
            let outcomes = await stage.send((1...400).map { Push.sample($0, deadlineInMs: 20_000) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let opened = await stage.server.connectedAt
            #expect(opened.count == 6)
            // Not at the first full moment, and apart from each other.
            #expect(opened[1] - start >= 100)
            #expect(zip(opened.dropFirst(2), opened.dropFirst()).allSatisfy { $0 - $1 >= 80 }, "\(opened)")
            // Every one of them begins with one stream, and keeps to its limit.
            let requests = await stage.server.requests
            #expect(requests.allSatisfy { $0.openStreams <= 2 })
            #expect(Set(requests.map(\.apnsID)).count == 400)
            #expect(requests.count == 400)
        }
    }

    @Test func aShortBurstOpensNoSecondConnection() async throws {
        try await Stage.play(timing: Self.timing(grow: 1000), script: Self.slow(2, 2)) { stage in
            let outcomes = await stage.send((1...60).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func aSilentPeerGetsNoMoreConnections() async throws {
        let script: ScriptedServer.Script = { $0.onConnection == 1 ? [.settings(2), .answer(200)] : [] }
        try await Stage.play(timing: Self.timing(grow: 20), script: script) { stage in
            let outcomes = await stage.send((1...30).map { Push.sample($0, deadlineInMs: 250) })
            #expect(outcomes.filter { $0 != .delivered }.count == 29)
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func idleConnectionsAreClosedExceptTheFirst() async throws {
        try await Stage.play(timing: Self.timing(grow: 40, shrink: 200), script: Self.slow(2, 20)) { stage in
            _ = await stage.send((1...200).map { Push.sample($0, deadlineInMs: 20_000) })
            #expect(await stage.server.openConnections > 2)
            #expect(await stage.comes { await stage.server.openConnections == 1 })
            let before = await stage.server.connections
            #expect(await stage.courier.send(Push.sample(999)) == .delivered)
            #expect(await stage.server.connections == before)
            #expect(await stage.server.requests.last?.connection == 1)
            #expect(stage.alarms.all.isEmpty)
        }
    }

    @Test func thePoolDoesNotGrowAfterEnhanceYourCalm() async throws {
        let script: ScriptedServer.Script = { request in
            switch request.onConnection {
            case 1: [.settings(2), .answer(200)]
            case 2: [.reset(.enhanceYourCalm)]
            default: [.after(10, [.answer(200)])]
            }
        }
        try await Stage.play(timing: Self.timing(grow: 20), script: script) { stage in
            let outcomes = await stage.send((1...60).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.server.connections == 1)
        }
    }

    // MARK: Streams

    @Test func aRefusalOfTheProviderLeavesOneStreamUntilASuccess() async throws {
        let script: ScriptedServer.Script = { request in
            switch request.number {
            case 1: [.settings(100), .answer(200)]
            case 2: [.answer(403, #"{"reason":"Forbidden"}"#)]
            case 3...6: [.after(20, [.answer(500)])]
            default: [.after(20, [.answer(200)])]
            }
        }
        try await Stage.play(timing: Self.timing(), script: script) { stage in
            _ = await stage.courier.send(Push.sample(1))
            _ = await stage.courier.send(Push.sample(2))
            let outcomes = await stage.send((3...60).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            // 3 to 6 come to nothing, 7 is the first that does well.
            #expect(requests[2...6].allSatisfy { $0.openStreams == 1 }, "\(requests.map(\.openStreams))")
            #expect(requests[7...].contains { $0.openStreams > 10 })
            #expect(await stage.server.connections == 1)
        }
    }

    @Test func aFallenLimitRecovers() async throws {
        let script: ScriptedServer.Script = { request in
            switch request.number {
            case 1: [.settings(10), .answer(200)]
            case 2: [.settings(1), .answer(200)]
            case 30: [.settings(50), .answer(200)]
            default: [.answer(200)]
            }
        }
        try await Stage.play(script: script) { stage in
            let outcomes = await stage.send((1...200).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            #expect(requests[15..<29].allSatisfy { $0.openStreams == 1 })
            #expect(requests[40...].contains { $0.openStreams > 10 })
        }
    }

    @Test func aConnectionIsReplacedBeforeItsStreamIDsEnd() async throws {
        var timing = Self.timing()
        timing.lastStream = 41
        try await Stage.play(timing: timing, script: ScriptedServer.accepting) { stage in
            for number in 1...100 {
                #expect(await stage.courier.send(Push.sample(number)) == .delivered)
                if number % 10 == 0 { try await stage.loop.sleep(10) }
            }
            let requests = await stage.server.requests
            #expect(requests.count == 100)
            #expect(requests.allSatisfy { $0.stream < 81 })
            #expect((4...5).contains(await stage.server.connections))
            #expect(await stage.courier.figures.retries == 0)
        }
    }

    // MARK: Addresses

    @Test func aDeadAddressCausesAShortDelay() async throws {
        let dead = try EventLoop(name: "dead")
        try dead.start()
        let nobody = try ScriptedServer(on: dead, Stage.identity, script: ScriptedServer.silent)
        await nobody.vanish()
        let looked = Counter()
        let resolver: Stage.Resolver = { endpoint in
            looked.add()
            return [.v4(0x7f00_0001, port: nobody.port), .v4(0x7f00_0001, port: endpoint.port)]
        }
        try await Stage.play(host: "localhost", resolver: resolver, script: ScriptedServer.accepting) { stage in
            let start = stage.loop.now
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect((45..<950).contains(stage.loop.now - start))
            #expect(stage.alarms.all.isEmpty)
            #expect(looked.value == 1)
        }
        dead.stop()
    }

    @Test func aSilentAddressCausesALongerDelay() async throws {
        let other = try EventLoop(name: "mute")
        try other.start()
        let mute = try ScriptedServer(on: other, Stage.identity, manner: .mute, script: ScriptedServer.silent)
        try await mute.start()
        let resolver: Stage.Resolver = {
            [.v4(0x7f00_0001, port: mute.port), .v6(high: 0, low: 1, port: 1), .v4(0x7f00_0001, port: $0.port)]
        }
        try await Stage.play(host: "localhost", resolver: resolver, script: ScriptedServer.accepting) { stage in
            let start = stage.loop.now
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            // 50 ms for TCP and 150 ms more for what comes after it.
            #expect((190..<950).contains(stage.loop.now - start))
            #expect(await stage.comes { await mute.openConnections == 0 })
        }
        other.stop()
    }

    /// Its thread can't be ended: there is one, however often its answer is waited for in vain.
    @Test func aHangingResolverTimesOutLikeAConnection() async throws {
        let (looked, hears) = (Counter(), DispatchSemaphore(value: 0))
        let resolver: Stage.Resolver = { endpoint in
            looked.add()
            hears.wait()
            return [.v4(0x7f00_0001, port: endpoint.port)]
        }
        var timing = Stage.timing
        timing.connectMs = 60
        try await Stage.play(timing: timing, host: "localhost", resolver: resolver, script: ScriptedServer.accepting) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 300))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect(stage.alarms.all == [.unreachable(.apns(.production), topic: nil, ConnectionEnd.unresolved.description)])
            #expect(looked.value == 1)
            async let next = stage.courier.send(Push.sample(2))
            for _ in 1...2 { hears.signal() }
            #expect(await next == .delivered)
            #expect(looked.value <= 2)
        }
    }

    @Test func namesAreLookedUpForEveryConnection() async throws {
        let looked = Counter()
        let script: ScriptedServer.Script = { [.answer(200), .goAway(lastStream: $0.stream)] }
        let resolver: Stage.Resolver = { endpoint in
            looked.add()
            return [.v4(0x7f00_0001, port: endpoint.port)]
        }
        try await Stage.play(host: "localhost", resolver: resolver, script: script) { stage in
            for number in 1...3 { #expect(await stage.courier.send(Push.sample(number)) == .delivered) }
            #expect(looked.value == 3)
        }
    }

    /// Eight are tried at once: the next attempt goes on where they end.
    @Test func anAttemptStartsWithTheNextAddress() async throws {
        let looked = Counter()
        let resolver: Stage.Resolver = { endpoint in
            looked.add()
            // Nobody listens at any other.
            return (1...15).map { .v4(0x7f00_0100 + $0, port: endpoint.port) } + [.v4(0x7f00_0001, port: endpoint.port)]
        }
        try await Stage.play(host: "localhost", resolver: resolver, script: ScriptedServer.accepting) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(looked.value == 2)
        }
    }

    @Test func addressFamiliesAlternate() {
        let v4: [SocketAddress] = (1...3).map { .v4($0, port: 1) }
        let v6: [SocketAddress] = (1...2).map { .v6(high: 0, low: $0, port: 1) }
        #expect(Dial.alternating(v6 + v4) == [v6[0], v4[0], v6[1], v4[1], v4[2]])
        #expect(Dial.alternating(v4 + v6) == [v4[0], v6[0], v4[1], v6[1], v4[2]])
        #expect(Dial.alternating([]) == [])
    }
}

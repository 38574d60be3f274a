import APNsSimulator
import EventLoop
import HTTP2
import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Courier

/// Connections that a network drops without a word. The server stops reading and writing, and its sockets stay open.
@Suite(.timeLimit(.minutes(1))) struct SilentConnectionTests {
    /// The deadlines of these pushes come before the time-out of a request, so only a second attempt delivers them.
    static let timing: Timing = {
        var timing = Stage.timing
        timing.requestMs = 20_000
        return timing
    }()

    /// Every push has its own id, in all of its attempts.
    static func expectOneIDForEach(_ stage: Stage) async {
        for (token, same) in Dictionary(grouping: await stage.server.requests, by: \.token) {
            #expect(Set(same.map(\.apnsID)).count == 1, "\(token)")
            #expect(same.count <= 2)
        }
    }

    @Test func aPushOnADeadIdleConnectionGetsASecondAttempt() async throws {
        let script: ScriptedServer.Script = { request in
            request.connection == 1 ? [.answer(200), .send, .freeze] : [.settings(10), .answer(200)]
        }
        // Only the PING that goes with the push finds the connection dead.
        var timing = Self.timing
        (timing.quietMs, timing.lateMs) = (10, 20_000)
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1)) == .delivered)
            try await stage.loop.sleep(30)
            #expect(await stage.courier.send(Push.sample(2)) == .delivered)
            #expect(await stage.server.requests.map(\.connection) == [1, 2])
            #expect(await stage.server.connections == 2)
            #expect(await stage.courier.figures == Figures(delivered: 2, failed: 0, retries: 1))
            #expect(stage.alarms.all.isEmpty)
        }
    }

    @Test func everyPushOnADeadBusyConnectionGetsASecondAttempt() async throws {
        let script: ScriptedServer.Script = { request in
            switch (request.connection, request.onConnection) {
            case (1, 1): [.settings(1000), .answer(200)]
            case (1, 2...20): []
            case (1, 21): [.answer(200), .send, .freeze]
            default: [.settings(1000), .answer(200)]
            }
        }
        try await Stage.play(timing: Self.timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            let outcomes = await stage.send((1...40).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.courier.figures.delivered == 41)
            #expect(await stage.server.connections == 2)
            await Self.expectOneIDForEach(stage)
        }
    }

    /// It answers PINGs, and pushes long after a silent peer would have been left.
    @Test func aSlowConnectionIsNoReasonToSendTwice() async throws {
        let script: ScriptedServer.Script = { request in
            request.onConnection == 1 ? [.settings(1000), .answer(200)] : [.after(600, [.answer(200)])]
        }
        try await Stage.play(timing: Self.timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            #expect(await stage.send((1...20).map { Push.sample($0) }).allSatisfy { $0 == .delivered })
            #expect(await stage.server.requests.count == 21)
            #expect(await stage.server.connections == 1)
        }
    }

    /// It reads no PING for a while, though not long enough to be left. One more connection is made ready meanwhile.
    @Test func aPauseIsNoReasonToSendTwice() async throws {
        let script: ScriptedServer.Script = { request in
            switch request.number {
            case 1: [.settings(1000), .answer(200)]
            case 41: [.freeze, .answer(200)]
            default: [.answer(200)]
            }
        }
        var timing = Self.timing
        (timing.lateMs, timing.pingMs) = (20, 3_000)
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            async let outcomes = stage.send((1...40).map { Push.sample($0, deadlineInMs: 20_000) })
            // Half of the PING's time is left after this.
            #expect(await stage.comes { await stage.server.connections == 2 })
            await stage.server.thawAll()
            #expect(await outcomes.allSatisfy { $0 == .delivered })
            #expect(await stage.server.requests.count == 41)
            #expect(await stage.courier.figures.retries == 0)
            #expect(await stage.server.connections == 2)
        }
    }

    /// Each pause makes all connections doubtful. The pool stays within its limit.
    @Test func pausesDoNotGrowThePoolBeyondItsLimit() async throws {
        var timing = Self.timing
        (timing.lateMs, timing.connections) = (10, 3)
        try await Stage.play(timing: timing, script: ScriptedServer.accepting) { stage in
            #expect(await stage.courier.send(Push.sample(1000)) == .delivered)
            for number in 1...20 {
                await stage.server.freezeAll()
                async let outcome = stage.courier.send(Push.sample(number, deadlineInMs: 20_000))
                try await stage.loop.sleep(timing.pingMs / 2 + 60)
                await stage.server.thawAll()
                #expect(await outcome == .delivered)
            }
            // A connection that a slow machine left as silent ends a little later.
            #expect(await stage.comes { await (1...3).contains(stage.server.openConnections) })
        }
    }

    /// The peer asked for calm, so a doubtful connection is no reason to open another one.
    @Test func calmAlsoAppliesWhileAllConnectionsAreDoubtful() async throws {
        let script: ScriptedServer.Script = { request in
            switch request.onConnection {
            case 1: [.settings(10), .answer(200)]
            case 2: [.reset(.enhanceYourCalm)]
            default: [.answer(200)]
            }
        }
        var timing = Self.timing
        timing.lateMs = 10
        try await Stage.play(timing: timing, script: script) { stage in
            for number in 1...2 { #expect(await stage.courier.send(Push.sample(number)) == .delivered) }
            await stage.server.freezeAll()
            async let outcome = stage.courier.send(Push.sample(3, deadlineInMs: 20_000))
            try await stage.loop.sleep(timing.pingMs / 2 + 60)
            #expect(await stage.server.connections == 1)
            await stage.server.thawAll()
            #expect(await outcome == .delivered)
        }
    }

    /// This process was stopped just after it waited for events. The peer's frames are in the socket, and the timers are due.
    @Test func aStopOfThisProcessOpensNoConnection() async throws {
        let stops = Mutex(false)
        let setting = try SimulatedAPNs.setting { setting in
            (setting.timing.requestMs, setting.timing.quietMs) = (20_000, 10)
            setting.loopClock = {
                let stopsNow = stops.withLock { stops in
                    defer { stops = false }
                    return stops
                }
                let end = Clock.monotonicMs + (stopsNow ? 350 : 0)
                while Clock.monotonicMs < end {}
                return Clock.monotonicMs
            }
        }
        try await SimulatedAPNs.play(setting) { world in
            #expect(await world.send(1000) == .delivered)
            try await world.loop.sleep(30)
            await world.plan(.with { $0.pauseMs = 100 })
            async let outcome = world.send(1)
            try await world.loop.sleep(30)
            let loop = world.loop
            loop.submit {
                stops.withLock { $0 = true }
                // The next turn begins without another look at the clock.
                loop.submit {}
            }
            #expect(await outcome == .delivered)
            #expect(await world.connections == 1)
            #expect(await world.courier.figures.retries == 0)
        }
    }

    /// Apple may have the push, so its result is not known.
    @Test func aPushOfASilentConnectionThatIsWithdrawnMayHaveBeenSent() async throws {
        let isWanted = Mutex(true)
        let script: ScriptedServer.Script = { _ in
            isWanted.withLock { $0 = false }
            return [.freeze]
        }
        try await Stage.play(timing: Self.timing, script: script) { stage in
            var push = Push.sample(1)
            push.isWanted = { isWanted.withLock(\.self) }
            #expect(await stage.courier.send(push) == .failed(status: 0, reason: .unknown, verdict: .keep))
            #expect(await stage.server.requests.count == 1)
        }
    }

    /// The other connection is silent as well: the push waits for the time-out of a request.
    @Test func thereIsOneSecondAttempt() async throws {
        let script: ScriptedServer.Script = { $0.connection < 3 ? [.freeze] : [.answer(200)] }
        try await Stage.play(timing: Self.timing, script: script) { stage in
            let outcome = await stage.courier.send(Push.sample(1, deadlineInMs: 1_500))
            #expect(outcome == .failed(status: 0, reason: .unknown, verdict: .keep))
            #expect(await stage.server.requests.map(\.connection) == [1, 2])
        }
    }

    /// All connections of a pool die at once. None of the others is taken for a second attempt, and no push is late for it.
    @Test func theSecondAttemptGoesToALiveConnection() async throws {
        let dead = Mutex(false)
        let script: ScriptedServer.Script = { request in
            if dead.withLock(\.self), request.connection <= 3 { return [.freeze] }
            if request.onConnection == 1 { return [.settings(2), .answer(200)] }
            return request.token == Push.sampleHex(500) ? [.answer(200), .send, .freeze] : [.after(40, [.answer(200)])]
        }
        var timing = Self.timing
        (timing.growAfterMs, timing.connections) = (20, 3)
        try await Stage.play(timing: timing, script: script) { stage in
            #expect(await stage.send((1...60).map { Push.sample($0) }).allSatisfy { $0 == .delivered })
            #expect(await stage.server.openConnections == 3)
            await stage.server.freezeAll()
            dead.withLock { $0 = true }
            try await stage.loop.sleep(30)
            #expect(await stage.courier.send(Push.sample(501)) == .delivered)
            #expect(await stage.server.requests.last?.connection == 4)
            #expect(await stage.courier.figures.retries <= 1)
        }
    }

    /// TCP connects, and the handshake is never answered. The first connection alone is hit.
    @Test func aHandshakeThatHangsIsTriedAgain() async throws {
        var timing = Self.timing
        timing.connectMs = 10_000
        try await Stage.play(manner: .muteAtFirst, timing: timing, script: ScriptedServer.accepting) { stage in
            #expect(await stage.courier.send(Push.sample()) == .delivered)
            #expect(await stage.server.connections == 2)
            #expect(await stage.comes { await stage.server.openConnections == 1 })
        }
    }
}

@Suite struct LivenessTests {
    static let timing = Timing()

    @Test func aSlowPeerThatAnswersPINGsIsPingedLessAndLess() {
        var liveness = Liveness(Self.timing, now: 0)
        var pings: [UInt64] = []
        for now in stride(from: UInt64(0), through: 20_000, by: 10) where liveness.isLate(waitedMs: now, now: now) {
            pings.append(now)
            liveness.pinged(now: now)
            liveness.read(now: now + 5)
            liveness.acknowledged(whileBusy: true)
        }
        #expect(pings == [250, 760, 1770, 3780, 7790, 15_800])
        liveness.answered()
        #expect(liveness.isLate(waitedMs: 250, now: 20_000))
    }

    /// By the real times. A request that is sent just before the connection dies waits longest.
    @Test func aDeadPeerIsFoundWithinThreeSeconds() {
        var liveness = Liveness(Self.timing, now: 0)
        var found: UInt64?
        for now in stride(from: UInt64(0), through: 10_000, by: Int(Self.timing.tickMs)) where found == nil {
            if liveness.isLate(waitedMs: now, now: now) { liveness.pinged(now: now) }
            if liveness.isSilent(now: now) { found = now }
        }
        #expect(found == 2_250)
    }

    /// PINGs that keep an idle connection alive don't delay the check of a later request.
    @Test func idlePINGsDoNotCount() {
        var liveness = Liveness(Self.timing, now: 0)
        for now in stride(from: UInt64(150_000), through: 1_500_000, by: 150_000) {
            liveness.pinged(now: now)
            liveness.read(now: now)
            liveness.acknowledged(whileBusy: false)
        }
        #expect(!liveness.isIdle(now: 1_500_999) && liveness.isIdle(now: 1_501_000))
        #expect(liveness.isLate(waitedMs: 250, now: 1_500_250))
    }

    @Test func anyFrameAfterAPINGShowsThatThePeerIsAlive() {
        var liveness = Liveness(Self.timing, now: 0)
        liveness.pinged(now: 5_000)
        #expect(!liveness.isDoubtful(now: 5_999) && liveness.isDoubtful(now: 6_000))
        #expect(liveness.nextVerdict(now: 5_999) == 6_000 && liveness.nextVerdict(now: 6_000) == 7_000)
        #expect(!liveness.isSilent(now: 6_999) && liveness.isSilent(now: 7_000))
        liveness.read(now: 6_500)
        #expect(!liveness.isDoubtful(now: 7_499) && !liveness.isSilent(now: 8_499) && liveness.isSilent(now: 8_500))
        liveness.acknowledged(whileBusy: true)
        #expect(liveness.silentAt == nil && !liveness.isSilent(now: 99_000) && !liveness.isDoubtful(now: 99_000))
    }
}

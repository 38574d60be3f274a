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
        let setting = try SimulatedAPNs.setting { setting in
            (setting.timing.requestMs, setting.timing.lateMs, setting.timing.pingMs) = (20_000, 20, 1_000)
        }
        try await SimulatedAPNs.play(setting) { world in
            #expect(await world.send(1000) == .delivered)
            await world.plan(.with { $0.pauseMs = 700 })
            #expect(await world.send(1...40).allSatisfy { $0 == .delivered })
            #expect(await world.accepted.count == 41)
            #expect(await world.courier.figures.retries == 0)
            #expect(await world.connections == 2)
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

    // Real times of the dead peer: the constants, not the fast ones of the tests.
    @Test func theTimesAreThoseOfTheSpecification() {
        let timing = Timing()
        #expect((120_000...180_000).contains(timing.idleMs))
        #expect(timing.pingMs == 2_000)
        // A request that is sent just before the connection dies: the PING, its time, and two ticks.
        #expect(timing.lateMs + timing.pingMs + 2 * timing.tickMs <= 2_750)
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

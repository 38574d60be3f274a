import Broker
import Linux
import Synchronization
import Testing

/// Short stories of clocks that step or lag, and of machines that sleep. See `DirectedStoriesTests`.
@Suite struct DirectedClockTests {
    @Test func aStepOfTheDatabaseEndsNobody() async throws { try await play(3, restarts: false) { try await $0.playTerms() } }

    @Test func nothingNewIsStoredWhileClocksDiffer() async throws { try await play { try await $0.playDifference() } }

    @Test func aSweepHidesNoAbsence() async throws { try await play(1) { try await $0.playHiddenAbsence() } }

    @Test func smallStepsOfAllClocksMakeNothingLate() async throws { try await play(1) { try await $0.playSmallSteps() } }

    @Test func aNodeThatSleptForgetsItsKeys() async throws { try await play { try await $0.playSleep() } }

    @Test func aPushLivesWhileBrokerTimeIsBehind() async throws {
        try await play(ahead: -175_000) { try await $0.playLag() }
    }

    /// - Parameter ahead: how far all clocks are wrong at the start.
    private func play(
        _ nodes: Int = 2, restarts: Bool = true, ahead: Int64 = 0, _ name: String = #function,
        _ story: (Deployment) async throws -> Void
    ) async throws {
        let (seed, start): (UInt64, UInt64) = (1, Clock.monotonicMs)
        let deployment = try Deployment(seed: seed, nodes: nodes, pace: .minutes)
        do {
            if ahead != 0 { await deployment.stepAllClocks(by: ahead) }
            try await deployment.begin(restarts: restarts)
            try await story(deployment)
            print("deployment: the story of \(name), seed \(seed), \(Clock.monotonicMs - start) ms")
        } catch {
            await deployment.abandon()
            Issue.record("the story of \(name), seed \(seed): \(error)\nwhat is left of it:\n\(deployment.places)")
        }
    }
}

extension Deployment {
    /// The database's clock steps by less than a minute, several times. No node takes another for dead.
    fileprivate func playTerms() async throws {
        for step: Int64 in [30_000, -30_000, -50_000, 50_000] {
            world.database.step(step)
            try await pass(15_000)
            try checkReady()
        }
        try await endStory()
    }

    /// Somebody makes a room right after a step by which the clocks differ. No transaction has met it before.
    fileprivate func playDifference() async throws {
        for step: Int64 in [61_000, -61_000] {
            stepDatabaseClock(by: step, for: 1_000)
            for node in nodes { life.create(try #require(node.run)) }
            try await pass(30_000)
        }
        #expect(life.state.withLock { $0.counts["create refused"] } == 2 * nodes.count)
        try checkReady()
        try await endStory()
    }

    /// All clocks step ahead while a push has no answer. A sweep comes before its outcome.
    fileprivate func playHiddenAbsence() async throws {
        try await knockAtASlowService(40_000)
        stepAllClocks(by: 200_000)
        let run = try #require(nodes[0].run)
        let sweeper = try #require(run.parts?.sweeper)
        run.machine.deliver { _ = Task(executorPreference: run.loop) { try await sweeper.sweep() } }
        try await pass(45_000)
        try checkReady()
        try await endStory()
    }

    /// All clocks step ahead by less than a minute, several times while a push has no answer. No verifier takes that for a gap.
    fileprivate func playSmallSteps() async throws {
        try await knockAtASlowService(60_000)
        for _ in 0..<3 {
            stepAllClocks(by: 50_000)
            try await keepBusy(seconds: 5)
        }
        try await pass(60_000)
        try checkReady()
        try await endStory()
    }

    /// A node's machine sleeps for so long that the other one may have given its keys up.
    fileprivate func playSleep() async throws {
        hang(try #require(nodes[1].run), sleeps: true, for: 640_000)
        // It is away for up to 65 s, and then needs the keys.
        try await pass(640_000 + 31_000 + 65_000 + 30_000)
        try checkReady()
        try await endStory()
    }

    /// All clocks were behind and are set right. Until broker time has caught up, services get ends by their own clocks.
    fileprivate func playLag() async throws {
        stepAllClocks(by: 175_000)
        try await pass(20_000)
        try await knock(at: nodes[0])
        try await pass(4_000)
        try #require(world.services.accepted > 0)
        try await endStory()
    }

    /// Each node gets a call a second. So a step by less than a minute shows no absence of any.
    private func keepBusy(seconds: Int) async throws {
        for _ in 0..<seconds {
            for node in nodes { life.create(try #require(node.run), seconds: 360) }
            try await pass(1_000)
        }
    }

    /// Somebody enters a room. The push to the absent peer is answered only after this time.
    private func knockAtASlowService(_ ms: UInt64) async throws {
        world.services.set(slowness: ms...ms)
        try await knock(at: nodes[0])
        try await pass(2_000)
        try #require(world.services.accepted > 0)
        world.services.set(slowness: 5...300)
    }
}

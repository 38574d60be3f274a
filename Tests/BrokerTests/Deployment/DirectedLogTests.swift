import Linux
import Synchronization
import TestPostgres
import Testing

/// Short stories of two nodes whose clocks step, or whose transactions wait, at moments at which the log's order once was lost. Whether a log is in
/// order is judged by its verifier, like after all stories.
@Suite(.serialized) struct DirectedLogTests {
    /// The node that leads stands still, so windows stay open. Meanwhile the database's clock steps back between an opening and its outcome.
    @Test func aStepBackPutsNothingBeforeTheLog() async throws {
        try await play { story in
            let (leader, other) = (story.nodes[0], story.nodes[1])
            for _ in 0..<3 {
                let room = try await story.makePair(at: other)
                try await story.pass(to: 4_700, of: 5_000)
                await story.hang(try story.run(leader), sleeps: false, for: 7_500)
                try await story.pass(to: 200, of: 5_000)
                try await story.pass(5_000)
                story.world.services.set(isAway: true)
                story.life.arrive(room, 1, try story.run(other))
                try await story.pass(500)
                story.world.database.step(-4_000)
                story.world.services.set(isAway: false)
                try await story.pass(10_000)
                story.world.database.setRight()
                try await story.pass(20_000)
            }
            try await story.endLogStory()
        }
    }

    /// All clocks step ahead, so the keys wait for a minute and then follow. Just before that, the clocks step back over the start of an epoch.
    @Test func aStepBackTakesBackNoPurge() async throws {
        try await play(pace: .days) { story in
            try await story.pass(to: 255_000, of: 300_000)
            story.stepAll(by: 305_000)
            try await story.pass(47_000)
            story.stepAll(by: -58_000)
            try await story.pass(60_000)
            try await story.finish(story.life.facts, isOver: false)
        }
    }

    /// A transaction waits for a row while the window of its entry ends. The log already has an outcome of that window.
    @Test func aClosingWaitsForWhoeverStillWrites() async throws {
        try await play(pace: .days) { story in
            let other = story.nodes[1]
            let (first, second) = (try await story.makePair(at: other), try await story.makePair(at: other))
            try await story.pass(to: 40_000, of: 60_000)
            story.life.arrive(first, 1, try story.run(other))
            try await story.pass(to: 59_000, of: 60_000)
            let rows = try LockedRows("SELECT 1 FROM room", at: story.world.uri)
            story.life.arrive(second, 1, try story.run(other))
            let time = story.world.time
            let waiting = Task.detached {
                let start = Clock.monotonicMs
                while try !rows.areAwaited {
                    try #require(Clock.monotonicMs < start + 5_000)
                    try await Task.sleep(for: .milliseconds(1))
                }
                // Time passes although a job has not ended. Then the node that leads needs much less than this to publish.
                time.addJobs(-1)
                try await Task.sleep(for: .milliseconds(700))
                time.addJobs(1)
                rows.release()
            }
            try await story.pass(3_000)
            try await waiting.value
            try await story.pass(120_000)
            try await story.finish(Facts(), isOver: false)
        }
    }

    /// Rows that somebody else has locked delay two purges, and each purge a batch. Between them the clock steps back, and a stop opens the last
    /// window again.
    @Test func eachBatchHasAWindowOfItsOwn() async throws {
        try await play { story in
            let other = story.nodes[1]
            // A room ends half a second before a window, and the next one five seconds later. Their codes end before them.
            try await story.pass(to: 1_500, of: 5_000)
            let room = try await story.makePair(at: other, seconds: 603)
            try await story.pass(to: 1_500, of: 5_000)
            _ = try await story.makePair(at: other, seconds: 603)
            let expires = try #require(story.life.state.withLock { $0.rooms[room]?.expires })
            let end = (expires / 5_000 + 1) * 5_000
            // 50 s after this accept, before the stop, the sweeper of its node comes.
            try await story.pass(upTo: end - 39_500)
            _ = try await story.makePair(at: other)
            try await story.pass(upTo: end - 3_000)
            let first = try LockedRows("SELECT 1 FROM token WHERE expires < \(end)", at: story.world.uri)
            let second = try LockedRows(
                "SELECT 1 FROM token WHERE expires BETWEEN \(end) AND \(end + 5_000)", at: story.world.uri)
            // When these end, by the database's clock, the other sweeper comes: once after each release.
            for moment in [end - 3_000, end - 800] {
                try await story.pass(upTo: moment)
                story.life.create(try story.run(story.nodes[0]), seconds: 10)
            }
            try await story.pass(upTo: end + 6_500)
            first.release()
            try await story.pass(upTo: end + 8_500)
            story.world.database.step(-4_000)
            try await story.pass(upTo: end + 11_000)
            try await story.leave(other)
            try await story.pass(upTo: end + 12_500)
            second.release()
            try await story.pass(4_000)
            story.world.database.setRight()
            try await story.endLogStory()
        }
    }

    /// The node that leads goes on by clocks that are 20 minutes ahead, and dies. The next one's clock was right all the time.
    @Test func theNextNodeContinuesTheLogsTime() async throws {
        try await play { story in
            let (leader, other) = (story.nodes[0], story.nodes[1])
            story.world.database.step(1_200_000)
            leader.machine.step(1_200_000)
            try await story.pass(12_000)
            try await story.leave(leader, isKilled: true)
            story.world.database.setRight()
            leader.machine.setRight()
            try await story.pass(until: { other.leads })
            _ = try await story.makeRoom(at: other)
            try await story.pass(30_000)
            try await story.endLogStory()
        }
    }

    /// The clocks step ahead and back. The log's time goes on, although no push moves it.
    @Test func aQuietLogGoesOnAfterAStepBack() async throws {
        try await play { story in
            story.stepAll(by: 400_000)
            try await story.pass(8_000)
            story.stepAll(by: -400_000)
            try await story.pass(8_000)
            _ = try await story.makeRoom(at: story.nodes[1])
            try await story.pass(30_000)
            try await story.endLogStory()
        }
    }

    private func play(
        pace: Pace = .minutes, _ name: String = #function, _ body: (Deployment) async throws -> Void
    ) async throws {
        let (seed, start): (UInt64, UInt64) = (1, Clock.monotonicMs)
        let deployment = try Deployment(seed: seed, nodes: 2, pace: pace)
        do {
            try await deployment.begin(restarts: false)
            // From now on no rule for calm times holds.
            _ = deployment.world.story.beginTrouble()
            try await body(deployment)
            print("deployment: the story of \(name), seed \(seed), \(Clock.monotonicMs - start) ms")
        } catch {
            await deployment.abandon()
            Issue.record("the story of \(name), seed \(seed): \(error)\nwhat is left of it:\n\(deployment.places)")
        }
    }
}

extension Deployment {
    fileprivate nonisolated func run(_ node: SimulatedNode) throws -> NodeRun { try #require(node.run) }

    /// Lets time pass until this many ms of a period are over. All clocks must be right.
    fileprivate func pass(to ms: UInt64, of period: UInt64) async throws {
        try await pass((ms + period - world.time.now % period) % period)
    }

    /// - Parameter moment: unix ms. If it is over, no time passes.
    fileprivate func pass(upTo moment: UInt64) async throws { try await pass(moment - min(moment, world.time.now)) }

    /// Two people get a room in which nobody else acts.
    fileprivate func makePair(at node: SimulatedNode, seconds: UInt64 = 300) async throws -> Int {
        life.create(try run(node), seconds: seconds) { _ in }
        try await pass(100)
        let room = try #require(life.state.withLock { $0.rooms.keys.max() })
        life.accept(room, try run(node))
        try await pass(100)
        return room
    }

    /// The clocks of all nodes and of the database step.
    fileprivate nonisolated func stepAll(by ms: Int64) {
        world.database.step(ms)
        for node in nodes { node.machine.step(ms) }
    }

    /// Ends all that lives, and checks what is left.
    fileprivate func endLogStory() async throws {
        life.checkAll()
        try await closeAll()
        try await pass(30_000)
        try checkRows()
        try await finish(life.facts)
    }
}

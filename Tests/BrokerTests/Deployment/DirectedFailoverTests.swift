import Broker
import Linux
import Synchronization
import TestPostgres
import Testing

/// Short stories of one failover or outage each, on a server of their own. Nobody acts and nothing fails but what a story says, so no process
/// may end by itself.
///
/// Plays only with `MAYFLY_TEST_CRASHES=1`. `MAYFLY_TEST_SEED` is the seed of each story.
@Suite struct DirectedFailoverTests {
    /// A balancer looks every few seconds, so callers still reach a node that is not ready any more. It must not say that their rooms are gone.
    @Test(.enabled(if: playsCrashes)) func aServerThatLostCommitsAnswersNobody() async throws {
        try await play(nodes: 2) { deployment in
            let room = try await deployment.loseWindows(at: deployment.nodes[1])
            for _ in 0..<2 {
                for node in deployment.nodes { try await deployment.ask(of: room, at: node) }
            }
            try await deployment.swapServers()
            try await deployment.recover()
        }
    }

    /// A node that starts at the wrong server can't know that. The other nodes still renew their terms there, so it must end none of them.
    @Test(.enabled(if: playsCrashes)) func aNodeThatStartsAtTheWrongServerEndsNobody() async throws {
        try await play(nodes: 2) { deployment in
            try await deployment.leave(deployment.nodes[0])
            try await deployment.pass(until: { deployment.nodes[1].leads })
            _ = try await deployment.loseWindows(at: deployment.nodes[1])
            try await deployment.start(deployment.nodes[0])
            try await deployment.pass(30_000)
            try await deployment.swapServers()
            try await deployment.recover()
        }
    }

    /// A node that started at the wrong server leads there and makes its log longer than the lost one. The others still know what is lost.
    @Test(.enabled(if: playsCrashes)) func aLongerLogHidesNoLoss() async throws {
        try await play(nodes: 3) { deployment in
            let (newcomer, others) = (deployment.nodes[0], deployment.nodes.dropFirst())
            try await deployment.leave(newcomer)
            try await deployment.pass(until: { others.contains(where: \.leads) })
            let (first, last) = (others.first(where: \.leads), others.first { !$0.leads })
            let (leader, other) = (try #require(first), try #require(last))
            let room = try await deployment.loseWindows(at: other)
            try await deployment.start(newcomer)
            // It needs the keys of the node that leads.
            try await deployment.pass(20_000)
            try await deployment.leave(leader, isKilled: true)
            try await deployment.pass(until: { newcomer.leads })
            for _ in 0..<20 { _ = try await deployment.makeRoom(at: newcomer) }
            try await deployment.checkIsLonger(newcomer, than: other)
            try await deployment.ask(of: room, at: other)
            // Two logs have been published, so there is no way back.
            try await deployment.remove()
        }
    }

    /// Terms that began after the copy are later than those of the wrong server. Nobody has ended them.
    @Test(.enabled(if: playsCrashes)) func aServerWithEarlierTermsEndsNobody() async throws {
        try await play(nodes: 2) { deployment in
            try await deployment.copyServer()
            try await deployment.leave(deployment.nodes[1])
            try await deployment.start(deployment.nodes[1])
            try await deployment.pass(20_000)
            try await deployment.swapServers()
            try await deployment.pass(10_000)
            try await deployment.swapServers()
            try await deployment.recover()
        }
    }

    /// The wrong server has lost a takeover, but nothing that is published. There another node takes the lease by the same term. One of the two leads.
    @Test(.enabled(if: playsCrashes)) func aLostTakeoverLeavesOneLeader() async throws {
        try await play(nodes: 3) { deployment in
            let (nodes, database) = (deployment.nodes, deployment.world.database)
            try await deployment.passToWindow()
            // So the copy has a free lease.
            for node in nodes.dropFirst() { database.set(.refuses, at: node.machine.number) }
            try await deployment.leave(nodes[0])
            try await deployment.copyServer()
            database.set(.well, at: nodes[1].machine.number)
            try await deployment.pass(until: { nodes[1].leads })
            nodes[1].machine.stop()
            try await deployment.swapServers()
            database.set(.well, at: nodes[2].machine.number)
            try await deployment.pass(until: { nodes[2].leads })
            nodes[1].machine.resume()
            try await deployment.pass(20_000)
            try await deployment.checkLeader()
            // Its lease is lost for good.
            try await deployment.leave(nodes[1])
            for node in nodes.dropLast() { try await deployment.start(node) }
            try await deployment.recover()
        }
    }

    /// A node that waits during its start, here for the end of its earlier term, meets lost commits. It serves once the right server is back.
    @Test(.enabled(if: playsCrashes)) func aStartGoesOnAfterALoss() async throws {
        try await play(nodes: 3) { deployment in
            let nodes = deployment.nodes
            try await deployment.leave(nodes[2], isKilled: true)
            try await deployment.start(nodes[2])
            try await deployment.passToWindow()
            try await deployment.copyServer()
            try await deployment.leave(nodes[0])
            try await deployment.pass(until: { nodes[1].leads })
            // It looks every second.
            try await deployment.pass(1_100)
            try await deployment.swapServers()
            try await deployment.pass(4_000)
            try await deployment.swapServers()
            try await deployment.start(nodes[0])
            try await deployment.recover()
        }
    }

    /// After an outage a starting node reads another node's stamps before that node can renew them. The stamps are old, but the node lives.
    @Test(.enabled(if: playsCrashes)) func anOutageEndsNobody() async throws {
        try await play(nodes: 2) { deployment in
            let (nodes, database) = (deployment.nodes, deployment.world.database)
            try await deployment.leave(nodes[1], isKilled: true)
            try await deployment.start(nodes[1])
            try await deployment.pass(3_000)
            _ = deployment.world.story.beginTrouble()
            for node in nodes { database.set(.refuses, at: node.machine.number) }
            try await deployment.pass(12_000)
            database.set(.well, at: nodes[1].machine.number)
            try await deployment.pass(2_000)
            database.set(.well, at: nodes[0].machine.number)
            try await deployment.recover()
        }
    }

    /// A failover loses the last seconds, and with them a push that has not left, but nothing that is published. The nodes go on, with an alarm.
    /// The push never leaves, since the log has no opening of it.
    @Test(.enabled(if: playsCrashes)) func aSmallLossIsAnAlarm() async throws {
        try await play(nodes: 2) { deployment in
            let (node, life) = (deployment.nodes[1], deployment.life)
            let room = try await deployment.makeRoom(at: node)
            life.accept(room, try #require(node.run))
            try await deployment.pass(1_000)
            // For 15 s after a start pushes wait, since phones may come back.
            try await deployment.leave(node)
            try await deployment.start(node)
            try await deployment.pass(until: { node.run?.isReady == true })
            try await deployment.passToWindow()
            try await deployment.copyServer()
            try await deployment.pass(2_500)
            life.arrive(room, 0, try #require(node.run))
            try await deployment.pass(500)
            #expect(life.facts.pushes == 1)
            try await deployment.swapServers()
            try await deployment.pass(20_000)
            try await deployment.checkReady()
            try await deployment.checkAlarm("a failover has lost commits of the last seconds")
            // The acknowledged push is lost.
            try await deployment.conclude(Facts(), isBrief: true)
        }
    }

    // MARK: Parts

    private static var playsCrashes: Bool { DeploymentTests.number("MAYFLY_TEST_CRASHES") == 1 }

    private func play(
        nodes: Int, _ name: String = #function, _ story: (Deployment) async throws -> Void
    ) async throws {
        let (seed, start) = (DeploymentTests.number("MAYFLY_TEST_SEED") ?? 1, Clock.monotonicMs)
        // Before it, so that a story that traps or hangs is known, too.
        Standard.error("deployment: plays \(name), seed \(seed)\n")
        let server = try PostgresServer()
        let deployment = try Deployment(seed: seed, nodes: nodes, pace: .minutes, server: server)
        do {
            try await deployment.begin(restarts: false)
            try await story(deployment)
            print("deployment: \(name), seed \(seed), \(Clock.monotonicMs - start) ms")
        } catch {
            await deployment.abandon()
            Issue.record("MAYFLY_TEST_SEED=\(seed) \(name): \(error)\nwhat is left of it:\n\(deployment.places)")
            return
        }
        try server.stop()
    }
}

extension SimulatedNode {
    /// True if its process leads, or did before it was ended or suspended.
    var leads: Bool { run?.parts?.node.leads == true }
}

extension Deployment {
    /// Lets time pass until a window of the log has just begun.
    func passToWindow() async throws {
        let length = world.pace.resolution * 1_000
        try await pass(length - world.time.now % length + 300)
    }

    /// Lets time pass until something is true, for 20 seconds at most.
    func pass(until isTrue: @Sendable () -> Bool) async throws {
        for _ in 0..<200 where !isTrue() { try await pass(100) }
        if !isTrue() { throw Failure(what: "what a story waits for does not come", story: world.story.last(40)) }
    }

    /// Stops or kills a node. It stays away until `start`.
    func leave(_ node: SimulatedNode, isKilled: Bool = false) async throws {
        if let run = node.run { end(run, isKilled: isKilled) }
        try await pass(until: { node.run == nil })
    }

    /// Makes a room.
    func makeRoom(at node: SimulatedNode) async throws -> Int {
        life.create(try #require(node.run), seconds: 300)
        try await pass(1_000)
        return try #require(life.state.withLock { $0.rooms.keys.max() })
    }

    /// Asks a node of a room, whether it is ready or not. If it answers, it must know the room.
    func ask(of room: Int, at node: SimulatedNode) async throws {
        life.status(room, try #require(node.run))
        try await pass(1_000)
    }

    // MARK: Failovers

    func copyServer() throws {
        world.story.tell("the server is copied")
        try server?.keep()
    }

    /// Exchanges the server and its copy. From then on no rule for calm times holds.
    func swapServers() throws {
        world.story.tell("the server is exchanged with its copy")
        _ = world.story.beginTrouble()
        try server?.swap()
    }

    /// A failover loses a room and published heads.
    func loseWindows(at node: SimulatedNode) async throws -> Int {
        try copyServer()
        let room = try await makeRoom(at: node)
        try await pass(12_000)
        try swapServers()
        return room
    }

    /// All nodes serve again, and nothing that was acknowledged is lost.
    func recover() async throws {
        try await pass(40_000)
        try checkReady()
        life.checkAll()
        try await pass(1_000)
        try await conclude(life.facts, isBrief: true)
    }

    func checkIsLonger(_ node: SimulatedNode, than other: SimulatedNode) throws {
        if try size(of: node) <= size(of: other) { throw Failure(what: "its log is not longer", story: world.story.last(40)) }
    }

    func checkAlarm(_ text: String) throws {
        if nodes.allSatisfy({ $0.prints.count(text) == 0 }) {
            throw Failure(what: "no alarm: \(text)", story: world.story.last(40))
        }
    }
}

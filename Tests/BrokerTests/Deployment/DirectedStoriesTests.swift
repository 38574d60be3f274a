import Broker
import Ledger
import Linux
import Policy
import Sealing
import Synchronization
import TestPostgres
import Testing

/// Short stories of three nodes. Each brings about one situation in which a fault once did harm, and then the rules of all deployments decide. Random
/// stories (`DeploymentTests`) rarely get there.
@Suite struct DirectedStoriesTests {
    @Test func aClockThatIsAheadPurgesNothing() async throws { try await play("a clock ahead") { try await $0.playClockAhead() } }

    @Test func anOutageLosesNoOutcome() async throws { try await play("an outage") { try await $0.playOutage() } }

    @Test func aDeadNodesPushesLeaveWhileNoneCanLead() async throws {
        try await play("a dead node") { try await $0.playDeadNode() }
    }

    @Test func aNodeThatWaitsKeepsLittleOfTheLog() async throws {
        try await play("a node that waits") { try await $0.playWaiting() }
    }

    @Test func otherKeysAreNotFollowed() async throws { try await play("other keys") { try await $0.playOtherKeys() } }

    private func play(_ name: String, _ story: (Deployment) async throws -> Void) async throws {
        let (seed, start): (UInt64, UInt64) = (1, Clock.monotonicMs)
        let deployment = try Deployment(seed: seed, nodes: 3, pace: .minutes)
        do {
            try await story(deployment)
            print("deployment: the story of \(name), seed \(seed), \(Clock.monotonicMs - start) ms")
        } catch {
            await deployment.abandon()
            Issue.record("the story of \(name), seed \(seed): \(error)\nwhat is left of it:\n\(deployment.places)")
        }
    }
}

extension Deployment {
    /// A node's clock is three hours ahead, longer than all rooms live.
    func playClockAhead() async throws {
        try await begin()
        for node in nodes { life.create(try #require(node.run)) }
        try await pass(1_000)
        // A sweeper sleeps for half a minute at most.
        stepClock(of: nodes[1].machine, by: 10_800_000, for: 40_000)
        try await pass(40_000)
        try await endStory()
    }

    /// A push is delivered while no node reaches the database. The node that sent it gets back to the database after the others.
    func playOutage() async throws {
        try await begin()
        try await knockWhileAppleIsAway(at: nodes[1])
        // Longer than a push's row is kept after the end of its attempts.
        troubleDatabase(.refuses, at: [nodes[0], nodes[2]], for: 160_000)
        troubleDatabase(.refuses, at: [nodes[1]], for: 163_000)
        world.services.set(isAway: false)
        try await pass(240_000)
        try #require(world.services.accepted > 0)
        try await endStory()
    }

    /// The node that leads dies before it sends a push. No other can lead, since its clock and the database's differ.
    func playDeadNode() async throws {
        try await begin()
        // Longer than a start counts as trouble.
        try await pass(10_000)
        try await knockWhileAppleIsAway(at: nodes[0])
        harm(try #require(nodes[0].run), "killed") { $0.gate.die() }
        world.services.set(isAway: false)
        // It is not noted as trouble, because a push needs no node that leads.
        world.database.step(120_000)
        life.clockStepped(at: -1, by: 120_000, for: 60_000)
        try await pass(60_000)
        world.database.setRight()
        try await pass(90_000)
        try checkReady()
        try await endStory()
    }

    /// A node crashes and loses its log, and can't reach the node that leads. So it waits, while the log grows.
    func playWaiting() async throws {
        try await begin()
        let node = nodes[2]
        cut(nodes[0], node)
        harm(try #require(node.run), "killed") { $0.gate.die() }
        while node.run != nil { try await pass(100) }
        try File.removeTree(node.ledger.path)
        keepLiving()
        try await pass(150_000)
        try checkKeptEntries()
        join(nodes[0], node)
        try await pass(90_000)
        try checkReady()
        try await endStory()
    }

    /// A node with the keys of an older deployment leads next, while another one serves with the right keys. Nothing is sealed under these yet.
    func playOtherKeys() async throws {
        let (first, second, other) = (nodes[0], nodes[1], nodes[2])
        try start(first)
        // Before the first window ends, so that the database has the whole log for the others.
        try await pass(100)
        try checkLeads(first)
        try makeOldKeys(other)
        // Otherwise it would get the right keys.
        cut(first, other)
        try start(second)
        try start(other)
        try await pass(45_000)
        harm(try #require(first.run), "killed") { $0.gate.die() }
        // So it is not this one that leads next.
        hang(try #require(second.run), sleeps: false, for: 14_000)
        try await pass(14_000)
        try checkLeads(other)
        join(first, other)
        try await pass(100_000)
        try checkReady()
        for (one, next) in [(first, second), (second, other), (other, first)] {
            let run = try #require(next.run)
            life.create(try #require(one.run)) { [life] room in life.accept(room, run) }
        }
        try await pass(1_000)
        try await endStory()
    }

    // MARK: Parts

    /// Somebody enters a room at this node while Apple can't be reached, so the push to the absent peer waits.
    func knockWhileAppleIsAway(at node: SimulatedNode) async throws {
        world.services.set(isAway: true)
        try await knock(at: node)
    }

    /// Somebody enters a room at this node, whose absent peer gets a push.
    func knock(at node: SimulatedNode) async throws {
        let run = try #require(node.run)
        life.create(run, seconds: 360) { [life, world] room in
            life.accept(room, run)
            world.time.after(500) { life.arrive(room, 1, run) }
        }
        try await pass(1_000)
        let knocks = life.state.withLock { $0.counts["knock"] }
        try #require(knocks == 1)
    }

    private func checkLeads(_ node: SimulatedNode) throws {
        if node.run?.parts?.node.leads != true { throw Failure(what: "\(node.name) doesn't lead", story: world.story.last(40)) }
    }

    private func cut(_ one: SimulatedNode, _ other: SimulatedNode) {
        world.network.cut(from: one.machine.number, to: other.machine.number)
        world.network.cut(from: other.machine.number, to: one.machine.number)
    }

    private func join(_ one: SimulatedNode, _ other: SimulatedNode) {
        world.network.join(from: one.machine.number, to: other.machine.number)
        world.network.join(from: other.machine.number, to: one.machine.number)
    }

    /// Gives a node the key file of a deployment that has served for so long that its first generation is over.
    private func makeOldKeys(_ node: SimulatedNode) throws {
        let (now, day): (UInt64, UInt64) = (world.time.now, 86_400_000)
        let days = UInt64(world.policies.longestLifeSeconds) * 1_000 / day + 4
        try KeyRing.create(path: node.keyFile, nowMs: now - days * day)
        let keys = try #require(try node.storedKeys())
        for number in 1..<days { _ = try keys.step(nowMs: now - (days - number) * day) }
    }

    /// For a node that doesn't serve, the database keeps few entries of the published log.
    private func checkKeptEntries() throws {
        let kept = try TestPostgres.texts(
            "SELECT published || ' ' || published - min(first) || ' ' || max(count) FROM log, unpublished GROUP BY published",
            at: world.uri)
        let numbers = kept.first?.split(separator: " ").compactMap { UInt64($0) } ?? []
        try #require(numbers.count == 3)
        let most = UInt64(world.pace.keptForWaiting) + 3 * numbers[2]
        // Otherwise the log is too short to show anything.
        try #require(numbers[0] > 2 * most)
        if numbers[1] > most {
            throw Failure(
                what: "the database keeps \(numbers[1]) of \(numbers[0]) published entries", story: world.story.last(40))
        }
    }

    /// Ends all that lives, and checks what is left.
    func endStory() async throws {
        life.checkAll()
        try await closeAll()
        // The last outcomes and purges are published in the next window.
        try await pass(30_000)
        try checkRows()
        try await finish(life.facts)
    }
}

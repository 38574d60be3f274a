import Synchronization
import Testing

@testable import Broker

/// Short stories of two nodes. Each leads straight to something that random faults reach too seldom. The rules of `Deployment` and its life judge it.
@Suite(.serialized) struct DirectedPresenceTests {
    /// After an accept a push waits for a moment. Meanwhile its side comes, so the push is withdrawn, and falls silent.
    @Test func aPhoneFallsSilentWhenItHasJustCome() async throws {
        try await play { story in
            let room = try await story.pair()
            try await story.arrive(room, Self.waiter, at: 0)
            try await story.arrive(room, Self.sleeper, at: 1)
            story.life.fallSilent(room, Self.sleeper, false)
            try await story.keepVigil()
        }
    }

    /// A node that gets no messages can't ask whether a side at another node is still there.
    @Test func aPhoneFallsSilentWhileItsPeersNodeIsDeaf() async throws {
        try await play { story in
            let room = try await story.pair()
            try await story.arrive(room, Self.sleeper, at: 0)
            try await story.pass(10_000)
            await story.deafen(1, for: 15_000)
            try await story.pass(8_000)
            story.life.fallSilent(room, Self.sleeper, false)
            try await story.arrive(room, Self.waiter, at: 1)
            try await story.keepVigil()
        }
    }

    /// The message that a side has come is lost, so its peer's node only hears that it is there.
    @Test func aPhoneFallsSilentWhileItsArrivalIsLost() async throws {
        try await play { story in
            let room = try await story.pair()
            try await story.arrive(room, Self.waiter, at: 1)
            // Its peer may be rung again then.
            try await story.pass(40_000)
            await story.deafen(1, for: 500)
            try await story.arrive(room, Self.sleeper, at: 0)
            story.life.fallSilent(room, Self.sleeper, false)
            try await story.keepVigil()
        }
    }

    /// Somebody waits without a socket. A peer comes to another node, and its connection breaks.
    @Test func aPeerOfOneWhoReportsLosesItsConnection() async throws {
        try await play { story in
            let room = try await story.pair()
            story.life.report(room, Self.waiter, try story.run(0), leaving: false)
            try await story.pass(3_000)
            try await story.arrive(room, Self.sleeper, at: 1)
            try await story.pass(5_000)
            story.life.fallSilent(room, Self.sleeper, true)
            try await story.pass(60_000)
        }
    }

    /// Somebody who has a socket also reports, and leaves when the report has lapsed. The peer stays at another node.
    @Test func someoneLeavesAfterAReportHasLapsed() async throws {
        try await play { story in
            let room = try await story.pair()
            for slot in [Self.waiter, Self.sleeper] {
                try await story.arrive(room, slot, at: slot)
                try await story.pass(1_000)
            }
            story.life.report(room, Self.sleeper, try story.run(1), leaving: false)
            try await story.pass(50_000)
            try await story.checkRoomIDs()
            story.life.depart(room, Self.sleeper, isDeliberate: true)
            try await story.pass(10_000)
            try await story.checkRoomIDs()
        }
    }

    /// Nobody comes after the last push, so nothing but its table's own end brings a sweeper.
    @Test func aTableEndsInAQuietTime() async throws {
        try await play(pace: .days) { story in
            let room = try await story.pair()
            try await story.arrive(room, Self.waiter, at: 0)
            try await story.pass(1_000)
            story.life.close(room, try story.run(0))
            // The table of a push is for ten minutes, in which its deadline lies.
            let now = story.world.time.now
            let end = (now / 600_000 + 1) * 600_000
            try await story.pass(end - now + 185_000)
            try await story.checkPartitions(mayWait: true)
        }
    }

    /// Two nodes stand still for a moment, as guests of one host do, and then sweep at once.
    @Test func twoNodesSweepAtOnce() async throws {
        try await play { story in
            // Just after a window's end, since the node that leads plans its sweeps then.
            try await story.pass(5_100 - story.world.time.now % 5_000)
            var (before, after) = (0, 0)
            while after >= before {
                story.life.create(try story.run(0))
                try await story.pass(5_000)
                (before, after) = (after, try await story.partitions().count)
            }
            // It has just swept, and will in 50 s. So will the other one.
            story.life.create(try story.run(1))
            for _ in 0..<9 {
                try await story.pass(5_000)
                story.life.create(try story.run(0))
            }
            try await story.pass(4_500)
            for node in story.nodes { node.machine.stop() }
            try await story.pass(1_000)
            for node in story.nodes { node.machine.resume() }
            try await story.pass(20_000)
        }
    }

    private static let (waiter, sleeper) = (0, 1)

    private func play(
        pace: Pace = .minutes, _ name: String = #function, _ body: (Deployment) async throws -> Void
    ) async throws {
        let deployment = try Deployment(seed: 1, nodes: 2, pace: pace)
        do {
            try await deployment.begin()
            try await body(deployment)
            // `scripts/switch-off` looks for these words.
            print("deployment: the story of \(name), seed 1")
        } catch { Issue.record("the story of \(name), seed 1: \(error)") }
        try await deployment.remove()
    }
}

extension Deployment {
    fileprivate nonisolated func run(_ node: Int) throws -> NodeRun { try #require(nodes[node].run) }

    /// Two people come to have a room in which nobody else acts.
    fileprivate func pair() async throws -> Int {
        life.create(try run(0), seconds: world.pace.vigilSeconds) { _ in }
        try await pass(100)
        let room = try #require(life.state.withLock { $0.rooms.keys.max() })
        life.accept(room, try run(0))
        try await pass(100)
        return room
    }

    fileprivate func arrive(_ room: Int, _ slot: Int, at node: Int) async throws {
        life.arrive(room, slot, try run(node))
        try await pass(60)
        try #require(life.state.withLock { $0.rooms[room]?.sides[slot].socket } != nil)
    }

    /// Waits until the rules have seen whether a silent phone was rung: it counts as gone after 45 s, and as not rung 60 s later.
    fileprivate func keepVigil() async throws {
        try await pass(150_000)
        try #require(life.state.withLock { $0.counts["vigil"] } == 1)
    }

    /// A node keeps no id of a room in which nobody is there. Somebody who only reports must have been away for a minute.
    fileprivate func checkRoomIDs() async throws {
        for node in nodes {
            guard let run = node.run, let presence = run.broker?.presence else { continue }
            let kept = await presence.knockers.count
            let open = life.state.withLock { state in
                state.rooms.values.count { room in room.sides.contains { $0.socket?.run === run } }
            }
            if kept > open {
                throw Failure(
                    what: "\(node.name) keeps \(kept) room ids, and has people in \(open) rooms", story: world.story.last(40))
            }
        }
    }
}

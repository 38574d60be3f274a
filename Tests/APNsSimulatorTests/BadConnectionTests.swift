import EventLoop
import HTTP2
import Linux
import Testing

@testable import APNsSimulator

/// Faults of a whole connection.
@Suite(.timeLimit(.minutes(1))) struct BadConnectionTests {
    private func fault(_ change: (inout Fault) -> Void) -> Fault {
        var fault = Fault()
        change(&fault)
        return fault
    }

    @Test func floodsOfSettingsAndPingsAreSent() async throws {
        let world = try await World()
        // Few enough for the client's nghttp2 to acknowledge all of them.
        await world.simulator.setFaults(FaultPlan(next: [fault { ($0.settings, $0.pings) = (20, 40) }]))
        let client = try await world.client()
        #expect(try await client.send(world.headers(), payload).status == 200)
        let frames = await client.frames
        #expect(frames.count { $0.kind == 4 } >= 20)
        #expect(frames.count { $0.kind == 6 } == 40)
        #expect(try await client.send(world.headers(), payload).status == 200)
        // With more, the client gives up, but the simulator doesn't.
        await world.simulator.setFaults(FaultPlan(next: [fault { $0.pings = 20_000 }]))
        await #expect(throws: (any Error).self) { try await client.send(world.headers(), payload) }
        #expect(try await world.client().send(world.headers(), payload).status == 200)
    }

    @Test func rawBytesAreSent() async throws {
        let world = try await World()
        let client = try await world.client()
        // Frames of unknown types are ignored (RFC 9113, 4.1). A DATA frame on stream 0 ends the connection.
        await world.simulator.setFaults(FaultPlan(next: [fault { $0.raw = [0, 0, 1, 0xbb, 0, 0, 0, 0, 0, 7] }]))
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.frames.contains { $0.kind == 0xbb })
        await world.simulator.setFaults(FaultPlan(next: [fault { $0.raw = [0, 0, 1, 0, 0, 0, 0, 0, 0, 7] }]))
        await #expect(throws: (any Error).self) {
            for _ in 0..<2 { _ = try await client.send(world.headers(), payload) }
        }
    }

    @Test func closedWindowBlocksRequests() async throws {
        let world = try await World()
        await world.simulator.setFaults(
            FaultPlan(
                next: [
                    fault {
                        $0.at = .connect
                        $0.window = 0
                    }
                ]))
        let client = try await world.client()
        while await client.frames.filter({ $0.kind == 4 && $0.flags == 0 }).count < 2 { try await world.loop.sleep(1) }
        let stuck = Task { try await client.send(world.headers(), payload) }
        try await world.loop.sleep(50)
        #expect(await client.openStreams == 1)
        #expect(await world.simulator.counts == .init(connections: 1))
        await world.simulator.stop()
        await #expect(throws: TestFailure.connectionClosed) { try await stuck.value }
    }

    @Test func stalledConnectionReadsNothing() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        await world.simulator.setFaults(
            FaultPlan(next: [fault { ($0.stall, $0.accepted) = (true, true) }]))
        let stuck = (0..<3).map { _ in Task { try await client.send(world.headers(), payload) } }
        while await world.simulator.counts.accepted < 2 { try await world.loop.sleep(1) }
        try await world.loop.sleep(30)
        // The first push was accepted, and nothing was read after it.
        #expect(await world.simulator.counts.accepted == 2)
        #expect(await client.openStreams == 3)
        #expect(try await world.client().send(world.headers(), payload).status == 200)
        await world.simulator.stop()
        for task in stuck { await #expect(throws: TestFailure.connectionClosed) { try await task.value } }
    }

    @Test func connectionsCanEndBeforeARequest() async throws {
        let world = try await World()
        let ends = [
            fault { ($0.at, $0.drop) = (.connect, true) }, fault { ($0.at, $0.goaway, $0.reason) = (.connect, true, "Shutdown") },
        ]
        await world.simulator.setFaults(FaultPlan(next: ends))
        let dropped = try await world.client()
        await dropped.untilClosed()
        #expect(await dropped.goAways == [])
        let sentAway = try await world.client()
        await sentAway.untilClosed()
        #expect(await sentAway.goAways == [#"0 {"reason":"Shutdown"}"#])
        // Requests consume no faults of connections.
        await world.simulator.setFaults(FaultPlan(always: [ends[0]]))
        await world.simulator.setFaults(FaultPlan(next: [ends[0]]))
        let third = try await world.client()
        await third.untilClosed()
        #expect(try await world.client().send(world.headers(), payload).status == 200)
    }

    // MARK: The record

    @Test func recordListsAcceptedAndAnsweredPushes() async throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let path = folder + "/record"
        try File.write(path, Array("before\n".utf8).span, mode: 0o600)
        let world = try await World { configuration, _ in configuration.record = path }
        let client = try await world.client()
        let ids = (0..<4).map { "00000000-0000-4000-8000-00000000000\($0)" }
        var lost = Fault()
        (lost.drop, lost.accepted) = (true, true)
        await world.simulator.setFaults(FaultPlan(next: [Fault(), Fault(.badTopic), lost]))
        #expect(try await client.send(world.headers(["apns-id": ids[0]]), payload).status == 200)
        #expect(try await client.send(world.headers(["apns-id": ids[1]]), payload).status == 400)
        await #expect(throws: TestFailure.connectionClosed) {
            try await client.send(world.headers(["apns-id": ids[2]]), payload)
        }
        #expect(try await world.client().send(world.headers(["apns-id": ids[3]]), payload).status == 200)
        let record = String(decoding: try File.read(path, limit: 65_536), as: UTF8.self)
        #expect(
            record
                == """
                before
                \(ids[0]) accepted
                \(ids[0]) answered
                \(ids[2]) accepted
                \(ids[3]) accepted
                \(ids[3]) answered

                """)
        #expect(!record.contains(device))
    }

    /// A push whose record fails isn't answered. So the record contains every push that a client knows as accepted.
    @Test func failedRecordBlocksAnswers() async throws {
        let world = try await World { configuration, _ in configuration.record = "/dev/full" }
        let client = try await world.client()
        await #expect(throws: TestFailure.connectionClosed) { try await client.send(world.headers(), payload) }
        #expect(await client.frames.allSatisfy { $0.kind != 1 })
        await world.simulator.stop()
    }

    @Test func unwritableRecordIsAnError() async throws {
        await #expect(throws: Errno.self) {
            _ = try await World { configuration, _ in configuration.record = "/nowhere/record" }
        }
    }
}

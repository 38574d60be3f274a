import EventLoop
import HTTP2
import Linux
import Testing

@testable import APNsSimulator

/// Answers in every shape, as seen by a client with nghttp2.
@Suite(.timeLimit(.minutes(1))) struct AnswerFormTests {
    /// Sends a push with `fault`, on a connection that has sent one before, and calls `check` with the result.
    private func play(
        _ fault: Fault, _ check: (World, TestClient, Result<TestResponse, any Error>) async throws -> Void
    ) async throws {
        let world = try await World()
        let client = try await world.client()
        #expect(try await client.send(world.headers(), payload).status == 200)
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        let result: Result<TestResponse, any Error>
        do { result = .success(try await client.send(world.headers(), payload)) } catch { result = .failure(error) }
        try await check(world, client, result)
        // The loop must not end before the last request.
        await world.simulator.stop()
    }

    private static func refusal(_ change: (inout AnswerForm) -> Void) -> Fault {
        var fault = Fault(.badCollapseID)
        change(&fault.form)
        return fault
    }

    private static let body = #"{"reason":"BadCollapseId"}"#

    /// Expects a complete answer, and a connection that serves the next push.
    private func expectWhole(_ fault: Fault, _ look: (TestClient) async -> Void = { _ in }) async throws {
        try await play(fault) { world, client, result in
            let answer = try result.get()
            #expect((answer.status, answer.body) == (400, Self.body))
            #expect(answer.headers["apns-id"] != nil)
            await look(client)
            #expect(try await client.send(world.headers(), payload).status == 200)
            #expect(await client.openStreams == 0)
            #expect(await client.goAways == [])
            #expect(await world.simulator.counts.connections == 1)
        }
    }

    @Test(arguments: [1, 7, 1000]) func bodiesComeInPieces(size: Int) async throws {
        try await expectWhole(Self.refusal { $0.pieces = size }) { client in
            let pieces = await client.pieces
            #expect(pieces.reduce(0, +) == Self.body.utf8.count)
            #expect(pieces.allSatisfy { $0 <= size })
        }
    }

    @Test func headersUseContinuationFrames() async throws {
        try await expectWhole(Self.refusal { $0.continuation = 10 }) { client in
            let frames = await client.frames
            #expect(frames.count { $0.kind == 9 } > 3)
            #expect(frames.allSatisfy { $0.kind != 9 || $0.payload.count <= 10 })
        }
    }

    @Test func interimAnswerComesFirst() async throws {
        try await expectWhole(Self.refusal { $0.interim = 103 }) { client in
            #expect(await client.frames.count { $0.kind == 1 && $0.stream == 3 } == 2)
        }
    }

    @Test func trailersComeLast() async throws {
        try await expectWhole(Self.refusal { $0.trailers = true }) { client in
            let last = await client.frames.last { $0.stream == 3 }
            #expect(last?.kind == 1)
            #expect(last?.flags == 5)
        }
    }

    @Test func allShapesWorkTogether() async throws {
        try await expectWhole(
            Self.refusal {
                ($0.interim, $0.pieces, $0.continuation, $0.trailers, $0.dribbleMs) = (100, 2, 10, true, 20)
            })
    }

    @Test func acceptedPushesCanHaveAShape() async throws {
        var fault = Fault()
        (fault.form.interim, fault.form.continuation, fault.form.trailers) = (103, 20, true)
        try await play(fault) { world, client, result in
            let answer = try result.get()
            #expect((answer.status, answer.body) == (200, ""))
            #expect(answer.headers["apns-unique-id"] != nil)
            #expect(await world.simulator.counts.accepted == 2)
        }
    }

    @Test func answersCanDribble() async throws {
        var accepted = Fault()
        accepted.form.dribbleMs = 100
        for (fault, status) in [(Self.refusal { $0.dribbleMs = 100 }, 400), (accepted, 200)] {
            let start = Clock.monotonicMs
            try await play(fault) { world, client, result in
                let answer = try result.get()
                #expect(answer.status == status)
                #expect(Clock.monotonicMs - start >= 90)
                #expect(try await client.send(world.headers(), payload).status == 200)
            }
        }
    }

    @Test func dribblingBlocksNoOtherStream() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        await world.simulator.setFaults(FaultPlan(next: [Self.refusal { $0.dribbleMs = 400 }]))
        let slow = Task { try await client.send(world.headers(), payload) }
        while await !world.simulator.faults.next.isEmpty { try await world.loop.sleep(1) }
        for _ in 0..<20 { #expect(try await client.send(world.headers(), payload).status == 200) }
        #expect(await client.openStreams == 1)
        #expect(try await slow.value.body == Self.body)
    }

    /// The client resets the stream, not the connection.
    @Test(arguments: [3, 1000]) func wrongContentLengthFailsTheStream(length: Int) async throws {
        try await play(Self.refusal { $0.announced = length }) { world, client, result in
            #expect(throws: TestFailure.stream(.protocolError)) { try result.get() }
            let next = try await client.send(world.headers(), payload)
            #expect(next.status == 200)
        }
    }

    @Test func connectionCanEndWithinAnAnswer() async throws {
        try await play(Self.refusal { ($0.half, $0.pieces) = (true, 1) }) { world, client, result in
            #expect(throws: TestFailure.connectionClosed) { try result.get() }
            // A part of the answer arrived.
            #expect(await client.frames.contains { $0.kind == 1 && $0.stream == 3 })
            let next = try await world.client().send(world.headers(), payload)
            #expect(next.status == 200)
        }
    }

    @Test(arguments: ["", "no JSON", "[1]", #"{"reason":"#]) func bodiesCanBeInvalidJSON(body: String) async throws {
        var fault = Fault(.badTopic)
        fault.body = body
        try await play(fault) { _, _, result in
            let answer = try result.get()
            #expect((answer.status, answer.body) == (400, body))
        }
    }

    // MARK: Before the request's end

    @Test(arguments: [AnswerForm(), Self.refusal { $0.pieces = 1 }.form])
    func answersCanComeBeforeTheBody(form: AnswerForm) async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var early = Fault(.serviceUnavailable)
        early.at = .headers
        early.form = form
        await world.simulator.setFaults(FaultPlan(next: [early]))
        let answer = try await client.sendHead(world.headers())
        #expect((answer.status, answer.body) == (503, #"{"reason":"ServiceUnavailable"}"#))
        // The client is asked to stop sending, by a reset without an error.
        while await !client.frames.contains(where: { $0.kind == 3 && $0.payload == [0, 0, 0, 0] }) {
            try await world.loop.sleep(1)
        }
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await world.simulator.counts.accepted == 2)
    }

    // MARK: GOAWAY

    @Test func gracefulGoAwayHasTwoFrames() async throws {
        let world = try await World { configuration, _ in configuration.graceMs = 300 }
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var (slow, fault, silent) = (Fault(), Fault(), Fault())
        slow.delayMs = 450
        (fault.goaway, fault.graceful, fault.reason, fault.status) = (true, true, "Shutdown", 200)
        (silent.silent, silent.accepted) = (true, true)
        await world.simulator.setFaults(FaultPlan(next: [slow, fault, silent]))
        let open = Task { try await client.send(world.headers(), payload) }
        while await world.simulator.faults.next.count == 3 { try await world.loop.sleep(1) }
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.goAways == ["2147483647 "])
        // Between the frames requests are still accepted. The client's nghttp2 would start none, so raw bytes are sent.
        try await client.sendBytes(TestClient.head(world.headers(), stream: 7).withEnd(payload, stream: 7))
        #expect(try await open.value.status == 200)
        let goAways = await client.goAways
        #expect(goAways == ["2147483647 ", #"7 {"reason":"Shutdown"}"#])
        #expect(await world.simulator.pushes.count == 3)
    }

    @Test func goAwayStillServesEarlierStreams() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var slow = Fault()
        slow.delayMs = 100
        var goAway = Fault()
        goAway.goaway = true
        await world.simulator.setFaults(FaultPlan(next: [slow, slow, goAway]))
        let statuses = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<3 { group.addTask { try await client.send(world.headers(), payload).status } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(statuses == [200, 200, 200])
        await client.untilClosed()
        #expect(await client.goAways == ["7 "])
    }
}

extension [UInt8] {
    /// Followed by a DATA frame that ends the stream.
    func withEnd(_ body: String, stream: UInt8) -> [UInt8] {
        self + [0, 0, UInt8(body.utf8.count), 0, 1, 0, 0, 0, stream] + Array(body.utf8)
    }
}

import EventLoop
import HTTP2
import Linux
import TLS
import Testing

@testable import APNsSimulator

private let otherDevice = String(repeating: "cd", count: 32)

@Suite(.timeLimit(.minutes(1))) struct APNsSimulatorTests {
    @Test func validPushIsAccepted() async throws {
        let world = try await World()
        let client = try await world.client()
        let id = "123e4567-e89b-12d3-a456-426655440000"
        let answer = try await client.send(world.headers(["apns-id": id]), payload)
        #expect(answer.status == 200)
        #expect(answer.body == "")
        #expect(answer.headers["apns-id"] == id)
        let unique = Array(try #require(answer.headers["apns-unique-id"]).utf8)
        let uniqueIsCanonical = Rules.isCanonicalUUID(unique.span)
        #expect(uniqueIsCanonical)
        #expect(unique[14] == UInt8(ascii: "4"))
        let push = try #require(await world.simulator.pushes.first)
        #expect(push.token == device)
        #expect(push.payload == Array(payload.utf8))
        #expect(
            push.headers == [
                "apns-topic": "org.example.app", "apns-push-type": "alert", "apns-priority": "10", "apns-expiration": "0",
                "apns-id": id,
            ])
        #expect(Clock.wallMs - push.at < 60_000)
        await world.simulator.forgetPushes()
        #expect(await world.simulator.pushes == [])
        #expect(await world.simulator.counts == .init(connections: 1, accepted: 1))
    }

    @Test func missingIDIsGenerated() async throws {
        let world = try await World(isSandbox: false)
        let answer = try await world.client().send(world.headers(), payload)
        let id = try #require(answer.headers["apns-id"])
        let text = Array(id.utf8)
        let isCanonical = Rules.isCanonicalUUID(text.span)
        #expect(isCanonical)
        #expect(answer.headers["apns-unique-id"] == nil)
        #expect(await world.simulator.pushes.first?.headers["apns-id"] == id)
    }

    @Test func refusalsHaveAReason() async throws {
        let world = try await World()
        let client = try await world.client()
        let answer = try await client.send(world.headers(["apns-topic": "org.example.other"]), payload)
        #expect(answer.status == 400)
        #expect(answer.body == #"{"reason":"TopicDisallowed"}"#)
        #expect(answer.headers["apns-id"] != nil)
        let large = try await client.send(world.headers(), #"{"aps":"\#(String(repeating: "x", count: 200_000))"}"#)
        #expect(large.status == 413)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await world.simulator.counts.refused == ["TopicDisallowed": 1, "PayloadTooLarge": 1])
    }

    @Test(arguments: [["h2"], [], ["http/1.1", "h2"]])
    func speaksHTTP2WithAndWithoutALPN(alpn: [String]) async throws {
        let world = try await World()
        let client = try await world.client(alpn: alpn)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.negotiated == (alpn.isEmpty ? nil : "h2"))
    }

    @Test func otherProtocolsAreRefused() async throws {
        let world = try await World()
        let client = try await world.client(alpn: ["http/1.1"])
        await #expect(throws: (any Error).self) { try await client.send(world.headers(), payload) }
    }

    @Test func unauthenticatedClientsGetOneStream() async throws {
        let world = try await World()
        let client = try await world.client()
        let refused = try await client.send(world.headers(["authorization": "bearer x"]), payload)
        #expect(refused.status == 403)
        #expect(refused.body == #"{"reason":"InvalidProviderToken"}"#)
        #expect(await client.streamsAllowed == 1)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 1000)
    }

    @Test func streamsBeforeTheSettingsAreRefused() async throws {
        let world = try await World()
        let client = try TestClient(to: world.address, certificate: world.certificate.certificate, loop: world.loop)
        // All requests are sent at the end of the handshake, before the server's settings arrive.
        let outcomes = await client.openSending(10, world.headers(), payload).map { result in
            switch result {
            case .success(let answer): answer.status == 200 ? true : nil
            case .failure(let error): error as? TestFailure == .stream(.refusedStream) ? false : nil
            }
        }
        #expect(outcomes == [true] + [Bool?](repeating: false, count: 9))
        #expect(try await client.send(world.headers(), payload).status == 200)
    }

    @Test func manyConcurrentRequestsAreAccepted() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        let answers = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<2000 { group.addTask { try await client.send(world.headers(), payload).status } }
            var count = 0
            while let status = try await group.next() { count += status == 200 ? 1 : 0 }
            return count
        }
        #expect(answers == 2000)
        #expect(await world.simulator.counts.accepted == 2001)
    }

    @Test func faultsHappenInOrder() async throws {
        let world = try await World()
        let client = try await world.client()
        var odd = Fault()
        odd.status = 503
        odd.body = "<html>"
        odd.retryAfter = 7
        var bare = Fault()
        bare.status = 500
        await world.simulator.setFaults(
            FaultPlan(next: [Fault(.unregistered, timestamp: 1_800_000_000_123), odd, bare], always: [Fault(.tooManyRequests)]))
        let gone = try await client.send(world.headers(), payload)
        #expect(gone.status == 410)
        #expect(gone.body == #"{"reason":"Unregistered","timestamp":1800000000123}"#)
        let html = try await client.send(world.headers(), payload)
        #expect((html.status, html.body, html.headers["retry-after"]) == (503, "<html>", "7"))
        let empty = try await client.send(world.headers(), payload)
        #expect((empty.status, empty.body) == (500, ""))
        for _ in 0..<3 { #expect(try await client.send(world.headers(), payload).status == 429) }
        #expect(await world.simulator.pushes == [])
        await world.simulator.setFaults(FaultPlan())
        #expect(try await client.send(world.headers(), payload).status == 200)
    }

    @Test func timestampOf410DefaultsToNow() async throws {
        let world = try await World()
        await world.simulator.setFaults(FaultPlan(next: [Fault(.expiredToken)]))
        let before = Clock.wallMs
        let answer = try await world.client().send(world.headers(), payload)
        let value = try #require(JSON(parsing: Array(answer.body.utf8)))
        let timestamp = try #require(value["timestamp"]?.wholeNumber)
        #expect((before...Clock.wallMs).contains(timestamp))
    }

    @Test func faultOfATokenAffectsOnlyThatToken() async throws {
        let world = try await World()
        let client = try await world.client()
        var fault = Fault(.badDeviceToken)
        fault.token = device
        await world.simulator.setFaults(FaultPlan(always: [fault]))
        #expect(try await client.send(world.headers(device: otherDevice), payload).status == 200)
        #expect(try await client.send(world.headers(), payload).status == 400)
    }

    @Test func invalidRequestsConsumeNoFault() async throws {
        let world = try await World()
        let client = try await world.client()
        await world.simulator.setFaults(FaultPlan(next: [Fault(.internalServerError)]))
        #expect(try await client.send(world.headers(["apns-priority": "3"]), payload).status == 400)
        #expect(try await client.send(world.headers(), payload).status == 500)
    }

    @Test func delayAffectsOneStream() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var slow = Fault()
        slow.delayMs = 200
        slow.token = device
        await world.simulator.setFaults(FaultPlan(next: [slow]))
        let before = Clock.monotonicMs
        async let late = client.send(world.headers(), payload)
        let quick = try await client.send(world.headers(device: otherDevice), payload)
        #expect(quick.status == 200)
        #expect(Clock.monotonicMs - before < 200)
        #expect(try await late.status == 200)
        #expect(Clock.monotonicMs - before >= 199)
    }

    @Test func resetRefuseAndDropFailRequests() async throws {
        let world = try await World()
        let client = try await world.client()
        var (reset, refuse, drop) = (Fault(), Fault(), Fault())
        reset.reset = true
        reset.accepted = true
        refuse.refuse = true
        drop.drop = true
        await world.simulator.setFaults(FaultPlan(next: [reset, refuse, drop]))
        await #expect(throws: TestFailure.stream(.internalError)) { try await client.send(world.headers(), payload) }
        #expect(await world.simulator.pushes.count == 1)
        await #expect(throws: TestFailure.stream(.refusedStream)) { try await client.send(world.headers(), payload) }
        await #expect(throws: TestFailure.connectionClosed) { try await client.send(world.headers(), payload) }
        #expect(await world.simulator.pushes.count == 1)
    }

    @Test func silenceLeavesTheConnectionUsable() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var silent = Fault()
        silent.silent = true
        await world.simulator.setFaults(FaultPlan(next: [silent]))
        let lost = Task { try await client.send(world.headers(), payload) }
        while await !world.simulator.faults.next.isEmpty { try await world.loop.sleep(1) }
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.openStreams == 1)
        #expect(await world.simulator.counts.accepted == 2)
        await world.simulator.stop()
        await #expect(throws: TestFailure.connectionClosed) { try await lost.value }
    }

    @Test func goAwayServesThisStreamAndEndsTheConnection() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var fault = Fault()
        fault.goaway = true
        fault.reason = "Shutdown"
        fault.status = 200
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        #expect(try await client.send(world.headers(), payload).status == 200)
        await client.untilClosed()
        #expect(await client.goAways == [#"3 {"reason":"Shutdown"}"#])
    }

    @Test func goAwayBeforeThisStreamRefusesIt() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        var fault = Fault()
        fault.goaway = true
        fault.refuse = true
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        await #expect(throws: TestFailure.stream(.refusedStream)) { try await client.send(world.headers(), payload) }
        await client.untilClosed()
        #expect(await client.goAways == ["1 "])
        #expect(await world.simulator.pushes.count == 1)
        #expect(try await world.client().send(world.headers(), payload).status == 200)
    }

    @Test func invalidTLSClosesTheConnection() async throws {
        let world = try await World()
        let stray = try Socket.connect(to: world.address)
        while stray.pendingError() != nil {}
        _ = try stray.write(Array("GET / HTTP/1.1\r\n\r\n".utf8).span)
        // The server may send an alert before it closes.
        var ended = false
        for _ in 0..<2000 where !ended {
            var buffer = [UInt8](repeating: 0, count: 100)
            var span = buffer.mutableSpan
            do throws(Errno) { ended = try stray.read(into: &span) == 0 } catch { ended = error.isConnectionLost }
            if !ended { try await world.loop.sleep(1) }
        }
        #expect(ended)
        #expect(try await world.client().send(world.headers(), payload).status == 200)
    }

    @Test func certificateWithAnotherKeyIsRefused() async throws {
        let (one, two) = (
            try SelfSignedCertificate.make(names: ["a"], days: 1), try SelfSignedCertificate.make(names: ["a"], days: 1)
        )
        let configuration = APNsSimulator.Configuration(
            listen: .v4(0x7f00_0001, port: 0), certificateChain: one.certificate, privateKey: two.privateKey, keys: [])
        let loop = try EventLoop(name: "unused")
        #expect(throws: TLSError.keyMismatch) { try APNsSimulator(configuration, loop: loop) }
    }
}

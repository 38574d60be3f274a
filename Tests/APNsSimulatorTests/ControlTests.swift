import EventLoop
import HTTP1
import HTTPServer
import Linux
import Testing

@testable import APNsSimulator

@Suite(.timeLimit(.minutes(1))) struct ControlTests {
    private func call(
        _ world: World, _ method: Method, _ path: String, _ body: String = "", host: String? = "localhost:8790"
    ) async -> (status: UInt16, body: String) {
        let request = HTTPRequest(
            method: method, target: path, headers: host.map { [("host", $0)] } ?? [], body: Array(body.utf8))
        let response = await Control(simulator: world.simulator).respond(to: request)
        return (response.status, String(decoding: response.body, as: UTF8.self))
    }

    // Promise: simulator-control
    @Test func pushesAreListedAndDeleted() async throws {
        let world = try await World()
        #expect(await call(world, .get, "/pushes") == (200, "[]"))
        _ = try await world.client().send(world.headers(), payload)
        let (status, body) = await call(world, .get, "/pushes")
        #expect(status == 200)
        guard case .array(let pushes)? = JSON(parsing: Array(body.utf8)) else {
            Issue.record("not a JSON list: \(body)")
            return
        }
        #expect(pushes.count == 1)
        #expect(pushes[0]["token"] == .string(device))
        #expect(pushes[0]["payload"]?["aps"]?["alert"] == .string("x"))
        #expect(pushes[0]["headers"]?["apns-topic"] == .string("org.example.app"))
        #expect(pushes[0]["headers"]?["authorization"] == nil)
        #expect(await call(world, .delete, "/pushes") == (204, ""))
        #expect(await call(world, .get, "/pushes") == (200, "[]"))
    }

    // Promise: simulator-control
    @Test func faultsArePlanned() async throws {
        let world = try await World()
        #expect(await call(world, .get, "/faults") == (200, #"{"next":[],"always":[]}"#))
        let plan = #"{"next":[{"reason":"Unregistered"}],"always":[{"rate":0.5,"silent":true}]}"#
        #expect(await call(world, .put, "/faults", plan) == (200, plan))
        #expect(await call(world, .get, "/faults") == (200, plan))
        #expect(try await world.client().send(world.headers(), payload).status == 410)
        #expect(await call(world, .put, "/faults", "{}").status == 200)
        #expect(await world.simulator.faults == FaultPlan())
    }

    /// The listener shows device tokens. A web page must not read them by DNS rebinding.
    @Test(arguments: [nil, "attacker.example", "attacker.example:8790"])
    func foreignHostsAreRefused(_ host: String?) async throws {
        let world = try await World()
        for path in ["/pushes", "/faults", "/"] {
            let (status, body) = await call(world, .get, path, host: host)
            #expect(status == 421)
            #expect(JSON(parsing: Array(body.utf8))?["code"] == .string("foreign_host"))
        }
        #expect(await call(world, .delete, "/pushes", host: host).status == 421)
    }

    @Test func invalidPlanChangesNothing() async throws {
        let world = try await World()
        _ = await call(world, .put, "/faults", #"{"reason":"BadTopic"}"#)
        let (status, body) = await call(world, .put, "/faults", #"{"resaon":"Unregistered"}"#)
        #expect(status == 400)
        #expect(JSON(parsing: Array(body.utf8))?["code"] == .string("bad_fault"))
        #expect(await world.simulator.faults == FaultPlan(always: [Fault(.badTopic)]))
    }

    @Test(
        arguments: [
            (Method.post, "/pushes", 405), (.put, "/pushes", 405), (.post, "/faults", 405), (.delete, "/faults", 405),
            (.get, "/", 404),
            (.get, "/pushes/", 404), (.get, "/faults/1", 404),
        ] as [(Method, String, UInt16)])
    func otherRequestsAreRefused(method: Method, path: String, status: UInt16) async throws {
        #expect(await call(try await World(), method, path).status == status)
    }

    @Test func controlIsServedOverHTTP() async throws {
        let world = try await World()
        let socket = try Socket.connect(to: #require(world.control))
        let request = Array("GET /pushes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8)
        while try socket.write(request.span) == nil { try await world.loop.sleep(1) }
        var answer: [UInt8] = []
        while true {
            var buffer = [UInt8](repeating: 0, count: 4096)
            var room = buffer.mutableSpan
            guard let count = try socket.read(into: &room) else {
                try await world.loop.sleep(1)
                continue
            }
            if count == 0 { break }
            answer += buffer[..<count]
        }
        let text = String(decoding: answer, as: UTF8.self)
        #expect(text.hasPrefix("HTTP/1.1 200 "))
        #expect(text.hasSuffix("\r\n\r\n[]"))
        await world.simulator.stop()
        #expect(throws: Errno.self) {
            // The listener is closed.
            let late = try Socket.connect(to: #require(world.control))
            if let error = late.pendingError() { throw error }
        }
    }
}
